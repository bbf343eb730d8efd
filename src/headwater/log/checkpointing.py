"""Moving a log's recovery point to its end: sync its data, its indexes and a snapshot of its producers."""

from __future__ import annotations

from bisect import bisect_right

from headwater.log.files import LogFile
from headwater.log.layout import SNAPSHOT, offset_of
from headwater.log.partition import PartitionLog

__all__ = ["Checkpoint"]


class Checkpoint:
    """Created and finished on the owner's thread; `sync` may run on another one meanwhile."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._filesystem = log.context.filesystem
        self._bytes = log.unscanned_bytes
        first = max(0, bisect_right(log.bases, log.recovery_point) - 1)
        log.segments[-1].save_indexes()
        self._snapshot = log.snapshot()
        self._files: list[LogFile] = []
        for segment in log.segments[first:]:
            with_content = segment.files()[1:3] + ((segment.aborted.file,) if segment.aborted.count else ())
            for file in with_content:
                file.descriptor()
                file.pins += 1
                self._files.append(file)
        self._job = log.sync_job()

    def sync(self) -> None:
        self._job.run(self._filesystem)
        for file in self._files:
            self._filesystem.datasync(file.fd)
        fd = self._filesystem.open(self._snapshot)
        try:
            self._filesystem.datasync(fd)
        finally:
            self._filesystem.close(fd)
        self._filesystem.sync_directory(self._log.folder)

    def finish(self, error: OSError | None) -> None:
        for file in self._files:
            file.pins -= 1
        log = self._log
        if error is not None:
            log.fail(error)
            return
        log.synced(self._job)
        if log.failure is None:
            log.recovery_point = max(log.recovery_point, self._job.upto)
            log.unscanned_bytes -= self._bytes

    def forget_older_snapshots(self) -> None:
        """Only those of segments' beginnings are kept: recovery falls back on them if the newest is damaged."""
        bases = set(self._log.bases)
        for entry in self._filesystem.scan(self._log.folder):
            offset = offset_of(entry.name)
            if entry.name.endswith(SNAPSHOT) and offset is not None and offset < self._job.upto and offset not in bases:
                self._filesystem.remove(f"{self._log.folder}/{entry.name}")
