"""Changelogs added up: equal rows of a batch, of one input or of several, with one weight; those that cancel are gone.

`consolidate` makes a changelog as short as it can be, `union` adds changelogs (UNION ALL). With an interval for `emit`,
changes gather in the state and come out, added up, once per interval of the input's ticks: any operator's changelog at
a slower pace.

State (with an interval only): `pending`, the changes not said yet; `turn`, the number of the last interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, Unpack

import pyarrow as pa

from headwater.pipeline.changelogs.rows import WEIGHTED, Bag, Delta, check_weight, delta, merged, own_fields, routable
from headwater.pipeline.emission import CHANGE, CHANGELOG, CLOSE, Emission
from headwater.pipeline.engine import engine_of
from headwater.pipeline.errors import BadOption, DefinitionError
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.operator import MIN_TIME, Batch, Operator, Time
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import State

__all__ = ["Consolidate", "consolidate", "union"]

S = TypeVar("S")

_ONE = {"k": pa.array([0], pa.int8())}


def consolidate(df: S, *, emit: str = CHANGE, **where: Unpack[StatefulKeywords]) -> S:
    """The changelog with the weights of equal rows added up, per batch; or `emit="10 seconds"`, per interval."""
    key = routable(engine_of(df).schema(df))
    return stateful(df, Consolidate(emit), key=key, **where)


def union(*inputs: S, **where: Unpack[StatefulKeywords]) -> S:
    """The rows of all inputs, as often as they are in all of them together: UNION ALL; distinct() of it is UNION.

    The inputs have the same columns; one without `_weight` is a stream of rows that only come.
    """
    if not inputs:
        raise DefinitionError("union: there is no input")
    named: Any = {f"input{number}": one for number, one in enumerate(inputs)}
    schemas = [engine_of(one).schema(one) for one in inputs]
    _check_alike(schemas)
    key = routable(schemas[0])
    result: S = stateful(named, Consolidate(CHANGE), key=key, **where)
    return result


class Consolidate(Operator):
    """See the module."""

    def __init__(self, emit: str = CHANGE) -> None:
        if emit == CLOSE:
            raise BadOption("consolidate: emit='close' has no meaning without a window; say 'change' or an interval")
        self._interval = Emission.of(emit, CHANGELOG, "consolidate", revises=True).interval
        self.needs_time = bool(self._interval)  # an interval passes by the input's ticks

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        schemas = list(inputs.values())
        for schema in schemas:
            check_weight(schema, "consolidate")
        first = own_fields(schemas[0])
        self._columns = [f.name for f in first]
        if self._interval:
            self._pending = Bag("pending", schemas[0], (), "consolidate")
            turn = TableSpec.of("turn", [("k", pa.int8())], [Column("turn", pa.int64(), MIN_TIME)])
            self.state = (self._pending.spec, turn)
        return pa.schema([*first, WEIGHTED])

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        changes: Delta | None = None
        for table in batch.inputs.values():
            one = delta(table, self._columns)
            changes = one if changes is None else merged(changes, one)
        assert changes is not None
        return (self._at_interval(state, changes, time) if self._interval else changes).weighted()

    def _at_interval(self, state: State, changes: Delta, time: Time) -> Delta:
        self._pending.add(state, changes)
        turn = time.now // self._interval
        last: Any = state["turn"].get(_ONE).numpy("turn")[0]
        if turn <= last:
            return changes.select(changes.weights == 0)
        state["turn"].put(_ONE, {"turn": [turn]})
        rows = state["pending"].range()
        state["pending"].delete(rows.columns)
        return self._pending.read(rows)


def _check_alike(schemas: Sequence[pa.Schema]) -> None:
    """The inputs of a union have the same columns."""
    first = {f.name: f.type for f in own_fields(schemas[0])}
    for schema in schemas[1:]:
        mine = {f.name: f.type for f in own_fields(schema)}
        if mine != first:
            wanted, found = (", ".join(f"{n} {t}" for n, t in one.items()) for one in (first, mine))
            raise DefinitionError(f"union: the inputs differ: one has {wanted}, another {found}; select the same")
