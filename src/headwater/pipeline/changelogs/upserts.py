"""Between keyed upserts, which a compacted topic holds, and weighted changelogs, which operators add and multiply.

`from_upserts`: the newest row of each key as a changelog; a new row takes back the old one, a tombstone only takes
back. State: `rows`, key -> its newest row. Of several rows of a key in a batch the one with the greatest offset is the
newest, or, with `newest`, the one with the greatest value of that column, whenever it comes: a slowly changing
dimension of type 1 that stragglers cannot set back. Then the key of a deleted row stays in the state, as it must.

`to_upserts`: the row of each key, newest first out, as rows to write to a compacted topic: `_weight` 1, or -1 when the
key has no row any more. State: `rows`, all rows by key. A changelog may bring the new row of a key before it takes the
old one back, from another partition: then the key has two, and one of them is shown until there is one again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.changelogs.rows import WEIGHTED, Bag, Delta, Ints, check_weight, delta, gone, own_fields, take
from headwater.pipeline.columns import OFFSET
from headwater.pipeline.emission import CHANGE, CHANGELOG, UPSERT, Emission, revisions
from headwater.pipeline.errors import DefinitionError, WrongType
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.operator import Batch, Groups, Operator, Time, require
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import EncodedKeys, Rows, State

__all__ = ["FromUpserts", "ToUpserts", "from_upserts", "to_upserts"]

S = TypeVar("S")

LIVES = "_lives"  # state column: whether the key has a row; false only where the newest word was that it has none


def from_upserts(df: S, key: Sequence[str], *, newest: str | None = None, **where: Unpack[StatefulKeywords]) -> S:
    """The table that keyed upserts describe, as a weighted changelog.

    A row is a deletion if its `_weight` is negative, or, without weights, if nothing but the key is not null (a
    tombstone). `newest`: a column that says which row of a key is newer; without, the one that comes later.
    """
    return stateful(df, FromUpserts(key, newest), **where)


def to_upserts(df: S, key: Sequence[str], **where: Unpack[StatefulKeywords]) -> S:
    """A weighted changelog with one row per key as upserts: the new row with `_weight` 1, -1 where it is gone."""
    return stateful(df, ToUpserts(key), **where)


class FromUpserts(Operator):
    """See the module."""

    def __init__(self, key: Sequence[str], newest: str | None = None) -> None:
        self.key, self._newest = _names(key, "from_upserts"), newest
        self._emission = Emission.of(CHANGE, CHANGELOG, "from_upserts", revises=True)

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        (schema,) = inputs.values()
        require(schema, self.keys_of(), "from_upserts: key")
        require(schema, [self._newest] if self._newest else [], "from_upserts: newest")
        check_weight(schema, "from_upserts")
        if self._newest and pa.types.is_nested(schema.field(self._newest).type):
            raise WrongType(self._newest, str(schema.field(self._newest).type), "of a type with an order", "newest")
        fields = own_fields(schema)
        self._columns = [f.name for f in fields]
        self._rest = [f.name for f in fields if f.name not in self.keys_of()]
        keys = [Column(name, schema.field(name).type) for name in self.keys_of()]
        rest = [Column(name, schema.field(name).type) for name in self._rest]
        self.state = (TableSpec.of("rows", keys, [Column(LIVES, pa.bool_(), False), *rest]),)
        return pa.schema([*fields, WEIGHTED])

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        rows = self._last_of_each_key(batch.table)
        groups = Batch({"rows": rows}).groups(*self.keys_of())
        rows = take(rows, np.argsort(groups.index))  # in the order of the keys, one each
        stored = state["rows"].get(groups.keys)
        had, has = stored.numpy(LIVES).astype(np.bool_), ~gone(rows, self.keys_of())
        if self._newest is not None:
            older = self._older(rows, stored)
            kept = np.flatnonzero(~older)
            rows, groups = take(rows, kept), _some(groups, kept)
            stored, had, has = state["rows"].get(groups.keys), had[kept], has[kept]
        old = groups.table(**{name: stored[name] for name in self._rest}).select(self._columns)
        new = rows.select(self._columns)
        state["rows"].put(groups.keys, {LIVES: has, **{name: new[name] for name in self._rest}})
        if self._newest is None:
            state["rows"].delete(_some(groups, np.flatnonzero(~has)).keys)
        return revisions(old, had, new, has, emission=self._emission, compared=self._rest)

    def _last_of_each_key(self, rows: pa.Table) -> pa.Table:
        names = [name for name in (self._newest, OFFSET) if name is not None and name in rows.column_names]
        if names:
            order = pc.sort_indices(rows, [(name, "ascending", "at_start") for name in names])
            rows = take(rows, np.asarray(order))
        groups = Batch({"rows": rows}).groups(*self.keys_of())
        last = np.zeros(len(groups), dtype=np.int64)
        last[groups.index] = np.arange(rows.num_rows)
        return take(rows, last)

    def _older(self, rows: pa.Table, stored: Rows) -> np.ndarray:
        """Which rows are older than the one that the state has of their key."""
        assert self._newest is not None
        less = pc.less(as_array(rows[self._newest]), as_array(stored[self._newest]))
        return np.asarray(less.fill_null(False).to_numpy(zero_copy_only=False))


class ToUpserts(Operator):
    """See the module."""

    def __init__(self, key: Sequence[str]) -> None:
        self.key = _names(key, "to_upserts")
        self._emission = Emission.of(CHANGE, UPSERT, "to_upserts", revises=True)

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        (schema,) = inputs.values()
        self._rows = Bag("rows", schema, self.keys_of(), "to_upserts")
        self.state = (self._rows.spec,)
        return pa.schema([*own_fields(schema), WEIGHTED])

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        changes = delta(batch.table, self._rows.columns)
        groups = Batch({"rows": changes.table}).groups(*self.keys_of())
        before, of_before = self._rows.of(state, groups.keys.columns)
        self._rows.add(state, changes)
        after, of_after = self._rows.of(state, groups.keys.columns)
        old, had = _one_each(before, of_before, len(groups))
        new, has = _one_each(after, of_after, len(groups))
        compared = [name for name in self._rows.columns if name not in self.key]
        return revisions(old, had, new, has, emission=self._emission, compared=compared)


def _one_each(rows: Delta, of: Ints, count: int) -> tuple[pa.Table, np.ndarray]:
    """For each key the row with the greatest identity that is there; any row (not looked at) where none is."""
    there = np.flatnonzero(rows.weights > 0)
    order = there[np.lexsort((rows.ids[there, 1], rows.ids[there, 0], of[there]))]
    chosen = np.full(count, -1)
    chosen[of[order]] = order
    padded = pa.concat_tables([rows.table, rows.table.schema.empty_table()]).combine_chunks()
    columns = [pa.concat_arrays([as_array(c), pa.nulls(1, c.type)]) for c in padded.columns]
    places = np.where(chosen < 0, len(rows), chosen)
    return take(pa.table(columns, schema=padded.schema), places), chosen >= 0


def _some(groups: Groups, chosen: Ints) -> Groups:
    return Groups(EncodedKeys(take(groups.keys.columns, chosen)), np.arange(len(chosen)))


def _names(key: Sequence[str], where: str) -> tuple[str, ...]:
    names = (key,) if isinstance(key, str) else tuple(key)
    if not names:
        raise DefinitionError(f"{where}: key names no column")
    return names
