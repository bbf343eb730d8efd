"""The `.txnindex` of a segment: the aborted transactions whose marker is in it.

entries of 34 bytes: version 0 (int16), producer id, first offset, last offset (the marker's), last stable offset when
it was written (int64 each); ascending by last offset
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from headwater.log.files import LogFile, write_all

__all__ = ["AbortedIndex", "AbortedTransaction"]

_ENTRY = Struct(">hqqqq")
VERSION = 0


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encoded(self) -> bytes:
        return _ENTRY.pack(VERSION, self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset)


class AbortedIndex:
    """Read from the file when asked; most segments have none, and then there is no file."""

    ENTRY_SIZE = _ENTRY.size
    __slots__ = ("count", "file")

    def __init__(self, file: LogFile, size: int) -> None:
        self.file = file
        self.count = size // self.ENTRY_SIZE

    @property
    def bytes(self) -> int:
        """In the file."""
        return self.count * self.ENTRY_SIZE

    def append(self, entry: AbortedTransaction) -> None:
        write_all(self.file.filesystem, self.file.descriptor(), entry.encoded(), self.count * self.ENTRY_SIZE)
        self.count += 1

    def ending_from(self, offset: int) -> Iterator[AbortedTransaction]:
        """Those whose marker is at or after an offset, in order; what is before is not looked at."""
        if not self.count:
            return
        content = self.file.read(self.count * self.ENTRY_SIZE, 0)
        low, high = 0, len(content) // self.ENTRY_SIZE
        while low < high:
            middle = (low + high) // 2
            if _ENTRY.unpack_from(content, middle * self.ENTRY_SIZE)[3] < offset:
                low = middle + 1
            else:
                high = middle
        for position in range(low * self.ENTRY_SIZE, len(content) - self.ENTRY_SIZE + 1, self.ENTRY_SIZE):
            yield AbortedTransaction(*_ENTRY.unpack_from(content, position)[1:])

    def entries(self) -> list[AbortedTransaction]:
        if not self.count:
            return []
        content = self.file.read(self.count * self.ENTRY_SIZE, 0)
        whole = content[: len(content) // self.ENTRY_SIZE * self.ENTRY_SIZE]
        return [AbortedTransaction(*fields) for _, *fields in _ENTRY.iter_unpack(whole)]

    def truncate(self, offset: int) -> None:
        """Forget the transactions that ended at or after `offset`."""
        kept = sum(entry.last_offset < offset for entry in self.entries())
        if kept < self.count:
            self.count = kept
            self.file.filesystem.truncate(self.file.descriptor(), kept * self.ENTRY_SIZE)
