"""The first n rows of each key in an order, kept up as rows come and go.

    rows   (key, order, identity) -> how many, the row       sorted as the rows are ranked
    owed   (key, order, identity) -> how many               rows taken back before they came (changelogs only)

Of a stream whose rows only come, a row that falls behind the first n never comes back: only the n are kept, and a batch
is decided column by column. Of a changelog all rows are kept, and a touched key's first n are read before and after.
Rows that are equal in the order are ranked by identity, so that the result does not depend on who came first.
Invariant: the order's columns are stored so that all of them run the same way, ascending if the first one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.changelogs.rows import (
    COUNT,
    IDENTITY,
    WEIGHTED,
    Delta,
    Ids,
    Ints,
    check_weight,
    delta,
    own_fields,
    take,
)
from headwater.pipeline.columns import WEIGHT
from headwater.pipeline.emission import CHANGE, CHANGELOG, UPSERT, Emission, revisions
from headwater.pipeline.errors import BadOption, DefinitionError, WrongType
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.operator import Batch, Groups, Operator, Time, group, require
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import EncodedKeys, Rows, State

__all__ = ["TopN", "top_n"]

S = TypeVar("S")

N_MAX = 10_000  # rows of a key that are read and compared whenever it changes


def top_n(
    df: S,
    key: Sequence[str],
    order_by: Sequence[str],
    n: int,
    *,
    rank: str | None = None,
    output: str = CHANGELOG,
    **where: Unpack[StatefulKeywords],
) -> S:
    """The first `n` rows of each key: ROW_NUMBER() OVER (PARTITION BY key ORDER BY ...) <= n.

    `order_by`: columns, each with "asc" (nulls first) or "desc" (nulls last) behind it: ["price desc", "at"].
    `rank`: a column for the row's number, from 1; with it `output="upsert"` gives the newest row of (key, rank).
    """
    return stateful(df, TopN(key, order_by, n, rank=rank, output=output), **where)


@dataclass(frozen=True)
class _Order:
    """One column of the order; `turned`: stored complemented, because it runs against the first one."""

    name: str
    descending: bool
    turned: bool

    def stored(self, column: pa.Array) -> list[pa.Array]:
        """The column as it is stored: as it is, or whether it is null and its complement."""
        if not self.turned:
            return [column]
        null = column.is_null()
        if pa.types.is_floating(column.type):
            return [null, pa.array(-column.fill_null(0).to_numpy(zero_copy_only=False), pa.float64())]
        width = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
        whole = column.view(width) if pa.types.is_temporal(column.type) else column.cast(pa.int64())
        return [null, pa.array(~whole.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))]

    def columns(self, number: int, kind: pa.DataType, where: str) -> list[Column]:
        if not self.turned:
            return [Column(f"_order{number}", kind)]
        if pa.types.is_floating(kind):
            return [Column(f"_null{number}", pa.bool_()), Column(f"_order{number}", pa.float64())]
        if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
            return [Column(f"_null{number}", pa.bool_()), Column(f"_order{number}", pa.int64())]
        wanted = "a number or a time, as it runs against the first column of the order"
        raise WrongType(self.name, str(kind), wanted, where)


class TopN(Operator):
    """See the module."""

    def __init__(
        self, key: Sequence[str], order_by: Sequence[str], n: int, *, rank: str | None = None, output: str = CHANGELOG
    ) -> None:
        self.key = tuple(key)
        if not 1 <= n <= N_MAX:
            raise BadOption(f"top_n: n is {n}, but it must be 1 to {N_MAX}")
        if output == UPSERT and rank is None:
            raise BadOption("top_n: output 'upsert' needs rank=, the column that tells a key's rows apart")
        self._n, self._rank = n, rank
        self._emission = Emission.of(CHANGE, output, "top_n", revises=True)
        self._order = _parsed(order_by)

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        (schema,) = inputs.values()
        require(schema, self.keys_of(), "top_n: key")
        require(schema, [one.name for one in self._order], "top_n: order_by")
        check_weight(schema, "top_n")
        fields = own_fields(schema)
        if self._rank in [f.name for f in fields]:
            raise DefinitionError(f"top_n: the input has a column {self._rank!r} already; give rank another name")
        self._columns = [f.name for f in fields]
        keys = [Column(name, schema.field(name).type) for name in self.keys_of()]
        kinds = [schema.field(one.name).type for one in self._order]
        order = [c for i, one in enumerate(self._order) for c in one.columns(i, kinds[i], "top_n: order_by")]
        self._stored = [c.name for c in order]
        ids = [Column(name, pa.uint64()) for name in IDENTITY]
        rest = [Column(f.name, f.type) for f in fields if f.name not in self.keys_of()]
        count = Column(COUNT, pa.int64(), 0)
        self._only_come = WEIGHT not in schema.names
        rows = TableSpec.of("rows", [*keys, *order, *ids], [count, *rest])
        owed = TableSpec.of("owed", [*keys, *order, *ids], [count])
        self.state = (rows,) if self._only_come else (rows, owed)
        ranked = [pa.field(self._rank, pa.int64())] if self._rank is not None else []
        return pa.schema([*fields, *ranked, WEIGHTED])

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        new = self._ranked(delta(batch.table, self._columns))
        keys = group(new.rows.select(list(self.keys_of())))
        new = new.of_keys(keys.index)
        old = self._first(state, keys)
        if self._only_come:
            top = old.and_(self._firsts(new.in_order(self._descending)))
            top = self._firsts(top.in_order(self._descending))
            self._replace(state, old, top)
        else:
            self._add(state, new)
            top = self._first(state, keys)
        return self._said(old, top)

    @property
    def _descending(self) -> bool:
        return self._order[0].descending

    def _ranked(self, changes: Delta) -> _Ranked:
        stored = [part for one in self._order for part in one.stored(as_array(changes.table[one.name]))]
        order = pa.table(stored, self._stored)
        return _Ranked(changes.table, order, changes.ids, changes.weights, np.zeros(len(changes), dtype=np.int64))

    def _first(self, state: State, keys: Groups) -> _Ranked:
        """The first n rows of each key as the state has them."""
        rows = state["rows"].scan(keys.keys.columns, list(self.keys_of()), reverse=self._descending, limit=self._n)
        return self._firsts(self._read(rows))

    def _firsts(self, ranked: _Ranked) -> _Ranked:
        """The first n of each key, of rows in order."""
        first, copies = ranked.first(self._n)
        return ranked.pick(first, copies)

    def _read(self, rows: Rows) -> _Ranked:
        table = pa.table([rows[name] for name in self._columns], self._columns)
        order = pa.table([rows[name] for name in self._stored], self._stored)
        ids = np.stack([rows.numpy(name) for name in IDENTITY], axis=1).astype(np.uint64)
        return _Ranked(table, order, ids, rows.numpy(COUNT).astype(np.int64), rows.source)

    def _replace(self, state: State, old: _Ranked, top: _Ranked) -> None:
        """Only the first n stay: those that are new come in, those that fell out go."""
        same = _matches(old, top)
        came = top.pick(~np.isin(np.arange(len(top)), same[1][old.count[same[0]] == top.count[same[1]]]))
        left = old.pick(~np.isin(np.arange(len(old)), same[0]))
        state["rows"].delete(self._keys(left))
        state["rows"].put(self._keys(came), {COUNT: came.count, **{n: came.rows[n] for n in self._columns}})

    def _add(self, state: State, new: _Ranked) -> None:
        """Rows of a changelog: what is there in `rows`, what was taken back too early in `owed`."""
        keys = self._keys(new)
        rows, owed = state["rows"], state["owed"]
        after = rows.get(keys).numpy(COUNT) + owed.get(keys).numpy(COUNT) + new.count
        there, missing = new.pick(after > 0, after[after > 0]), new.pick(after < 0, after[after < 0])
        rows.delete(self._keys(new.pick(after <= 0)))
        owed.delete(self._keys(new.pick(after >= 0)))
        rows.put(self._keys(there), {COUNT: there.count, **{n: there.rows[n] for n in self._columns}})
        owed.put(self._keys(missing), {COUNT: missing.count})

    def _keys(self, ranked: _Ranked) -> EncodedKeys:
        own = {name: ranked.rows[name] for name in self.keys_of()}
        ids = {name: ranked.ids[:, i] for i, name in enumerate(IDENTITY)}
        return EncodedKeys(pa.table({**own, **{n: ranked.order[n] for n in self._stored}, **ids}))

    def _said(self, old: _Ranked, new: _Ranked) -> pa.Table:
        if self._rank is None:
            gone, come = _differences(old, new)
            parts = [(old.rows, gone, -1), (new.rows, come, 1)]
            tables = []
            for rows, counts, sign in parts:
                some = np.flatnonzero(counts)
                tables.append(
                    take(rows, some).append_column(WEIGHTED, pa.array((sign * counts[some]).astype(np.int32)))
                )
            return pa.concat_tables(tables)
        before, after = old.numbered(self._rank), new.numbered(self._rank)
        places, had, has = _aligned(before[1], after[1])
        blank = take(after[0].slice(0, 0), np.zeros(0, dtype=np.int64))
        return revisions(
            _spread_out(before[0], places[0], blank.schema),
            had,
            _spread_out(after[0], places[1], blank.schema),
            has,
            emission=self._emission,
            compared=self._columns,
        )


@dataclass(frozen=True)
class _Ranked:
    """Rows with their place in the order as it is stored, how many of each there are, and their keys' numbers."""

    rows: pa.Table
    order: pa.Table
    ids: Ids
    count: Ints
    of: Ints

    def __len__(self) -> int:
        return len(self.of)

    def of_keys(self, of: Ints) -> _Ranked:
        return _Ranked(self.rows, self.order, self.ids, self.count, of)

    def pick(self, chosen: Any, count: Ints | None = None) -> _Ranked:
        rows = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        counts = self.count[rows] if count is None else count
        return _Ranked(take(self.rows, rows), take(self.order, rows), self.ids[rows], counts, self.of[rows])

    def and_(self, other: _Ranked) -> _Ranked:
        """Both, equal rows of one key once."""
        if not len(self) or not len(other):
            return self if len(self) else other
        mine, theirs = _matches(self, other)
        counts = self.count.copy()
        counts[mine] += other.count[theirs]
        rest = other.pick(~np.isin(np.arange(len(other)), theirs))
        return _Ranked(
            pa.concat_tables([self.rows, rest.rows]).combine_chunks(),
            pa.concat_tables([self.order, rest.order]).combine_chunks(),
            np.concatenate([self.ids, rest.ids]),
            np.concatenate([counts, rest.count]),
            np.concatenate([self.of, rest.of]),
        )

    def in_order(self, descending: bool) -> _Ranked:
        way = "descending" if descending else "ascending"
        named = {"of": self.of, **{n: self.order[n] for n in self.order.column_names}}
        table = pa.table({**named, "id0": self.ids[:, 0], "id1": self.ids[:, 1]})
        nulls = "at_end" if descending else "at_start"
        keys = [("of", "ascending", nulls), *((name, way, nulls) for name in table.column_names[1:])]
        return self.pick(np.asarray(pc.sort_indices(table, keys)).astype(np.int64))

    def first(self, n: int) -> tuple[Ints, Ints]:
        """The numbers of the rows among each key's first n, and how many copies of each are; rows are in order."""
        if not len(self):
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        upto = np.cumsum(self.count)
        starts = np.flatnonzero(np.concatenate([[True], self.of[1:] != self.of[:-1]]))
        base = np.repeat(upto[starts] - self.count[starts], np.diff(np.append(starts, len(self))))
        copies = np.clip(n - (upto - self.count - base), 0, self.count)
        chosen = np.flatnonzero(copies)
        return chosen, copies[chosen]

    def numbered(self, rank: str) -> tuple[pa.Table, Ints]:
        """Every copy as a row with its number within its key; and (key's number, number) as one."""
        rows = np.repeat(np.arange(len(self)), self.count)
        of = self.of[rows]
        starts = np.flatnonzero(np.concatenate([[True], of[1:] != of[:-1]])[: len(of)])
        numbers = np.arange(len(of)) - np.repeat(starts, np.diff(np.append(starts, len(of)))) + 1
        table = take(self.rows, rows).append_column(pa.field(rank, pa.int64()), pa.array(numbers))
        return table, of * (N_MAX + 1) + numbers


def _matches(left: _Ranked, right: _Ranked) -> tuple[Ints, Ints]:
    """Numbers of the rows that are in both."""
    ids = np.concatenate([left.ids, right.ids])
    order = np.lexsort((ids[:, 1], ids[:, 0]))  # stable: of two that are equal the left one comes first
    ordered = ids[order]
    twice = np.flatnonzero((ordered[1:] == ordered[:-1]).all(axis=1))
    return order[twice], order[twice + 1] - len(left)


def _differences(old: _Ranked, new: _Ranked) -> tuple[Ints, Ints]:
    """How many copies of each old row go, and of each new one come."""
    i, j = _matches(old, new)
    gone, come = old.count.copy(), new.count.copy()
    kept = np.minimum(gone[i], come[j])
    gone[i] -= kept
    come[j] -= kept
    return gone, come


def _aligned(before: Ints, after: Ints) -> tuple[tuple[Ints, Ints], Any, Any]:
    """For every place that is taken before or after: the rows that take it (-1: none), and whether there are any."""
    places = np.union1d(before, after)
    numbers = []
    for side in (before, after):
        number = np.full(len(places), -1)
        number[np.searchsorted(places, side)] = np.arange(len(side))
        numbers.append(number)
    return (numbers[0], numbers[1]), numbers[0] >= 0, numbers[1] >= 0


def _spread_out(rows: pa.Table, numbers: Ints, schema: pa.Schema) -> pa.Table:
    """Rows by number, all null for -1."""
    columns = [as_array(c).take(pa.array(numbers, mask=numbers < 0)) for c in rows.columns]
    return pa.table(columns, schema=schema)


def _parsed(order_by: Sequence[str]) -> tuple[_Order, ...]:
    names = [order_by] if isinstance(order_by, str) else list(order_by)
    if not names:
        raise BadOption('top_n: order_by names no column; say for example ["price desc"]')
    found = []
    for one in names:
        name, _, way = one.strip().partition(" ")
        if way.strip().lower() not in ("", "asc", "desc"):
            raise BadOption(f"top_n: order_by has {one!r}; say 'column', 'column asc' or 'column desc'")
        found.append((name, way.strip().lower() == "desc"))
    return tuple(_Order(name, descending, descending != found[0][1]) for name, descending in found)
