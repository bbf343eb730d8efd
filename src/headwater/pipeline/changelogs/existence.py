"""Semi-join and anti-join of changelogs: the left rows whose key has a row on the right, or has none.

State: `rows`, the left rows by key; `partners`, how many rows a key has on the right. When a key's partners come or go
altogether, all left rows of the key come or go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, Unpack

import numpy as np
import pyarrow as pa

from headwater.pipeline.changelogs.rows import (
    WEIGHTED,
    Bag,
    Delta,
    Ints,
    delta,
    meet,
    merged,
    null_keys,
    own_fields,
    take,
    weights,
)
from headwater.pipeline.changelogs.sides import LEFT, RIGHT, On, key_pairs
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.operator import Batch, Groups, Operator, Time, require
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import State

__all__ = ["Existence", "anti_join", "semi_join"]

S = TypeVar("S")


def semi_join(left: S, right: S, on: On, **where: Unpack[StatefulKeywords]) -> S:
    """The left rows for whose key there is a right row: WHERE EXISTS. `on`: columns, or {left name: right name}."""
    inputs: Any = {LEFT: left, RIGHT: right}
    result: S = stateful(inputs, Existence(on, wanted=True), **where)
    return result


def anti_join(left: S, right: S, on: On, **where: Unpack[StatefulKeywords]) -> S:
    """The left rows for whose key there is no right row: WHERE NOT EXISTS. A null in the key equals nothing."""
    inputs: Any = {LEFT: left, RIGHT: right}
    result: S = stateful(inputs, Existence(on, wanted=False), **where)
    return result


class Existence(Operator):
    """See the module. `wanted`: whether a key must have partners, or must not."""

    def __init__(self, on: On, *, wanted: bool) -> None:
        self._where = "semi_join" if wanted else "anti_join"
        self._on, self._wanted = key_pairs(on, self._where), wanted
        self.key = {LEFT: tuple(self._on), RIGHT: tuple(self._on.values())}

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        left, right = inputs[LEFT], inputs[RIGHT]
        require(right, self.keys_of(RIGHT), f"{self._where}: right")
        self._rows = Bag("rows", left, self.keys_of(LEFT), f"{self._where}: left")
        keys = [Column(name, left.field(name).type) for name in self._on]
        self.state = (self._rows.spec, TableSpec.of("partners", keys, [Column("n", pa.int64(), 0)]))
        return pa.schema([*own_fields(left), WEIGHTED])

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        changes = delta(batch[LEFT], self._rows.columns)
        theirs = batch[RIGHT].select(list(self.keys_of(RIGHT)))
        keys, of_left, of_right = meet(changes.table.select(list(self._on)), theirs)
        had, has = self._partners(state, keys, of_right, weights(batch[RIGHT]))
        turned = np.flatnonzero(had != has)
        stored, source = self._rows.of(state, take(keys.keys.columns, turned))
        self._rows.add(state, changes)
        # what was shown of a key goes if it is not shown any more; what is there now comes if it was not shown
        flip = np.where(has[turned[source]], 1, -1)
        old = Delta(stored.table, stored.ids, stored.weights * flip)
        return merged(old, changes.select(has[of_left])).weighted()

    def _partners(self, state: State, keys: Groups, of: Ints, given: Ints) -> tuple[np.ndarray, np.ndarray]:
        """Whether each key's rows are shown, before and after."""
        table = state["partners"]
        before = table.get(keys.keys).numpy("n")
        after = before + np.bincount(of, weights=given, minlength=len(keys)).astype(np.int64)
        changed = np.flatnonzero(before != after)
        table.put(take(keys.keys.columns, changed), {"n": after[changed]})
        table.delete(take(keys.keys.columns, changed[after[changed] == 0]))
        null = null_keys(keys.keys.columns)
        return self._shown(before, null), self._shown(after, null)

    def _shown(self, partners: Ints, null: np.ndarray) -> np.ndarray:
        exists = (partners > 0) & ~null
        return np.asarray(exists if self._wanted else ~exists)
