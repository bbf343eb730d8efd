"""How much of a log is on the disk, and what must be synced for the rest.

The owner's thread writes and moves the durable offset; a sync thread only reads, in an order that is safe beside an
append: first the log end, then the files. Every byte below that end is then in one of these files, because a file is
listed before it is written to.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.filesystem import Filesystem
from headwater.log.files import LogFile

__all__ = ["Durability", "SyncJob"]


class SyncJob(NamedTuple):
    """What makes every offset below `upto` durable."""

    upto: int
    files: tuple[LogFile, ...]
    folder: str | None  # to be synced too: a segment was added since
    folder_version: int

    def run(self, filesystem: Filesystem) -> None:
        for file in self.files:
            filesystem.datasync(file.fd)
        if self.folder is not None:
            filesystem.sync_directory(self.folder)


class Durability:
    """Of one log."""

    __slots__ = ("_files", "_folder", "_folder_synced", "_folder_version", "dirty_since_ms", "end", "offset")

    def __init__(self, folder: str, offset: int) -> None:
        self.offset = offset  # everything below is on the disk
        self.end = offset  # everything below is written
        self.dirty_since_ms = 0  # when the first write came that is not synced
        self._files: list[LogFile] = []  # with unsynced bytes, in the order of their segments; pinned
        self._folder = folder
        self._folder_version = 0
        self._folder_synced = 0

    def writing(self, file: LogFile, now_ms: int) -> None:
        """Before a write to a file."""
        if not self._files:
            self.dirty_since_ms = now_ms
        if not self._files or self._files[-1] is not file:
            file.pins += 1
            self._files.append(file)

    def folder_changed(self) -> None:
        self._folder_version += 1

    def job(self) -> SyncJob:
        """Called on any thread."""
        upto = self.end
        version = self._folder_version
        files = tuple(self._files)
        return SyncJob(upto, files, self._folder if version != self._folder_synced else None, version)

    def done(self, job: SyncJob) -> None:
        """The job has been run without an error. Files that a later write may have touched stay listed."""
        self._folder_synced = max(self._folder_synced, job.folder_version)
        self.offset = max(self.offset, job.upto)
        synced = self._files if job.upto == self.end else self._files[:-1]
        finished = sum(file in job.files for file in synced)
        for file in self._files[:finished]:
            file.pins -= 1
        del self._files[:finished]

    def reset(self, offset: int) -> None:
        """The log was cut to `offset`, and that is durable."""
        for file in self._files:
            file.pins -= 1
        self._files.clear()
        self.offset = self.end = offset
        self._folder_synced = self._folder_version
