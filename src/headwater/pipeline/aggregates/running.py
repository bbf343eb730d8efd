"""The running aggregate: per key, over everything so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, Unpack

import numpy as np
import pyarrow as pa

from headwater.pipeline.aggregates.aggregate import Aggregate, Aggregates, Grouped
from headwater.pipeline.aggregates.functions import ORDER
from headwater.pipeline.columns import WEIGHT
from headwater.pipeline.emission import CLOSE, Emission, revisions, weighted_schema
from headwater.pipeline.errors import BadOption, DefinitionError
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.operator import MIN_TIME, ONLY, Batch, Groups, Operator, Time, require
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import State

__all__ = ["Running", "running"]

S = TypeVar("S")


def running(
    df: S,
    key: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    *,
    emit: str = "change",
    output: str = "upsert",
    **where: Unpack[StatefulKeywords],
) -> S:
    """Aggregates per key over all rows so far. Rows with a `_weight` of -1 are taken out again.

    `emit` and `output`: see `headwater.pipeline.emission`. `where`: see `StatefulKeywords`.
    """
    return stateful(df, Running(key, aggregates, emit=emit, output=output), **where)


class Running(Operator):
    """State: `running` key -> accumulators; `waiting` key -> those last given out, when results come at intervals."""

    def __init__(
        self, key: Sequence[str], aggregates: Mapping[str, Aggregate], *, emit: str = "change", output: str = "upsert"
    ) -> None:
        if emit == CLOSE:
            raise BadOption("running: emit='close' has no meaning without a window; say 'change' or an interval")
        self.key = tuple(key)
        self._named = dict(aggregates)
        self._emission = Emission.of(emit, output, "running", revises=True)
        self.needs_time = bool(self._emission.interval)  # an interval passes by the input's ticks

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        (schema,) = inputs.values()
        require(schema, self.keys_of(), "running: key")
        self._aggregates = Aggregates(self._named, schema, "running")
        kept = {column.name for one in self._named.values() for column in one.accumulators(schema)}
        self._ordering = [name for name, _ in ORDER if name in kept]  # the columns that first and last go by
        if WEIGHT in schema.names and not self._aggregates.retracts:
            stuck = [name for name, one in self._aggregates.named.items() if not one.retracts]
            raise DefinitionError(f"running: {', '.join(stuck)} cannot take rows with a negative {WEIGHT} out again")
        keys = [Column(name, schema.field(name).type) for name in self.keys_of()]
        rows = Column("rows", pa.int64(), 0)  # how many rows a key has: none left, and the key is gone
        self.state = (TableSpec.of("running", keys, [rows, *self._aggregates.state]),)
        if self._emission.interval:
            told = Column("told", pa.int64(), 0)
            due = TableSpec.of("turn", [("k", pa.int8())], [Column("turn", pa.int64(), MIN_TIME)])
            self.state = (*self.state, TableSpec.of("waiting", keys, [told, *self._aggregates.state]), due)
        fields = [pa.field(c.name, c.type) for c in keys]
        return weighted_schema(pa.schema([*fields, *self._aggregates.fields]), self._emission)

    def reads(self, side: str = ONLY) -> Sequence[str]:
        return (WEIGHT, *(name for one in self._named.values() for name in one.columns), *self._ordering)

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        groups = batch.groups(*self.keys_of())
        rows = _grouped(batch.table, groups)
        table = state["running"]
        before = table.get(groups.keys)
        after = self._aggregates.merge(before, self._aggregates.partial(rows))
        count = before.numpy("rows") + _row_counts(rows)
        table.put(groups.keys, {"rows": count, **after})
        gone = pa.array(self._nothing_left(rows, count, after))
        table.delete({name: groups.keys[name].take(gone) for name in self.keys_of()})
        if self._emission.interval:
            return self._at_interval(state, groups, before, time)
        return self._said(groups, before, before.numpy("rows"), after, count)

    def _nothing_left(self, rows: Grouped, count: Any, after: Mapping[str, pa.Array]) -> Any:
        """The groups that have no rows and whose accumulators are empty: a retraction may still wait for its row."""
        gone = np.flatnonzero(count == 0)
        if not len(gone):
            return gone
        nothing = self._aggregates.partial(Grouped(rows.table.slice(0, 0), np.zeros(0, dtype=np.int64), 1))
        left = [after[name].take(pa.array(gone)).to_pylist() for name in nothing]
        empty = tuple(column[0].as_py() for column in nothing.values())
        return gone[[values == empty for values in zip(*left, strict=True)]]

    def _said(self, groups: Groups, before: Any, had: Any, after: Any, has: Any) -> pa.Table:
        old = groups.table(**self._aggregates.values(before))
        new = groups.table(**self._aggregates.values(after))
        return revisions(old, had > 0, new, has > 0, emission=self._emission, compared=list(self._named))

    def _at_interval(self, state: State, groups: Groups, before: Any, time: Time) -> pa.Table:
        """Remember what was last said of the changed keys; at each turn of the interval speak of all of them."""
        waiting = state["waiting"]
        fresh = np.flatnonzero(~waiting.get(groups.keys).found)
        columns = {c.name: before[c.name].take(pa.array(fresh)) for c in self._aggregates.state}
        keys = {name: groups.keys[name].take(pa.array(fresh)) for name in self.keys_of()}
        waiting.put(keys, {"told": before["rows"].take(pa.array(fresh)), **columns})
        turn = time.now // self._emission.interval
        last = int(state["turn"].get({"k": pa.array([0], pa.int8())}).numpy("turn")[0])
        if turn <= last:
            return self._said(groups, before, np.zeros(len(groups)), before, np.zeros(len(groups)))
        state["turn"].put({"k": pa.array([0], pa.int8())}, {"turn": [turn]})
        told = waiting.range()
        due = Batch({"rows": pa.table({name: told[name] for name in self.keys_of()})}).groups(*self.keys_of())
        waiting.delete(due.keys)
        now = state["running"].get(due.keys)
        return self._said(due, told, told.numpy("told"), now, now.numpy("rows"))


def _grouped(table: pa.Table, groups: Groups) -> Grouped:
    weights = None
    if WEIGHT in table.column_names:
        weights = np.asarray(table[WEIGHT].to_numpy(), dtype=np.int64)
    return Grouped(table, groups.index, len(groups), weights)


def _row_counts(rows: Grouped) -> Any:
    counts = np.zeros(rows.count, dtype=np.int64)
    np.add.at(counts, rows.index, rows.signs())
    return counts
