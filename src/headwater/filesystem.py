"""The disk as a dependency: what the log asks of a filesystem, and the real one.

Tests put filesystems in its place that forget what was not synced, tear writes, run full or fail. File descriptors are
plain integers, so that the real one adds nothing to a system call: its hot operations *are* the functions of `os`.

Two rules of disks that callers must know: bytes written are durable only after `datasync` of the file, and a name
(created, renamed, removed) only after `sync_directory` of the folder that holds it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.errors import EnvironmentFailed

__all__ = ["Buffer", "DirectoryInUse", "Entry", "Filesystem", "SystemFilesystem"]

Buffer = bytes | bytearray | memoryview


class DirectoryInUse(EnvironmentFailed):
    """Another process holds the lock of a data directory."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder; `size` is 0 for folders."""

    name: str
    size: int
    is_directory: bool


class Filesystem(Protocol):
    """Every operation raises OSError as the system call does."""

    def open(self, path: str, *, create: bool = False) -> int:
        """A descriptor for reading and writing; `create` makes the file when it is missing."""
        ...

    def close(self, fd: int) -> None: ...

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int, /) -> int:
        """Write the buffers one after another at `position`; the number of bytes written, which may be fewer than
        given.
        """
        ...

    def pread(self, fd: int, length: int, position: int, /) -> bytes: ...

    def truncate(self, fd: int, size: int) -> None: ...

    def size(self, fd: int) -> int: ...

    def datasync(self, fd: int) -> None:
        """Returns when the file's bytes and size are durable. After an error nothing is known about what is."""
        ...

    def sync_filesystem(self, fd: int) -> None:
        """Returns when everything written to the filesystem that holds `fd` is durable, names included."""
        ...

    def sync_directory(self, path: str) -> None:
        """Returns when the names in this folder are durable."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; an existing `new` is replaced."""
        ...

    def remove(self, path: str) -> None: ...

    def make_directory(self, path: str) -> None:
        """Parents too; no error when it exists."""
        ...

    def remove_directory(self, path: str) -> None: ...

    def scan(self, path: str) -> list[Entry]:
        """What is in a folder, in no particular order."""
        ...

    def exists(self, path: str) -> bool: ...

    def lock(self, path: str) -> int:
        """Take the lock file or raise DirectoryInUse; closing the descriptor releases it."""
        ...


class SystemFilesystem:
    """The machine's."""

    pwritev = staticmethod(os.pwritev)
    pread = staticmethod(os.pread)
    close = staticmethod(os.close)
    datasync = staticmethod(os.fdatasync)
    truncate = staticmethod(os.ftruncate)
    rename = staticmethod(os.replace)
    remove = staticmethod(os.unlink)
    remove_directory = staticmethod(os.rmdir)
    exists = staticmethod(os.path.exists)

    def __init__(self) -> None:
        self._syncfs = ctypes.CDLL(None, use_errno=True).syncfs

    def open(self, path: str, *, create: bool = False) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def sync_filesystem(self, fd: int) -> None:
        if self._syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def scan(self, path: str) -> list[Entry]:
        with os.scandir(path) as found:
            return [_entry(item) for item in found]

    def lock(self, path: str) -> int:
        fd = self.open(path, create=True)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the lock that a Kafka broker takes
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the one that also holds within a process
        except OSError as error:
            os.close(fd)
            raise DirectoryInUse(
                f"{os.path.dirname(path)} is in use by another broker; stop it or give another data directory"
            ) from error
        return fd


def _entry(item: os.DirEntry[str]) -> Entry:
    is_directory = item.is_dir(follow_symlinks=False)
    return Entry(item.name, 0 if is_directory else item.stat().st_size, is_directory)
