"""The versions of a table's rows in the state, and which of them held at a time.

    versions   (key, from, turn, lives, identity) -> the row       a version holds until the next one of its key
    stale      (when, key)                                         what is due to be forgotten, if anything is

A version holds from its own time on. Of several with one time the one with the greatest offset holds; without offsets
a row rather than its absence (a changelog says both at once), then the greatest identity: so which version holds at a
time is a function of the versions, not of the order in which they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.changelogs.rows import IDENTITY, Ids, Ints, gone, identities, own_fields, take
from headwater.pipeline.columns import OFFSET
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.operator import MIN_TIME
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import EncodedKeys, Rows, State

__all__ = ["NONE", "History", "Versions", "version_ids"]

FROM, TURN, LIVES = "_from", "_turn", "_lives"
NONE = -1  # in the place of a version's number: none held
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd: multiplication by it is a bijection of the 64-bit numbers


@dataclass(frozen=True)
class Versions:
    """Versions as columns; `of`: the number of each one's key."""

    table: pa.Table
    at: Ints
    turn: Ints
    lives: npt.NDArray[np.bool_]
    ids: Ids
    of: Ints

    def __len__(self) -> int:
        return len(self.at)

    def pick(self, chosen: npt.NDArray[np.bool_] | Ints) -> Versions:
        rows = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        own = (self.at[rows], self.turn[rows], self.lives[rows], self.ids[rows], self.of[rows])
        return Versions(take(self.table, rows), *own)

    def and_(self, other: Versions) -> Versions:
        if not len(self) or not len(other):
            return self if len(self) else other
        pairs = [(getattr(self, n), getattr(other, n)) for n in ("at", "turn", "lives", "ids", "of")]
        table = pa.concat_tables([self.table, other.table]).combine_chunks()
        return Versions(table, *(np.concatenate(pair) for pair in pairs))

    def in_order(self) -> Versions:
        """By key, then as they follow each other; equal ones once."""
        order = np.lexsort((self.ids[:, 1], self.ids[:, 0], self.lives, self.turn, self.at, self.of))
        same = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
        for column in (self.of, self.at, self.turn, self.lives, self.ids[:, 0], self.ids[:, 1]):
            same &= column[order][1:] == column[order][:-1]
        return self.pick(order[np.concatenate([[True], ~same])] if len(order) else order)

    def held(self, of: Ints, at: Ints) -> Ints:
        """For keys and times the number of the version that held, or NONE. The versions are in order."""
        moments, rank = np.unique(self.at, return_inverse=True)
        places = self.of * (len(moments) + 1) + rank
        last = np.searchsorted(places, of * (len(moments) + 1) + np.searchsorted(moments, at, "right"), "left") - 1
        found = (last >= 0) & (len(self) > 0)
        if not len(self):
            return np.full(len(of), NONE)
        found &= (self.of[last] == of) & self.lives[last]
        return np.where(found, last, NONE)


def version_ids(versions: Versions) -> pa.Array:
    """A name for every version: 16 hexadecimal digits that follow from its row and its time."""
    mixed = versions.ids[:, 0] ^ (versions.at.astype(np.uint64) * _SPREAD)
    return pa.array([f"{one:016x}" for one in mixed.tolist()], pa.string())


class History:
    """The versions of one table. `kept`: how long a version that was followed by another is kept, microseconds;
    None keeps all."""

    def __init__(self, schema: pa.Schema, key: Sequence[str], kept: int | None) -> None:
        self.key, self._kept = tuple(key), kept
        fields = own_fields(schema)
        self.columns = [f.name for f in fields]
        keys = [Column(n, schema.field(n).type) for n in key]
        order = [Column(FROM, pa.int64()), Column(TURN, pa.int64()), Column(LIVES, pa.bool_())]
        ids = [Column(n, pa.uint64()) for n in IDENTITY]
        rest = [Column(f.name, f.type) for f in fields if f.name not in key]
        versions = TableSpec.of("versions", [*keys, *order, *ids], rest)
        stale = TableSpec.of("stale", [Column(FROM, pa.int64()), *keys], [])
        self.state = [versions] if kept is None else [versions, stale]

    def arrived(self, rows: pa.Table, at: Ints, of: Ints) -> Versions:
        """A batch's rows as versions."""
        own = rows.select(self.columns)
        turn = np.zeros(len(at), dtype=np.int64)
        if OFFSET in rows.column_names:
            turn = as_array(rows[OFFSET], pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return Versions(own, at, turn, ~gone(rows, self.key), identities(own), of).in_order()

    def around(self, state: State, keys: pa.Table, chosen: Ints, first: Ints, last: Ints) -> Versions:
        """For the keys numbered `chosen`: the version that held at `first`, and all from there up to `last`."""
        asked = take(keys, chosen).rename_columns(list(self.key))
        table = state["versions"]
        base = table.scan(asked, list(self.key), None, first + 1, reverse=True, limit=1)
        some = first < last
        if not some.any():
            return self._read(base, chosen).in_order()
        later = table.scan(take(asked, np.flatnonzero(some)), list(self.key), first[some] + 1, last[some] + 1)
        return self._read(base, chosen).and_(self._read(later, chosen[some])).in_order()

    def put(self, state: State, new: Versions, low: int) -> None:
        """Keep versions; those that nobody will ask for any more, as a later one holds by now, are left out."""
        if self._kept is not None:
            new = new.pick(~_superseded(new, low - self._kept))
            late = pa.table({FROM: new.at + self._kept, **{n: new.table[n] for n in self.key}})
            state["stale"].put(late, {})
        state["versions"].put(self._keys(new), {n: new.table[n] for n in self.columns})

    def forget(self, state: State, low: int) -> None:
        """Drop what held only before `low` less what is kept."""
        if self._kept is None:
            return
        due = state["stale"].range(high=low)
        if not len(due):
            return
        state["stale"].delete(due.columns)
        keys = pa.table([due[name] for name in self.key], list(self.key))
        rows = state["versions"].scan(keys, list(self.key), None, due.numpy(FROM) - self._kept + 1)
        old = self._read(rows, np.arange(len(due))).in_order()
        last = np.ones(len(old), dtype=np.bool_)
        last[:-1] = old.of[1:] != old.of[:-1]
        state["versions"].delete(self._keys(old.pick(~last | ~old.lives)))

    def _read(self, rows: Rows, of: Ints) -> Versions:
        table = pa.table([rows[name] for name in self.columns], self.columns)
        ids = np.stack([rows.numpy(name) for name in IDENTITY], axis=1).astype(np.uint64)
        lives = rows.numpy(LIVES).astype(np.bool_)
        return Versions(table, rows.numpy(FROM), rows.numpy(TURN), lives, ids, of[rows.source])

    def _keys(self, versions: Versions) -> EncodedKeys:
        own = {name: versions.table[name] for name in self.key}
        ids = {name: versions.ids[:, i] for i, name in enumerate(IDENTITY)}
        order = {FROM: versions.at, TURN: versions.turn, LIVES: versions.lives}
        return EncodedKeys(pa.table({**own, **order, **ids}))


def _superseded(versions: Versions, low: int) -> npt.NDArray[np.bool_]:
    """Versions in order: which are followed by another of their key at or before `low`."""
    over = np.zeros(len(versions), dtype=np.bool_)
    if low > MIN_TIME and len(versions) > 1:
        over[:-1] = (versions.of[1:] == versions.of[:-1]) & (versions.at[1:] < low)
    return over
