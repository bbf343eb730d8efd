"""Aggregates per key over a changelog, with retraction: what a key's rows add up to as they come and go.

Aggregates that can take a row out again (count, sum, mean, variance) keep their accumulators and cost what a batch
brings. The others (min, max, first, last, distinct and what users write) cannot: then the key's rows are kept, and
those of the keys that a batch touches are aggregated again, before and after.

    rows   (key, identity) -> how many, the row      only for aggregates that cannot retract
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, Unpack

import numpy as np
import pyarrow as pa

from headwater.pipeline.aggregates.aggregate import Aggregate, Aggregates, Grouped
from headwater.pipeline.aggregates.running import Running
from headwater.pipeline.changelogs.rows import WEIGHTED, Bag, Delta, Ints, delta, take
from headwater.pipeline.columns import WEIGHT
from headwater.pipeline.emission import CHANGE, CHANGELOG, Emission, revisions
from headwater.pipeline.engine import engine_of
from headwater.pipeline.errors import BadOption
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.operator import Batch, Groups, Operator, Time
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.schema import Column
from headwater.pipeline.stateful.state import State

__all__ = ["Regrouped", "aggregate"]

S = TypeVar("S")


def aggregate(
    df: S,
    key: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    *,
    output: str = CHANGELOG,
    **where: Unpack[StatefulKeywords],
) -> S:
    """GROUP BY over a changelog, as a changelog (or `output="upsert"`). A key without rows has no result."""
    schema = engine_of(df).schema(df)
    retracts = all(isinstance(one, Aggregate) and one.retracts for one in aggregates.values())
    if retracts or WEIGHT not in schema.names:
        return stateful(df, Running(key, aggregates, output=output), **where)
    return stateful(df, Regrouped(key, aggregates, output=output), **where)


class Regrouped(Operator):
    """The aggregate that keeps its rows; see the module."""

    def __init__(self, key: Sequence[str], aggregates: Mapping[str, Aggregate], *, output: str = CHANGELOG) -> None:
        self.key = tuple(key)
        self._named = dict(aggregates)
        self._emission = Emission.of(CHANGE, output, "aggregate", revises=True)

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        (schema,) = inputs.values()
        self._rows = Bag("rows", schema, self.keys_of(), "aggregate")
        own = pa.schema([schema.field(name) for name in self._rows.columns])
        self._aggregates = Aggregates(self._named, own, "aggregate")
        taken = sorted(set(self._named) & set(self.keys_of()))
        if taken:
            raise BadOption(f"aggregate: an aggregate cannot be called {taken[0]!r}, which is a column of the key")
        self.state = (self._rows.spec,)
        keys = [Column(name, schema.field(name).type) for name in self.keys_of()]
        return pa.schema([*(pa.field(c.name, c.type) for c in keys), *self._aggregates.fields, WEIGHTED])

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        changes = delta(batch.table, self._rows.columns)
        groups = Batch({"rows": changes.table}).groups(*self.keys_of())
        before, of_before = self._rows.of(state, groups.keys.columns)
        self._rows.add(state, changes)
        after, of_after = self._rows.of(state, groups.keys.columns)
        old, had = self._results(groups, before, of_before)
        new, has = self._results(groups, after, of_after)
        return revisions(old, had, new, has, emission=self._emission, compared=list(self._named))

    def _results(self, groups: Groups, rows: Delta, of: Ints) -> tuple[pa.Table, Any]:
        """Every key's results, and whether it has rows at all. A row counts as often as it is there."""
        copies = np.repeat(np.arange(len(rows)), np.maximum(rows.weights, 0))
        whole = Grouped(take(rows.table, copies), of[copies], len(groups))
        values = self._aggregates.values(self._aggregates.partial(whole))
        return groups.table(**values), np.bincount(of[copies], minlength=len(groups)) > 0
