"""What a timed join says in one step: pairs and rows without a partner, weighted, in the order of time, late rows last.

With emit="close" a result belongs to the moment when it is complete: a pair to the later of both times, a row without
a partner to its expiry. Results come out by (that moment, key, row), which no batch boundary changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.pipeline.changelogs.rows import WEIGHTED, Ints, identities, take
from headwater.pipeline.changelogs.sides import LEFT
from headwater.pipeline.emission import APPEND, CHANGE, CHANGELOG, CLOSE, LATE, UPSERT, Emission
from headwater.pipeline.errors import BadOption
from headwater.pipeline.joins.columns import Shape
from headwater.pipeline.joins.timed import Timed
from headwater.pipeline.stateful.operator import group
from headwater.pipeline.time.settings import TIME, TIMESTAMP
from headwater.pipeline.windows.late import Lateness

__all__ = ["Said", "Speech"]

LATE_FIELD = pa.field(LATE, pa.bool_(), nullable=False)


@dataclass(frozen=True)
class Speech:
    """A user's words about when results come out, in which form, and about late rows."""

    emission: Emission
    lateness: Lateness

    @classmethod
    def of(
        cls, where: str, emit: str, output: str, late: str, *, keep_closed: Any, alert_above: float, revises: bool
    ) -> Speech:
        """Checked; `revises`: what came out may be revised, with these words, so that 'append' cannot say it."""
        lateness = Lateness.of(late, keep_closed, alert_above, where)
        if emit not in (CLOSE, CHANGE):
            raise BadOption(f"{where}: emit is {emit!r}; say 'change' or 'close'")
        if output == UPSERT:
            raise BadOption(f"{where}: output 'upsert' needs rows with a key: say 'changelog', then to_upserts(...)")
        if output == APPEND and not revises:
            return cls(Emission(emit, output), lateness)
        return cls(Emission.of(emit, output, where, revises=revises), lateness)

    def schema(self, shape: Shape) -> pa.Schema:
        fields = [*shape.schema, pa.field(TIME, TIMESTAMP)]
        fields += [WEIGHTED] if self.emission.output == CHANGELOG else []
        return pa.schema(fields + ([LATE_FIELD] if self.lateness.sides else []))


class Said:
    """Gathers what is said in one step."""

    def __init__(self, shape: Shape, words: Speech) -> None:
        self._shape, self._words = shape, words
        self._ordered = words.emission.emit == CLOSE
        self._tables: list[pa.Table] = []
        self._at: list[Ints] = []
        self._moments: list[Ints] = []
        self._weights: list[Ints] = []

    def pairs(self, side: str, mine: Timed, i: Ints, theirs: Timed, j: Ints, *, sign: int = 1) -> None:
        """Rows i of one side with rows j of the other; `sign` -1 takes back that they were a pair."""
        if not len(i):
            return
        (left, a), (right, b) = ((mine, i), (theirs, j)) if side == LEFT else ((theirs, j), (mine, i))
        at = np.maximum(left.at[a], right.at[b])
        self._tables.append(self._shape.rows(take(left.table, a), take(right.table, b)))
        self._add(at, at, sign * left.count[a] * right.count[b])

    def alone(self, side: str, rows: Timed, sign: int, moments: Ints | None = None) -> None:
        """Rows of a side without a partner, or (sign -1) that this was wrong."""
        if not len(rows):
            return
        self._tables.append(self._shape.single(side, rows.table))
        self._add(rows.at, rows.at if moments is None else moments, sign * rows.count)

    def _add(self, at: Ints, moments: Ints, weights: Ints) -> None:
        self._at.append(at)
        self._moments.append(moments)
        self._weights.append(weights)

    def table(self, late: Mapping[str, Timed]) -> pa.Table:
        """Everything said, in order; then, if asked for, the late rows."""
        schema = self._words.schema(self._shape)
        if not self._tables:
            results = schema.empty_table()
        else:
            at, weights = np.concatenate(self._at), np.concatenate(self._weights)
            rows = pa.concat_tables(self._tables).combine_chunks()
            order = self._order(rows) if self._ordered else np.arange(len(at))
            results = self._shown(rows, at, weights, order, schema, late=False)
        if not self._words.lateness.sides:
            return results
        return pa.concat_tables([results, *(self._late(side, rows, schema) for side, rows in late.items())])

    def _order(self, rows: pa.Table) -> Ints:
        """By moment and key; what is equal in both by the identity of the whole row."""
        keys = group(rows.select(list(self._shape.on))).index
        weights, moments = np.concatenate(self._weights), np.concatenate(self._moments)
        order = np.lexsort((keys, moments))
        equal = (keys[order][1:] == keys[order][:-1]) & (moments[order][1:] == moments[order][:-1])
        tied = np.append(equal, False) | np.append(False, equal)
        numbers = order[tied]
        ids = identities(take(rows, numbers))
        by = np.lexsort((weights[numbers], ids[:, 1], ids[:, 0], keys[numbers], moments[numbers]))
        order[tied] = numbers[by]
        return order

    def _shown(
        self, rows: pa.Table, at: Ints, weights: Ints, order: Ints, schema: pa.Schema, *, late: bool
    ) -> pa.Table:
        """Rows in order with their time and weight; repeated as often as they are there, where there is no weight."""
        if self._words.emission.output == APPEND:
            order = np.repeat(order, weights[order])
        columns = [*take(rows, order).columns, pa.array(at[order]).view(TIMESTAMP)]
        if self._words.emission.output == CHANGELOG:
            columns.append(pa.array(weights[order].astype(np.int32)))
        if self._words.lateness.sides:
            columns.append(pa.repeat(late, len(order)))
        return pa.table(columns, schema=schema)

    def _late(self, side: str, rows: Timed, schema: pa.Schema) -> pa.Table:
        every = np.arange(len(rows))
        return self._shown(self._shape.single(side, rows.table), rows.at, rows.count, every, schema, late=True)
