"""Rows with a time, on their way into a join: late ones sorted out, the others held back if results come at close.

With emit="close" a join takes its rows in the order of their times, each when the low watermark has passed it. All
rows before it are known then, so what comes out, and in which order, is a function of the rows alone: the same bytes
whatever the interleaving and wherever batches end. Rows that wait are in the state, ordered by time:

    waiting_<side>   (time, key, identity) -> how many, and the row's other columns

Corrections (late="correct") do not wait: they come out in the batch that brings them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.changelogs.rows import COUNT, IDENTITY, Ids, Ints, identities, own_fields, spread, summed, take
from headwater.pipeline.columns import WEIGHT
from headwater.pipeline.errors import DefinitionError
from headwater.pipeline.stateful.operator import MIN_TIME, Time
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import EncodedKeys, Rows, State
from headwater.pipeline.time.marks import times
from headwater.pipeline.time.settings import TIME
from headwater.pipeline.windows.late import Lateness, Missed, lows, timed

__all__ = ["AT", "Arrivals", "Kept", "Timed", "check_stream", "within"]

AT = "_at"  # state column: a row's event time, microseconds


@dataclass(frozen=True)
class Timed:
    """Rows with their times, how many of each there are, and their identities once these are needed."""

    table: pa.Table
    at: Ints
    known_ids: Ids | None
    count: Ints

    @property
    def ids(self) -> Ids:
        return identities(self.table) if self.known_ids is None else self.known_ids

    def identified(self) -> Timed:
        return Timed(self.table, self.at, self.ids, self.count)

    def __len__(self) -> int:
        return len(self.at)

    def pick(self, chosen: npt.NDArray[np.bool_] | Ints) -> Timed:
        """Some of the rows, by mask or by number."""
        rows = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        ids = None if self.known_ids is None else self.known_ids[rows]
        return Timed(take(self.table, rows), self.at[rows], ids, self.count[rows])

    @staticmethod
    def joined(parts: Sequence[Timed]) -> Timed:
        some = [part for part in parts if len(part)] or list(parts[:1])
        if len(some) == 1:
            return some[0]
        table = pa.concat_tables([part.table for part in some]).combine_chunks()
        known = [part.known_ids for part in some if part.known_ids is not None]
        ids = np.concatenate(known) if len(known) == len(some) else None
        return Timed(
            table, np.concatenate([part.at for part in some]), ids, np.concatenate([part.count for part in some])
        )


def check_stream(schema: pa.Schema, where: str) -> None:
    """The input has event time, and its rows only come."""
    if TIME not in schema.names:
        raise DefinitionError(f'{where}: the rows have no event time; say event_time(df, "column", ...) first')
    if WEIGHT in schema.names:
        raise DefinitionError(f"{where}: the input is a changelog (it has {WEIGHT}); changelogs meet in tables(...)")


class Kept:
    """Rows of one side in the state: by key and time, or (`ordered`) by time and key."""

    def __init__(
        self, name: str, schema: pa.Schema, key: Sequence[str], extra: Sequence[Column] = (), *, ordered: bool = False
    ) -> None:
        self.name, self.key = name, tuple(key)
        fields = own_fields(schema)
        self.columns = [f.name for f in fields]
        keys, at = [Column(n, schema.field(n).type) for n in key], [Column(AT, pa.int64())]
        ids = [Column(n, pa.uint64()) for n in IDENTITY]
        values = [Column(COUNT, pa.int64(), 0), *extra, *(Column(f.name, f.type) for f in fields if f.name not in key)]
        self.spec = TableSpec.of(name, [*at, *keys, *ids] if ordered else [*keys, *at, *ids], values)

    def keys(self, rows: Timed) -> EncodedKeys:
        own = {name: rows.table[name] for name in self.key}
        return EncodedKeys(pa.table({**own, AT: rows.at, IDENTITY[0]: rows.ids[:, 0], IDENTITY[1]: rows.ids[:, 1]}))

    def put(self, state: State, rows: Timed, **extra: Ints) -> None:
        own = {name: rows.table[name] for name in self.columns}
        state[self.name].put(self.keys(rows), {COUNT: rows.count, **extra, **own})

    def delete(self, state: State, rows: Timed) -> None:
        state[self.name].delete(self.keys(rows))

    def read(self, rows: Rows) -> Timed:
        table = pa.table([rows[name] for name in self.columns], self.columns)
        return Timed(table, rows.numpy(AT).astype(np.int64), _ids(rows), rows.numpy(COUNT).astype(np.int64))


def _ids(rows: Rows) -> Ids:
    return np.stack([rows.numpy(name) for name in IDENTITY], axis=1).astype(np.uint64)


class Arrivals:
    """What a side's rows go through before they join."""

    def __init__(self, side: str, schema: pa.Schema, key: Sequence[str], lateness: Lateness, *, wait: bool) -> None:
        self._lateness = lateness
        self._columns = [f.name for f in own_fields(schema)]
        self._waiting = Kept(f"waiting_{side}", schema, key, ordered=True) if wait else None

    @property
    def state(self) -> list[TableSpec]:
        return [] if self._waiting is None else [self._waiting.spec]

    def take(self, state: State, table: pa.Table, time: Time, start: int = MIN_TIME) -> tuple[Timed, Timed]:
        """The rows whose turn it is, and the late ones for the side output. Before `start` it is nobody's turn."""
        rows = timed(table, state)
        at, low = times(rows, TIME), lows(rows, time)
        behind = at < low
        refused = at < low - self._lateness.kept
        numbers = np.flatnonzero(refused)
        self._lateness.note(state, rows, numbers, Missed(at[numbers], at[numbers]))
        every = self._timed(rows, at)
        late = every.pick(refused if self._lateness.sides else numbers[:0])
        if self._waiting is None:
            return every.pick(~refused) if len(numbers) else every, late
        corrections = every.pick(behind & ~refused)
        turn = time.low if time.low > start else MIN_TIME
        released = self._released(state, self._waiting, every.pick(~behind), turn)
        return Timed.joined([released, corrections]), late

    def _timed(self, rows: pa.Table, at: Ints) -> Timed:
        return Timed(rows.select(self._columns), at, None, np.ones(len(at), dtype=np.int64))

    def _released(self, state: State, waiting: Kept, rows: Timed, low: int) -> Timed:
        """The rows before `low`, those that waited and new ones; the others wait."""
        due = waiting.read(state[waiting.name].range(high=low))
        waiting.delete(state, due)
        later = rows.at >= low
        stay = alike(rows.pick(later))
        known = state[waiting.name].get(waiting.keys(stay)).numpy(COUNT)
        waiting.put(state, Timed(stay.table, stay.at, stay.ids, stay.count + known))
        return Timed.joined([due, rows.pick(~later)])


def alike(rows: Timed) -> Timed:
    """Equal rows at one time as one row that is there several times."""
    rows = rows.identified()
    mixed = rows.ids.copy()
    mixed[:, 0] ^= rows.at.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # the time is part of what must be equal
    firsts, counts = summed(mixed, rows.count)
    if len(firsts) == len(rows):
        return rows
    return Timed(take(rows.table, firsts), rows.at[firsts], rows.ids[firsts], counts)


def within(left: tuple[Ints, Ints], right: tuple[Ints, Ints], lower: int, upper: int) -> tuple[Ints, Ints]:
    """Numbers of all pairs with equal keys whose times differ (right less left) by `lower` to `upper`.

    `left` and `right`: the number of each row's key, and its time.
    """
    (key_l, at_l), (key_r, at_r) = left, right
    order = np.lexsort((at_r, key_r))
    moments, rank = np.unique(at_r, return_inverse=True)
    places = (key_r * (len(moments) + 1) + rank)[order]  # ascending: by key, then by time
    base = key_l * (len(moments) + 1)
    starts = np.searchsorted(places, base + np.searchsorted(moments, at_l + lower, "left"), "left")
    ends = np.searchsorted(places, base + np.searchsorted(moments, at_l + upper, "right"), "left")
    return spread(starts, ends, order)
