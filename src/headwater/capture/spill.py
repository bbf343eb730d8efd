"""Where transactions wait for their commit: in memory up to a bound, in files beyond it.

A file is thrown away with the process: what has not been committed is sent again by the database. It holds

    entry     length 4 (of data), lsn 8, xid 4, data        big-endian, one after the other
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import BinaryIO

from headwater.errors import EnvironmentFailed

__all__ = ["SpillStore", "Spilled"]

MEMORY_BYTES_MAX = 64 << 20  # of waiting transactions together: a tenth of what a JVM needs to start
READ_BYTES = 1 << 20  # read back in pieces: large enough for the disk, small beside the memory bound
ENTRY_OVERHEAD_BYTES = 120  # what Python's objects for one entry take beside its data

_HEAD = Struct(">IQI")


class SpillStore:
    """All waiting transactions of one connection; they share the bound on memory."""

    def __init__(self, folder: Path | None = None, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self._parent = folder
        self._folder: Path | None = None
        self._memory_bytes_max = memory_bytes_max
        self._open: dict[int, Spilled] = {}
        self._next = 0
        self.memory_bytes = 0

    def open(self) -> Spilled:
        self._next += 1
        spilled = self._open[self._next] = Spilled(self, self._next)
        return spilled

    def clear(self) -> None:
        """Throw away everything that waits, in memory and on disk."""
        for spilled in list(self._open.values()):
            spilled.discard()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def grow(self, size: int) -> None:
        self.memory_bytes += size
        while self.memory_bytes > self._memory_bytes_max:
            max(self._open.values(), key=lambda waiting: waiting.memory_bytes).to_disk()

    def shrink(self, size: int) -> None:
        self.memory_bytes -= size

    def forget(self, number: int) -> None:
        self._open.pop(number, None)

    def file(self, number: int) -> Path:
        if self._folder is None:
            if self._parent is not None:
                self._parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="headwater-capture-", dir=self._parent))
        return self._folder / f"{number}.spill"


class Spilled:
    """The messages of one transaction that has not committed yet, in order."""

    def __init__(self, store: SpillStore, number: int) -> None:
        self._store = store
        self._number = number
        self._entries: list[tuple[int, int, bytes]] = []  # (xid, lsn, data), after what is in the file
        self._file: BinaryIO | None = None
        self._path: Path | None = None
        self._dropped: set[int] = set()
        self.memory_bytes = 0

    def append(self, xid: int, lsn: int, data: bytes) -> None:
        self._entries.append((xid, lsn, data))
        size = len(data) + ENTRY_OVERHEAD_BYTES
        self.memory_bytes += size
        self._store.grow(size)

    def drop(self, xid: int) -> None:
        """Leave this aborted subtransaction out of the replay."""
        self._dropped.add(xid)

    def replay(self) -> Iterator[tuple[int, bytes]]:
        """(lsn, data) of everything that was not dropped."""
        dropped = self._dropped
        if self._file is not None:
            self._file.seek(0)
            for xid, lsn, data in _entries(self._file):
                if xid not in dropped:
                    yield lsn, data
        for xid, lsn, data in self._entries:
            if xid not in dropped:
                yield lsn, data

    def to_disk(self) -> None:
        try:
            if self._file is None:
                self._path = self._store.file(self._number)
                self._file = self._path.open("w+b")
            for xid, lsn, data in self._entries:
                self._file.write(_HEAD.pack(len(data), lsn, xid))
                self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise EnvironmentFailed(
                f"cannot keep a running transaction at {self._path}: {error}; "
                "free some space there or point TMPDIR to a larger disk"
            ) from error
        self._entries.clear()
        self._store.shrink(self.memory_bytes)
        self.memory_bytes = 0

    def discard(self) -> None:
        self._entries.clear()
        self._store.shrink(self.memory_bytes)
        self.memory_bytes = 0
        if self._file is not None and self._path is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)
            self._file = None
        self._store.forget(self._number)


def _entries(file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    rest = b""
    while piece := file.read(READ_BYTES):
        data, at = rest + piece, 0
        while len(data) - at >= _HEAD.size:
            size, lsn, xid = _HEAD.unpack_from(data, at)
            end = at + _HEAD.size + size
            if end > len(data):
                break
            yield xid, lsn, data[at + _HEAD.size : end]
            at = end
        rest = data[at:]
