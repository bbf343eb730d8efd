"""Slowly changing dimensions of type 2: every version of a row with the time it holds from and to, as a changelog.

A version that comes late takes its place in the middle: the one before it ends sooner, nothing else changes. What comes
out is a function of the versions, not of the order in which they came; their ids too. (Type 1, only the newest row of a
key, is `from_upserts(..., newest=...)`.)

State: `versions`, see `headwater.pipeline.changelogs.history`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, Unpack

import numpy as np
import pyarrow as pa

from headwater.pipeline.changelogs.history import History, Versions, version_ids
from headwater.pipeline.changelogs.rows import WEIGHTED, Delta, check_weight, identities, own_fields, summed, take
from headwater.pipeline.errors import DefinitionError
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.operator import MAX_TIME, Batch, Operator, Time, group, require
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.state import State
from headwater.pipeline.time.clocks import check_timestamp
from headwater.pipeline.time.marks import times
from headwater.pipeline.time.settings import TIMESTAMP

__all__ = ["FROM", "TO", "VERSION", "VersionHistory", "versions"]

S = TypeVar("S")

FROM, TO, VERSION = "valid_from", "valid_to", "version"


def versions(df: S, key: Sequence[str], at: str, **where: Unpack[StatefulKeywords]) -> S:
    """All versions of a table's rows: the row, `valid_from`, `valid_to` (null: it holds), and an id in `version`.

    `at`: the column with the time from which a row holds. A row with a negative `_weight`, or a tombstone with its
    time, ends the version before it.
    """
    return stateful(df, VersionHistory(key, at), **where)


class VersionHistory(Operator):
    """See the module."""

    def __init__(self, key: Sequence[str], at: str) -> None:
        self.key, self._at = tuple(key), at

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        (schema,) = inputs.values()
        require(schema, self.keys_of(), "versions: key")
        check_timestamp(schema, self._at, "versions: at")
        check_weight(schema, "versions")
        fields = own_fields(schema)
        taken = [f.name for f in fields if f.name in (FROM, TO, VERSION)]
        if taken:
            raise DefinitionError(
                f"versions: the input has a column {taken[0]!r}, which the result has; rename it first"
            )
        self._history = History(schema, self.keys_of(), None)
        self.state = tuple(self._history.state)
        times_of = [pa.field(FROM, TIMESTAMP), pa.field(TO, TIMESTAMP), pa.field(VERSION, pa.string())]
        self._schema = pa.schema([*fields, *times_of])
        return self._schema.append(WEIGHTED)

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        rows = batch.table.filter(batch.table[self._at].is_valid())
        state.notes["untimed"] = state.notes.get("untimed", 0) + batch.table.num_rows - rows.num_rows
        keys = group(rows.select(list(self.keys_of())))
        new = self._history.arrived(rows, times(rows, self._at), keys.index)
        first = np.full(len(keys), MAX_TIME)
        np.minimum.at(first, new.of, new.at)
        every = np.arange(len(keys))
        before = self._history.around(state, keys.keys.columns, every, first, np.full(len(keys), MAX_TIME))
        after = before.and_(new).in_order()
        self._history.put(state, new, time.low)
        return self._changed(self._intervals(before), self._intervals(after))

    def _intervals(self, given: Versions) -> pa.Table:
        """The versions that hold for some time, with their times."""
        last = np.ones(len(given), dtype=np.bool_)
        last[:-1] = given.of[1:] != given.of[:-1]
        until = np.append(given.at[1:], 0)[: len(given)]
        shown = np.flatnonzero(given.lives & (last | (until > given.at)))
        chosen = given.pick(shown)
        ends = pa.array(until[shown], mask=last[shown]).view(TIMESTAMP)
        columns = [*chosen.table.columns, pa.array(chosen.at).view(TIMESTAMP), ends, version_ids(chosen)]
        return pa.table(columns, schema=self._schema)

    @staticmethod
    def _changed(old: pa.Table, new: pa.Table) -> pa.Table:
        both = pa.concat_tables([old, new]).combine_chunks()
        ids = identities(both)
        weights = np.repeat(np.array([-1, 1]), [old.num_rows, new.num_rows])
        firsts, sums = summed(ids, weights)
        order = np.lexsort((firsts, sums))  # what goes before what comes, each in the order of keys and times
        return Delta(take(both, firsts[order]), ids[firsts[order]], sums[order]).weighted()
