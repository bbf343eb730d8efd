"""The rows of a changelog as columns: weights, identities, what changed in a batch, and multisets of rows in the state.

A changelog is a Z-set: a row and a weight, +1 for a row that comes and -1 for one that goes; rows that are equal are
the same row, and their weights add up. A stream without `_weight` is a changelog in which rows only come.

A row is its own columns: those that say where a record was (`_offset` and so on) and when (`_time`) are not part of it,
for the record that takes a row out again has others. Its identity is 128 bits of BLAKE2b over its packed columns:
enough that nobody finds two rows with the same one.

Invariant: a `Delta` is sorted by identity, so that what an operator says of a batch does not depend on the order in
which a shuffle brought the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.columns import LOW, METADATA, WEIGHT
from headwater.pipeline.emission import LATE
from headwater.pipeline.errors import DefinitionError, WrongType
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.operator import Groups, group, require
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import EncodedKeys, Rows, State
from headwater.pipeline.stateful.values import ValueCodec
from headwater.pipeline.time.settings import INTERNAL, TIME_COLUMNS

__all__ = [
    "COUNT",
    "IDENTITY",
    "WEIGHTED",
    "Bag",
    "Delta",
    "Ints",
    "check_weight",
    "delta",
    "gone",
    "identities",
    "meet",
    "merged",
    "null_keys",
    "own_fields",
    "pairs",
    "routable",
    "summed",
    "take",
    "weighted",
    "weights",
]

Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint64]

COUNT = "_count"  # state column: how many times the row is there
IDENTITY = ("_id0", "_id1")  # state key columns: the row's identity
WEIGHTED = pa.field(WEIGHT, pa.int32(), nullable=False)

_NOT_OWN = {*METADATA, *TIME_COLUMNS, *INTERNAL, LOW, LATE, WEIGHT}


def own_fields(schema: pa.Schema) -> list[pa.Field]:
    """The columns that make a row: without those that say where a record was, when, and its weight."""
    return [pa.field(f.name, f.type) for f in schema if f.name not in _NOT_OWN]


def check_weight(schema: pa.Schema, where: str) -> None:
    """Whether the input is a changelog (has `_weight`) or a stream of rows that only come, it must be well formed."""
    if WEIGHT in schema.names and not pa.types.is_integer(schema.field(WEIGHT).type):
        raise WrongType(WEIGHT, str(schema.field(WEIGHT).type), "a whole number", where)
    if not own_fields(schema):
        raise DefinitionError(f"{where}: the input has no columns of its own, only {', '.join(schema.names) or 'none'}")


def weights(table: pa.Table) -> Ints:
    """The weight of every row; 1 where the input is not a changelog. A null counts as 1."""
    if WEIGHT not in table.column_names:
        return np.ones(table.num_rows, dtype=np.int64)
    column = as_array(table[WEIGHT], pa.int64()).fill_null(1)
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def weighted(table: pa.Table, given: Ints) -> pa.Table:
    """The rows with their weights behind them."""
    return table.append_column(WEIGHTED, pa.array(given.astype(np.int32)))


def gone(table: pa.Table, key: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which rows of a table's history say that a key has no row any more: a negative weight; without weights, a
    tombstone, which has nothing but its key."""
    if WEIGHT in table.column_names:
        return weights(table) < 0
    others = [f.name for f in own_fields(table.schema) if f.name not in key]
    if not others:
        return np.zeros(table.num_rows, dtype=np.bool_)
    return np.asarray(np.all([np.asarray(table[name].is_null().to_numpy()) for name in others], axis=0))


def take(table: pa.Table, rows: Any) -> pa.Table:
    """Rows by number, each column in one piece."""
    return pa.table([as_array(c).take(pa.array(rows)) for c in table.columns], schema=table.schema)


def identities(table: pa.Table) -> Ids:
    """128 bits for every row, equal for equal rows: an array of shape (rows, 2)."""
    codec = ValueCodec(0, [Column(f.name, f.type) for f in table.schema])
    packed = codec.pack({f.name: _plain(as_array(table[f.name])) for f in table.schema}, table.num_rows)
    digests = b"".join([blake2b(row, digest_size=16).digest() for row in packed])
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2)


def _plain(column: pa.Array) -> pa.Array:
    """-0.0 is 0.0, and a null hides no value: equal rows have equal bytes."""
    if not pa.types.is_floating(column.type):
        return column
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False) + 0.0
    return pa.array(numbers, column.type, mask=column.is_null().to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class Delta:
    """What a batch changes: distinct rows in the order of their identities, none with weight 0."""

    table: pa.Table
    ids: Ids
    weights: Ints

    def __len__(self) -> int:
        return len(self.weights)

    def select(self, chosen: Any) -> Delta:
        """Some of the rows, by number or by mask."""
        return Delta(take(self.table, np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen),
                     self.ids[chosen], self.weights[chosen])  # fmt: skip

    def weighted(self) -> pa.Table:
        return weighted(self.table, self.weights)


def delta(table: pa.Table, columns: Sequence[str] | None = None) -> Delta:
    """The rows of a batch with the weights of equal ones added up; `columns`: those that count (default: its own)."""
    given = weights(table)
    rows = table.select(list(columns) if columns is not None else [f.name for f in own_fields(table.schema)])
    ids = identities(rows)
    firsts, sums = summed(ids, given)
    return Delta(take(rows, firsts), ids[firsts], sums)


def summed(ids: Ids, given: Ints) -> tuple[Ints, Ints]:
    """The first row of each identity (in their order) and the sum of its weights, where it is not 0."""
    order = np.lexsort((ids[:, 1], ids[:, 0]))
    sorted_ids = ids[order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (sorted_ids[1:] != sorted_ids[:-1]).any(axis=1)
    starts = np.flatnonzero(first)
    sums = np.add.reduceat(given[order], starts) if len(starts) else given[:0]
    kept = sums != 0
    return order[starts][kept], sums[kept]


def merged(old: Delta, new: Delta) -> Delta:
    """Two deltas of the same columns as one."""
    if not len(old) or not len(new):
        return old if len(old) else new
    ids, given = np.concatenate([old.ids, new.ids]), np.concatenate([old.weights, new.weights])
    firsts, sums = summed(ids, given)
    both = pa.concat_tables([old.table, new.table.select(old.table.column_names)])
    return Delta(take(both.combine_chunks(), firsts), ids[firsts], sums)


def pairs(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Row numbers of all pairs with equal codes, by left row, then by right row."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    starts, ends = np.searchsorted(ordered, left, "left"), np.searchsorted(ordered, left, "right")
    return spread(starts, ends, order)


def spread(starts: Ints, ends: Ints, order: Ints) -> tuple[Ints, Ints]:
    """For row i every one of order[starts[i]:ends[i]]: the row numbers and what they meet."""
    counts = np.maximum(ends - starts, 0)
    left = np.repeat(np.arange(len(counts)), counts)
    offsets = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    return left, order[np.repeat(starts, counts) + offsets]


def meet(left: pa.Table, right: pa.Table) -> tuple[Groups, Ints, Ints]:
    """The keys of both tables (the same columns in both) and the number of each row's key, left and right."""
    both = group(pa.concat_tables([left, right.rename_columns(left.column_names)]))
    return both, both.index[: left.num_rows], both.index[left.num_rows :]


def null_keys(keys: pa.Table) -> npt.NDArray[np.bool_]:
    """Which keys have a null: they equal nothing, not even each other."""
    none = np.zeros(keys.num_rows, dtype=np.bool_)
    for column in keys.columns:
        if column.null_count:
            none |= np.asarray(column.is_null().to_numpy())
    return none


class Bag:
    """A multiset of rows by key in the state: (key, identity) -> how many, and the row. Counts may be negative for
    a while: a row may be taken out before it came."""

    def __init__(self, name: str, schema: pa.Schema, key: Sequence[str], where: str) -> None:
        require(schema, key, where)
        check_weight(schema, where)
        fields = own_fields(schema)
        self.name, self.key = name, tuple(key)
        self.columns = [f.name for f in fields]
        keys = [Column(name, schema.field(name).type) for name in key]
        kept = [Column(f.name, f.type) for f in fields if f.name not in key]
        ids = [Column(name, pa.uint64()) for name in IDENTITY]
        self.spec = TableSpec.of(name, [*keys, *ids], [Column(COUNT, pa.int64(), 0), *kept])

    def add(self, state: State, change: Delta) -> tuple[Ints, Ints]:
        """Put a delta in; how often each of its rows was there before, and is now."""
        keys = EncodedKeys(self._keys(change))
        before = state[self.name].get(keys).numpy(COUNT)
        after = before + change.weights
        gone = after == 0
        if not gone.any():
            state[self.name].put(keys, {COUNT: after, **_columns(change.table)})
            return before, after
        state[self.name].delete(self._keys(change.select(gone)))
        stay = change.select(~gone)
        state[self.name].put(self._keys(stay), {COUNT: after[~gone], **_columns(stay.table)})
        return before, after

    def of(self, state: State, keys: pa.Table) -> tuple[Delta, Ints]:
        """All rows of some keys, and the number of each one's key."""
        rows = state[self.name].scan(keys, list(self.key))
        return self.read(rows), rows.source

    def read(self, rows: Rows) -> Delta:
        table = pa.table([rows[name] for name in self.columns], self.columns)
        ids = np.stack([rows.numpy(name) for name in IDENTITY], axis=1).astype(np.uint64)
        return Delta(table, ids, rows.numpy(COUNT).astype(np.int64))

    def _keys(self, change: Delta) -> pa.Table:
        keys = {name: change.table[name] for name in self.key}
        return pa.table({**keys, IDENTITY[0]: change.ids[:, 0], IDENTITY[1]: change.ids[:, 1]})


def _columns(table: pa.Table) -> Mapping[str, Any]:
    return {name: table[name] for name in table.column_names}


def routable(schema: pa.Schema) -> tuple[str, ...]:
    """The columns by whose hash equal rows meet in one partition: all that can be a key."""
    names = tuple(f.name for f in own_fields(schema) if not pa.types.is_nested(f.type))
    if not names:
        raise DefinitionError(f"a changelog needs a column that is not nested, to bring equal rows together: {schema}")
    return names
