"""Files of the log that are open only while they are used: a bounded number of descriptors for any number of
partitions.

A `LogFile` opens itself when its descriptor is asked for; `OpenFiles` closes those that were not used lately. A file
with unsynced bytes is pinned: closing it could lose the error of a failed write-back. A retired file (its segment was
deleted or replaced) keeps its open descriptor until nobody holds the object, so that a slow reader finishes what it
began.
"""

from __future__ import annotations

import contextlib
import resource
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.filesystem import Filesystem

__all__ = ["LogFile", "OpenFiles", "read_whole", "write_all", "write_whole"]

OPEN_FILES_MAX = 4096  # descriptors of segments kept open: one for each partition in use is the fast case
OPEN_FILES_SHARE = 2  # never more than this part (1/n) of the process's limit: sockets need the rest


class LogFile:
    """A file by path, with a descriptor when it has lately been used."""

    __slots__ = ("fd", "open_files", "path", "pins", "retired", "used")

    def __init__(self, open_files: OpenFiles, path: str) -> None:
        self.open_files = open_files
        self.path = path
        self.fd = -1
        self.pins = 0
        self.used = False
        self.retired = False

    @property
    def filesystem(self) -> Filesystem:
        return self.open_files.filesystem

    def descriptor(self) -> int:
        """The descriptor, opened (and the file created) if need be."""
        self.used = True
        return self.fd if self.fd >= 0 else self.open_files.open(self)

    def read(self, length: int, position: int) -> bytes:
        return self.open_files.filesystem.pread(self.descriptor(), length, position)

    def retire(self) -> None:
        self.retired = True

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self.open_files.closed(fd)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at interpreter exit the parts may be gone already
            self.close()


class OpenFiles:
    """Second-chance eviction: cheap to use (one flag), good enough to keep busy files open."""

    def __init__(self, filesystem: Filesystem, limit: int | None = None) -> None:
        self.filesystem = filesystem
        self.limit = limit or min(OPEN_FILES_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // OPEN_FILES_SHARE)
        self.count = 0
        self._queue: deque[LogFile] = deque()

    def open(self, file: LogFile) -> int:
        if self.count >= self.limit:
            self._evict()
        file.fd = self.filesystem.open(file.path, create=not file.retired)
        self.count += 1
        self._queue.append(file)
        return file.fd

    def closed(self, fd: int) -> None:
        self.count -= 1
        self.filesystem.close(fd)

    def _evict(self) -> None:
        """Close one that is neither pinned nor used since it was last looked at; the queue forgets closed ones."""
        for _ in range(2 * len(self._queue)):
            file = self._queue.popleft()
            if file.fd < 0 or file.retired:
                continue
            if not file.pins and not file.used:
                file.close()
                return
            file.used = False
            self._queue.append(file)


def write_whole(filesystem: Filesystem, path: str, content: bytes, *, durable: bool = True) -> None:
    """Replace a small file at once: readers, also those after a crash, see the old content or the new."""
    temporary = path + ".tmp"
    fd = filesystem.open(temporary, create=True)
    try:
        filesystem.truncate(fd, 0)
        write_all(filesystem, fd, content, 0)
        if durable:
            filesystem.datasync(fd)
    finally:
        filesystem.close(fd)
    filesystem.rename(temporary, path)
    if durable:
        filesystem.sync_directory(path.rpartition("/")[0])


def write_all(filesystem: Filesystem, fd: int, content: bytes | bytearray, position: int) -> None:
    rest = memoryview(content)
    while rest:
        written = filesystem.pwritev(fd, [rest], position)
        position += written
        rest = rest[written:]


def read_whole(filesystem: Filesystem, path: str) -> bytes:
    fd = filesystem.open(path)
    try:
        return filesystem.pread(fd, filesystem.size(fd), 0)
    finally:
        filesystem.close(fd)
