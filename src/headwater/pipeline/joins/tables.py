"""Table-table join: two changelogs in, the changelog of their join out; inner, left, right or full.

The product rule, with weights: d(a*b) = da*b + a'*db, where a' is a with its own changes already in it. What comes out
is therefore the change of the join of the two tables as they stand: added up it is the batch join of the same data,
whatever the interleaving of the inputs and wherever batches end. Keys need not be unique on either side: foreign keys
and many-to-many are the same rule. More than two tables: join the result, it is a changelog like any other.

State: `left` and `right`, the rows of each side by key; for outer joins `sizes`, how many rows a key has on each side.
Cost: what the changed rows meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, Unpack

import numpy as np
import pyarrow as pa

from headwater.pipeline.changelogs.rows import (
    Bag,
    Delta,
    Ints,
    delta,
    meet,
    merged,
    null_keys,
    own_fields,
    pairs,
    take,
)
from headwater.pipeline.changelogs.sides import LEFT, RIGHT, On, key_pairs
from headwater.pipeline.joins.columns import Shape
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.operator import Batch, Operator, Time
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import State

__all__ = ["TableJoin", "tables"]

S = TypeVar("S")


def tables(left: S, right: S, on: On, *, how: str = "inner", **where: Unpack[StatefulKeywords]) -> S:
    """The join of two changelogs as a changelog.

    `on`: the key columns' names, or {left name: right name}. `how`: "inner", "left", "right", "full".
    The result has the key under its left name, the other columns of both sides, and `_weight`.
    """
    inputs: Any = {LEFT: left, RIGHT: right}
    result: S = stateful(inputs, TableJoin(on, how=how), **where)
    return result


class TableJoin(Operator):
    """See the module."""

    def __init__(self, on: On, *, how: str = "inner") -> None:
        self._on = key_pairs(on, "tables")
        self.key = {LEFT: tuple(self._on), RIGHT: tuple(self._on.values())}
        self._how = how

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        left, right = inputs[LEFT], inputs[RIGHT]
        self._shape = Shape.of(own_fields(left), own_fields(right), self._on, self._how, "tables")
        self._bags = {
            LEFT: Bag(LEFT, left, self.keys_of(LEFT), "tables: left"),
            RIGHT: Bag(RIGHT, right, self.keys_of(RIGHT), "tables: right"),
        }
        keys = [Column(name, left.field(name).type) for name in self._on]
        sizes = TableSpec.of("sizes", keys, [Column(LEFT, pa.int64(), 0), Column(RIGHT, pa.int64(), 0)])
        self.state = (self._bags[LEFT].spec, self._bags[RIGHT].spec, *([sizes] if self._shape.outer else []))
        return self._shape.weighted_schema()

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        changes = {side: delta(batch[side], bag.columns) for side, bag in self._bags.items()}
        alone = [self._shape.alone(side, *self._without_key(side, changes)) for side in (LEFT, RIGHT)]
        a, b = changes[LEFT], changes[RIGHT]
        keys, of_a, of_b = meet(self._keys(LEFT, a), self._keys(RIGHT, b))
        (a, of_a), (b, of_b) = _by_key(a, of_a), _by_key(b, of_b)
        old_a, key_a = self._stored(state, LEFT, keys.keys.columns, of_b)
        old_b, key_b = self._stored(state, RIGHT, keys.keys.columns, of_a)
        for side, change in ((LEFT, a), (RIGHT, b)):
            self._bags[side].add(state, change)
        new_a, key_new_a = self._after(old_a, key_a, a, of_a, of_b)
        said = [self._joined(a, of_a, old_b, key_b), self._joined(new_a, key_new_a, b, of_b)]
        if self._shape.outer:
            before, after = self._sizes(state, keys, {LEFT: (a, of_a), RIGHT: (b, of_b)})
            new_b, key_new_b = self._after(old_b, key_b, b, of_b, of_a)
            mine = (a, of_a, old_a, key_a, new_a, key_new_a)
            theirs = (b, of_b, old_b, key_b, new_b, key_new_b)
            said += self._unmatched(LEFT, mine, before[RIGHT], after[RIGHT])
            said += self._unmatched(RIGHT, theirs, before[LEFT], after[LEFT])
        return pa.concat_tables([*said, *alone])

    def _keys(self, side: str, change: Delta) -> pa.Table:
        return change.table.select(list(self._bags[side].key))

    def _without_key(self, side: str, changes: dict[str, Delta]) -> tuple[pa.Table, Ints]:
        """Takes rows with a null in the key out of the changes: they meet nothing, nor each other."""
        change = changes[side]
        keys = self._keys(side, change)
        none = null_keys(keys)
        if not none.any():
            return change.table.slice(0, 0), change.weights[:0]
        changes[side] = change.select(~none)
        lonely = change.select(none)
        return lonely.table, lonely.weights

    def _stored(self, state: State, side: str, keys: pa.Table, touched: Ints) -> tuple[Delta, Ints]:
        """What the state has on one side for the keys that the other side's changes touch."""
        chosen = np.unique(touched)
        asked = take(keys, chosen).rename_columns(list(self._bags[side].key))
        rows, source = self._bags[side].of(state, asked)
        return rows, chosen[source]

    @staticmethod
    def _after(old: Delta, key_old: Ints, change: Delta, key_new: Ints, touched: Ints) -> tuple[Delta, Ints]:
        """A side's rows with its changes, for the touched keys."""
        inside = np.isin(key_new, touched)
        new, key_new = change.select(inside), key_new[inside]
        if not len(old) or not len(new):
            return (old, key_old) if len(old) else (new, key_new)
        both = merged(old, new)
        # equal identities are equal rows, so each has one key: find it again by identity
        ids = np.concatenate([old.ids, new.ids])
        order = np.lexsort((ids[:, 1], ids[:, 0]))
        places = order[np.searchsorted(_as_records(ids[order]), _as_records(both.ids))]
        return both, np.concatenate([key_old, key_new])[places]

    def _joined(self, left: Delta, of_left: Ints, right: Delta, of_right: Ints) -> pa.Table:
        i, j = pairs(of_left, of_right)
        return self._shape.pairs(take(left.table, i), take(right.table, j), left.weights[i] * right.weights[j])

    def _sizes(self, state: State, keys: Any, changes: Mapping[str, tuple[Delta, Ints]]) -> tuple[Any, Any]:
        """How many rows each key has on each side, before and after."""
        table = state["sizes"]
        stored = table.get(keys.keys)
        before = {side: stored.numpy(side) for side in changes}
        after = {}
        for side, (change, of) in changes.items():
            after[side] = before[side] + np.bincount(of, weights=change.weights, minlength=len(keys)).astype(np.int64)
        kept = (after[LEFT] != 0) | (after[RIGHT] != 0)
        table.put(keys.keys, after)
        if not kept.all():
            table.delete(take(keys.keys.columns, np.flatnonzero(~kept)))
        return before, after

    def _unmatched(self, side: str, rows: Any, before: Ints, after: Ints) -> list[pa.Table]:
        """What changes about a side's rows without a partner: `before` and `after` say how many partners a key has."""
        if not self._shape.keeps(side):
            return []
        change, of, old, key_old, new, key_new = rows
        had, has = before > 0, after > 0
        said = []
        for part, keys, chosen, sign in (
            (change, of, ~had & ~has, 1),
            (old, key_old, ~had & has, -1),
            (new, key_new, had & ~has, 1),
        ):
            picked = part.select(chosen[keys])
            said.append(self._shape.alone(side, picked.table, sign * picked.weights))
        return said


def _by_key(change: Delta, of: Ints) -> tuple[Delta, Ints]:
    """The changes in the order in which the state keeps them, which makes them cheap to keep."""
    order = np.argsort(of, kind="stable")
    return change.select(order), of[order]


def _as_records(ids: Any) -> Any:
    """Identities as records, which sort by their first half and then by their second."""
    return np.ascontiguousarray(ids).view([("a", "<u8"), ("b", "<u8")]).ravel()
