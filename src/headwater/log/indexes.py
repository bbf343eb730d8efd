"""Kafka's sparse indexes of a segment: `.index` (offset -> position) and `.timeindex` (timestamp -> offset).

    .index      entries of 8 bytes:  last offset of a batch - base offset (int32), position of the batch (int32)
    .timeindex  entries of 12 bytes: greatest timestamp so far (int64), its batch's last offset - base offset (int32)

Entries are ascending in both fields. New ones collect in memory and go to the file `TAIL_ENTRIES_MAX` at a time:
indexes are derived from the log, so a crash may lose them and recovery makes them again. Whoever follows an entry
checks what it finds there (see `positions`): a damaged index costs time, never truth.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from struct import Struct

from headwater.log.files import LogFile, write_all

__all__ = ["IndexCache", "OffsetIndex", "SparseIndex", "TimeIndex"]

TAIL_ENTRIES_MAX = 512  # entries held in memory for the active segment: 2 MiB of log, 4-6 KiB of memory
CACHE_BYTES_MAX = 32 << 20  # index content held in memory over all partitions: 16 GiB of log at the usual density


_log = logging.getLogger("headwater.log")


class IndexCache:
    """The saved part of lately used indexes, least recently used out first."""

    def __init__(self, limit: int = CACHE_BYTES_MAX) -> None:
        self._limit = limit
        self._bytes = 0
        self._entries: OrderedDict[int, bytes] = OrderedDict()

    def get(self, index: SparseIndex) -> bytes:
        """The content, at least as many entries as `index.saved`."""
        key = id(index)
        content = self._entries.get(key, b"")
        wanted = index.saved * index.ENTRY.size
        if len(content) >= wanted:
            if wanted:
                self._entries.move_to_end(key)
            return content
        self.drop(index)
        content = index.file.read(wanted, 0)
        self._entries[key] = content
        self._bytes += len(content)
        while self._bytes > self._limit and len(self._entries) > 1:
            self._bytes -= len(self._entries.popitem(last=False)[1])
        return content

    def drop(self, index: SparseIndex) -> None:
        content = self._entries.pop(id(index), None)
        if content is not None:
            self._bytes -= len(content)


class SparseIndex:
    """Ascending entries of two numbers, searched by the first."""

    ENTRY: Struct
    __slots__ = ("_cache", "_last", "_tail", "_tail_bytes_max", "count", "file", "saved")

    def __init__(self, file: LogFile, saved: int, cache: IndexCache) -> None:
        self.file = file
        self.saved = saved  # entries in the file
        self.count = saved  # entries in all
        self._cache = cache
        self._tail = bytearray()
        self._tail_bytes_max = TAIL_ENTRIES_MAX * self.ENTRY.size
        self._last: int | None = None

    def append(self, key: int, value: int) -> None:
        tail = self._tail
        tail += self.ENTRY.pack(key, value)
        self.count += 1
        self._last = key
        if len(tail) >= self._tail_bytes_max:
            try:
                self.save()
            except OSError as error:  # the entries stay in memory; each append tries again
                _log.warning("%s cannot be written: %s", self.file.path, error)

    @property
    def bytes(self) -> int:
        """In the file, when all is saved."""
        return self.count * self.ENTRY.size

    def forget_cached(self) -> None:
        self._cache.drop(self)

    def save(self) -> None:
        """Write what is only in memory (unsynced)."""
        if self._tail:
            write_all(self.file.filesystem, self.file.descriptor(), self._tail, self.saved * self.ENTRY.size)
            self.saved += len(self._tail) // self.ENTRY.size
            self._tail.clear()

    def entry(self, number: int) -> tuple[int, int]:
        size = self.ENTRY.size
        content, position = (
            (self._tail, (number - self.saved) * size)
            if number >= self.saved
            else (self._cache.get(self), number * size)
        )
        first, second = self.ENTRY.unpack_from(content, position)
        return first, second

    def last(self) -> tuple[int, int] | None:
        return self.entry(self.count - 1) if self.count else None

    def floor(self, key: int) -> tuple[int, int] | None:
        """The last entry whose first number is <= key."""
        number = self._bisect(key, 0) - 1
        return self.entry(number) if number >= 0 else None

    def floor_value(self, value: int) -> tuple[int, int] | None:
        """The last entry whose second number is <= value."""
        number = self._bisect(value, 1) - 1
        return self.entry(number) if number >= 0 else None

    def count_below(self, value: int, field: int) -> int:
        """How many entries have a field < value."""
        return self._bisect(value - 1, field)

    def _bisect(self, wanted: int, field: int) -> int:
        """How many entries have a field <= wanted."""
        size, unpack = self.ENTRY.size, self.ENTRY.unpack_from
        base, content, low, high = self.saved, self._tail, 0, len(self._tail) // self.ENTRY.size
        if self.saved and (not high or unpack(content, 0)[field] > wanted):
            base, content, low, high = 0, self._cache.get(self), 0, self.saved  # type: ignore[assignment]
        while low < high:
            middle = (low + high) // 2
            if unpack(content, middle * size)[field] <= wanted:
                low = middle + 1
            else:
                high = middle
        return base + low

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries, in the file too."""
        self._cache.drop(self)
        size = self.ENTRY.size
        del self._tail[max(0, count - self.saved) * size :]
        self.saved = min(self.saved, count)
        self.file.filesystem.truncate(self.file.descriptor(), self.saved * size)
        self.count = self.saved + len(self._tail) // size
        last = self.last()
        self._last = None if last is None else last[0]

    def drop_padding(self) -> None:
        """Forget the zeros that a running Kafka keeps behind its entries."""
        content = self.file.read(self.saved * self.ENTRY.size, 0)
        kept = len(content.rstrip(b"\0"))
        self.saved = self.count = min(self.saved, -(-kept // self.ENTRY.size))


class OffsetIndex(SparseIndex):
    ENTRY = Struct(">ii")
    __slots__ = ()


class TimeIndex(SparseIndex):
    ENTRY = Struct(">qi")
    __slots__ = ()

    def append_if_later(self, timestamp: int, relative_offset: int) -> None:
        last = self._last
        if last is None:
            found = self.last()
            last = self._last = -1 if found is None else found[0]
        if timestamp > last:
            self.append(timestamp, relative_offset)
