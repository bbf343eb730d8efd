"""What all partitions of a data directory share."""

from __future__ import annotations

from headwater.clock import Clock
from headwater.filesystem import Filesystem
from headwater.log.files import OpenFiles
from headwater.log.indexes import IndexCache

__all__ = ["Context"]


class Context:
    """The disk, the time, the open files, the indexes in memory."""

    __slots__ = ("cache", "clock", "files", "filesystem")

    def __init__(self, filesystem: Filesystem, clock: Clock, open_files_max: int | None = None) -> None:
        self.filesystem = filesystem
        self.clock = clock
        self.files = OpenFiles(filesystem, open_files_max)
        self.cache = IndexCache()
