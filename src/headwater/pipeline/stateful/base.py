"""What a version of a state is read from: ordered bytes by table, never changed while a step reads it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

__all__ = ["Base", "Change", "Changes", "Found", "MemoryBase", "Ranges", "Undone", "bounded"]

Change = tuple[bytes, bytes | None, bytes | None]
"""A key with its value before and after; None is "absent"."""

Changes = Mapping[str, Sequence[Change]]
"""Table -> changes sorted by key."""


Ranges = Iterable[tuple[bytes, bytes]]
"""Pairs (low, high)."""

Found = tuple[list[tuple[bytes, bytes]], list[int]]
"""The pairs of all ranges, range after range, and how many each has."""


class Base(Protocol):
    def get(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, None where there is none."""
        ...

    def scan(self, table: str, low: bytes, high: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """The pairs with low <= key < high in order; an empty `high` means to the end."""
        ...

    def scan_each(self, table: str, ranges: Ranges, reverse: bool, limit: int | None) -> Found:
        """`scan` for each range, at most `limit` pairs of each."""
        ...


def one_by_one(base: Base, table: str, ranges: Ranges, reverse: bool, limit: int | None) -> Found:
    """`scan_each` by `scan`."""
    pairs: list[tuple[bytes, bytes]] = []
    counts = []
    for low, high in ranges:
        before = len(pairs)
        pairs.extend(islice(base.scan(table, low, high, reverse), limit))
        counts.append(len(pairs) - before)
    return pairs, counts


class MemoryBase:
    """A state in memory, for tests, for batch queries, and for version 0."""

    def __init__(self) -> None:
        self._values: dict[str, dict[bytes, bytes]] = {}
        self._order: dict[str, list[bytes]] = {}

    def get(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        values = self._values.get(table, {})
        return [values.get(key) for key in keys]

    def scan(self, table: str, low: bytes, high: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        values = self._values.get(table, {})
        for key in bounded(self._order.get(table, []), low, high, reverse):
            yield key, values[key]

    def scan_each(self, table: str, ranges: Ranges, reverse: bool, limit: int | None) -> Found:
        return one_by_one(self, table, ranges, reverse, limit)

    def apply(self, changes: Changes) -> None:
        for table, entries in changes.items():
            values, order = self._values.setdefault(table, {}), self._order.setdefault(table, [])
            for key, _, after in entries:
                if after is None:
                    if values.pop(key, None) is not None:
                        del order[bisect_left(order, key)]
                else:
                    if key not in values:
                        insort(order, key)
                    values[key] = after

    def count(self, table: str) -> int:
        return len(self._values.get(table, {}))


def bounded(order: Sequence[bytes], low: bytes, high: bytes, reverse: bool) -> Iterator[bytes]:
    """The keys of a sorted sequence with low <= key < high."""
    start = bisect_left(order, low)
    end = bisect_left(order, high) if high else len(order)
    positions = range(end - 1, start - 1, -1) if reverse else range(start, end)
    return (order[position] for position in positions)


class Undone:
    """A base seen as it was before some changes: how a batch that is run again reads the version it read before."""

    def __init__(self, base: Base, before: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        self._base, self._before = base, before
        self._order = {table: sorted(values) for table, values in before.items()}

    def get(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        before = self._before.get(table)
        values = self._base.get(table, keys)
        if not before:
            return values
        return [before.get(key, value) for key, value in zip(keys, values, strict=True)]

    def scan(self, table: str, low: bytes, high: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        below = self._base.scan(table, low, high, reverse)
        return merged(
            below, self._before.get(table, {}), bounded(self._order.get(table, []), low, high, reverse), reverse
        )

    def scan_each(self, table: str, ranges: Ranges, reverse: bool, limit: int | None) -> Found:
        return one_by_one(self, table, ranges, reverse, limit)


def merged(
    below: Iterator[tuple[bytes, bytes]],
    over: Mapping[bytes, bytes | None],
    above: Iterator[bytes],
    reverse: bool = False,
) -> Iterator[tuple[bytes, bytes]]:
    """Ordered pairs with others laid upon them: `above` has the keys of `over` in the same order, None hides one."""
    under, top = next(below, None), next(above, None)
    while under is not None or top is not None:
        if top is None or (under is not None and _first(under[0], top, reverse)):
            assert under is not None
            yield under
            under = next(below, None)
            continue
        if under is not None and under[0] == top:
            under = next(below, None)
        value = over[top]
        if value is not None:
            yield top, value
        top = next(above, None)


def _first(left: bytes, right: bytes, reverse: bool) -> bool:
    return left > right if reverse else left < right
