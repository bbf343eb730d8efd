"""A disk in memory that behaves as badly as disks may: it forgets what was not synced, tears writes, runs full, fails.

What a process wrote is volatile until `datasync` of the file; a name (created, renamed, removed) is volatile until
`sync_directory` of its folder. `lose_power` keeps the durable part and an arbitrary selection of the rest: of each
file's unsynced writes any subset, the last one perhaps torn; of each folder's unsynced changes the first few.
`kill_at` ends the process at a chosen operation: from then on everything raises `Killed`.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence

from headwater.filesystem import Buffer, DirectoryInUse, Entry

__all__ = ["Killed", "MemoryDisk"]

SECTOR_BYTES = 512  # what a disk writes whole


class Killed(BaseException):
    """The process has ended here. Not an Exception: nothing may handle it."""


class File:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.unsynced: list[Callable[[bytearray], None]] = []

    def apply(self, change: Callable[[bytearray], None]) -> None:
        change(self.data)
        self.unsynced.append(change)

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.unsynced.clear()

    def lose(self, rng: random.Random, keep: float) -> None:
        data = bytearray(self.durable)
        for change in self.unsynced:
            if rng.random() < keep:
                change(data)
        self.data, self.durable = data, bytes(data)
        self.unsynced.clear()


class Folder:
    def __init__(self) -> None:
        self.names: dict[str, File | Folder] = {}
        self.durable: dict[str, File | Folder] = {}
        self.unsynced: list[Callable[[dict[str, File | Folder]], object]] = []

    def apply(self, change: Callable[[dict[str, File | Folder]], object]) -> None:
        change(self.names)
        self.unsynced.append(change)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.unsynced.clear()

    def lose(self, rng: random.Random, keep: float) -> None:
        for change in self.unsynced:
            if rng.random() >= keep:
                break
            change(self.durable)
        self.names = dict(self.durable)
        self.unsynced.clear()
        for node in self.names.values():
            node.lose(rng, keep)


class MemoryDisk:
    """Implements headwater.filesystem.Filesystem. Paths are absolute; `/` exists."""

    def __init__(self) -> None:
        self.root = Folder()
        self.operations = 0  # that changed something, in this process
        self.kill_at: int | None = None
        self.capacity: int | None = None  # bytes in all files
        self.fails: Callable[[str, str], OSError | None] = lambda operation, path: None
        self.bytes_read: dict[str, int] = {}
        self._open: dict[int, tuple[File, str]] = {}
        self._locked: set[int] = set()
        self._next_fd = 1000

    # -- faults

    def restart_process(self) -> None:
        """Everything the process held is gone; what it wrote is there, synced or not."""
        self._open.clear()
        self._locked.clear()
        self.operations, self.kill_at = 0, None
        self.bytes_read.clear()

    def lose_power(self, rng: random.Random, keep: float = 0.5) -> None:
        self.restart_process()
        self.root.lose(rng, keep)

    def _changes(self, operation: str, path: str) -> None:
        if self.kill_at is not None and self.operations >= self.kill_at:
            raise Killed(f"{operation} {path}")
        self.operations += 1
        self._may_fail(operation, path)

    def _may_fail(self, operation: str, path: str) -> None:
        error = self.fails(operation, path)
        if error is not None:
            raise error

    # -- paths

    def _folder(self, path: str) -> Folder:
        folder = self.root
        for name in path.strip("/").split("/"):
            if not name:
                continue
            found = folder.names.get(name)
            if not isinstance(found, Folder):
                raise FileNotFoundError(errno.ENOENT, "no such folder", path)
            folder = found
        return folder

    def _parent(self, path: str) -> tuple[Folder, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self._folder(parent), name

    def file(self, path: str) -> File:
        folder, name = self._parent(path)
        found = folder.names.get(name)
        if not isinstance(found, File):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return found

    def used(self) -> int:
        def of(node: File | Folder) -> int:
            return len(node.data) if isinstance(node, File) else sum(map(of, node.names.values()))

        return of(self.root)

    # -- Filesystem

    def open(self, path: str, *, create: bool = False) -> int:
        folder, name = self._parent(path)
        found = folder.names.get(name)
        if found is None and create:
            self._changes("open", path)
            found = File()
            new = found
            folder.apply(lambda names: names.__setitem__(name, new))
        if not isinstance(found, File):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._next_fd += 1
        self._open[self._next_fd] = found, path
        return self._next_fd

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)
        self._locked.discard(fd)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int, /) -> int:
        file, path = self._open[fd]
        content = b"".join(buffers)
        if self.capacity is not None:
            room = self.capacity - self.used() + max(0, len(file.data) - position)
            if room <= 0 < len(content):
                raise OSError(errno.ENOSPC, "No space left on device", path)
            content = content[: max(room, 0)]
        if self.kill_at == self.operations:  # ends in the middle of the write
            torn = content[: len(content) // 2]
            file.apply(lambda data: _write(data, torn, position))
        self._changes("pwritev", path)
        for start in range(0, len(content), SECTOR_BYTES * 8):
            part, at = content[start : start + SECTOR_BYTES * 8], position + start
            file.apply(lambda data, part=part, at=at: _write(data, part, at))  # type: ignore[misc]
        return len(content)

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        file, path = self._open[fd]
        self._may_fail("pread", path)
        content = bytes(file.data[position : position + length])
        self.bytes_read[path] = self.bytes_read.get(path, 0) + len(content)
        return content

    def truncate(self, fd: int, size: int) -> None:
        file, path = self._open[fd]
        self._changes("truncate", path)
        file.apply(lambda data: _resize(data, size))

    def size(self, fd: int) -> int:
        return len(self._open[fd][0].data)

    def datasync(self, fd: int) -> None:
        file, path = self._open[fd]
        self._changes("datasync", path)
        file.sync()

    def sync_filesystem(self, fd: int) -> None:
        self._changes("syncfs", self._open[fd][1])

        def sync(node: File | Folder) -> None:
            node.sync()
            if isinstance(node, Folder):
                for child in node.names.values():
                    sync(child)

        sync(self.root)

    def sync_directory(self, path: str) -> None:
        self._changes("sync_directory", path)
        self._folder(path).sync()

    def rename(self, old: str, new: str) -> None:
        folder, name = self._parent(old)
        target, new_name = self._parent(new)
        assert folder is target, "renaming between folders is not modelled"
        if name not in folder.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self._changes("rename", old)

        def change(names: dict[str, File | Folder]) -> None:
            if name in names:
                names[new_name] = names.pop(name)

        folder.apply(change)

    def remove(self, path: str) -> None:
        folder, name = self._parent(path)
        if not isinstance(folder.names.get(name), File):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._changes("remove", path)
        folder.apply(lambda names: names.pop(name, None))

    def make_directory(self, path: str) -> None:
        folder = self.root
        for name in path.strip("/").split("/"):
            if name not in folder.names:
                self._changes("mkdir", path)
                new = Folder()
                folder.apply(lambda names, name=name, new=new: names.__setitem__(name, new))  # type: ignore[misc]
            found = folder.names[name]
            assert isinstance(found, Folder)
            folder = found

    def remove_directory(self, path: str) -> None:
        folder, name = self._parent(path)
        found = folder.names.get(name)
        if not isinstance(found, Folder) or found.names:
            raise OSError(errno.ENOTEMPTY, "not an empty folder", path)
        self._changes("rmdir", path)
        folder.apply(lambda names: names.pop(name, None))

    def scan(self, path: str) -> list[Entry]:
        return [
            Entry(name, len(node.data) if isinstance(node, File) else 0, isinstance(node, Folder))
            for name, node in self._folder(path).names.items()
        ]

    def exists(self, path: str) -> bool:
        try:
            folder, name = self._parent(path)
        except FileNotFoundError:
            return False
        return name in folder.names

    def lock(self, path: str) -> int:
        fd = self.open(path, create=True)
        if any(self._open[other][1] == path for other in self._locked if other in self._open):
            self.close(fd)
            raise DirectoryInUse(path)
        self._locked.add(fd)
        return fd


def _write(data: bytearray, content: bytes, position: int) -> None:
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    data[position : position + len(content)] = content


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))
