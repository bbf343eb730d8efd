"""All partitions under one data directory: `<topic>-<partition>/` folders, and the files that say where recovery
begins.

meta.properties                    whose directory this is
.lock                              held by the process that uses it
.kafka_cleanshutdown               there only between a clean stop and the next start
recovery-point-offset-checkpoint   below it, everything of a partition is on the disk, indexes included
log-start-offset-checkpoint        where partitions begin, if later than their first segment
cleaner-offset-checkpoint          up to where compaction has been
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from uuid import UUID

from headwater.clock import Clock
from headwater.errors import Corrupted, EnvironmentFailed
from headwater.filesystem import Filesystem
from headwater.log.checkpoints import (
    Offsets,
    decode_checkpoint,
    decode_metadata,
    decode_properties,
    encode_checkpoint,
    encode_metadata,
    encode_properties,
)
from headwater.log.compaction import CompactionSettings
from headwater.log.context import Context
from headwater.log.epochs import LeaderEpochs
from headwater.log.files import read_whole, write_whole
from headwater.log.groupcommit import SYNCFS_FROM_FILES, GroupCommit
from headwater.log.layout import METADATA_FILE
from headwater.log.maintenance import Maintenance
from headwater.log.partition import Name, Opened, PartitionLog
from headwater.log.producers import Producers
from headwater.log.recovery import RecoveryPlan, new_segment, recover_partition
from headwater.log.segment import Segment
from headwater.log.settings import LogSettings

__all__ = ["LogDirectory"]

META = "meta.properties"
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
CLEANED_UPTO = "cleaner-offset-checkpoint"

_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]+)")
_DELETED_FOLDER = re.compile(r".*\.[0-9a-f]{32}-delete")

_log = logging.getLogger("headwater.log")


class LogDirectory:
    """Opening recovers what a crash left. Used on the owner's thread only."""

    def __init__(
        self,
        path: str,
        *,
        filesystem: Filesystem,
        clock: Clock,
        cluster_id: str,
        node_id: int = 1,
        settings: LogSettings | None = None,
        commits: GroupCommit | None = None,
        compaction: CompactionSettings | None = None,
        open_files_max: int | None = None,
    ) -> None:
        """Creates the directory if need be, locks it, opens every partition. `settings` are for logs until they are
        given their own. `commits` runs slow disk work on its threads; without it everything happens at once, on the
        caller's. `open_files_max`: descriptors kept open (see `files`). DirectoryInUse when another process has it;
        `cluster_id` is ignored when meta.properties has one."""
        self.path = path.rstrip("/")
        self.settings = settings or LogSettings()
        self.context = Context(filesystem, clock, open_files_max)
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self._numbers = itertools.count(1)
        self._written: dict[str, int] = {}  # checkpoint files: the number of the newest writer that has written
        self._writing = threading.Lock()
        self.findings: list[Corrupted] = []  # damage and torn tails found while opening
        if not filesystem.exists(self.path):
            filesystem.make_directory(self.path)
            filesystem.sync_directory(os.path.dirname(self.path) or ".")
        self._lock_fd = filesystem.lock(f"{self.path}/{LOCK}")
        try:
            self.cluster_id = self._identity(cluster_id, node_id)
            self.clean = filesystem.exists(f"{self.path}/{CLEAN_SHUTDOWN}")
            self.cleaned_upto = self._checkpoint(CLEANED_UPTO)
            self._cleaned_upto_stale = False
            self._open_all()
            if self.clean:
                filesystem.remove(f"{self.path}/{CLEAN_SHUTDOWN}")
            filesystem.sync_directory(self.path)
        except BaseException:
            self.release_lock()
            raise
        self.maintenance = Maintenance(self, commits, compaction or CompactionSettings())

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(self.logs.values())

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self.logs.get((topic, partition))

    def create(self, topic: str, partition: int, settings: LogSettings, topic_id: UUID) -> PartitionLog:
        """A new, empty partition, durable when this returns. One that exists is returned, with the new settings."""
        log = self.logs.get((topic, partition))
        if log is not None:
            log.settings = settings
            if log.topic_id != topic_id:  # its file was damaged or is missing
                log.topic_id = topic_id
                write_whole(self.context.filesystem, f"{log.folder}/{METADATA_FILE}", encode_metadata(topic_id))
            return log
        if self._cleaned_upto_stale:  # of a deleted partition, perhaps of the same name
            self.cleaned_upto_writer()()
            self._cleaned_upto_stale = False
        folder = f"{self.path}/{topic}-{partition}"
        filesystem = self.context.filesystem
        filesystem.make_directory(folder)
        write_whole(filesystem, f"{folder}/{METADATA_FILE}", encode_metadata(topic_id))
        segment = new_segment(self.context, folder, 0)
        filesystem.sync_directory(folder)
        filesystem.sync_directory(self.path)
        opened = Opened([segment], Producers(), LeaderEpochs(), 0, 0, 0)
        log = PartitionLog(self.context, Name(topic, partition, topic_id, folder), settings, opened)
        self.logs[topic, partition] = log
        return log

    def delete(self, topic: str, partition: int) -> None:
        """Gone at once for users and after a crash; its files vanish after `file.delete.delay.ms`."""
        log = self.logs.pop((topic, partition), None)
        if log is None:
            return
        self.maintenance.forget(log)
        filesystem = self.context.filesystem
        doomed = f"{log.folder}.{secrets.token_hex(16)}-delete"
        for segment in log.segments:
            for file in segment.files():
                file.path = file.path.replace(log.folder, doomed, 1)
        filesystem.rename(log.folder, doomed)
        filesystem.sync_directory(self.path)
        self._cleaned_upto_stale |= self.cleaned_upto.pop((topic, partition), None) is not None
        self.maintenance.remove_later(doomed, self.context.clock.now_ms() + log.settings.file_delete_delay_ms)

    def maintain(self, now_ms: int) -> float:
        """One short slice (a few milliseconds at most) of background work: retention, flush.ms, checkpoints, deletions,
        compaction. Returns in how many milliseconds it wants to be called again (0: there is more to do)."""
        return self.maintenance.step(now_ms)

    def stop_background(self) -> None:
        """Long work on other threads ends soon, unfinished; before GroupCommit is closed."""
        self.maintenance.compactor.stop()

    def checkpoint(self) -> None:
        """Write recovery points and start offsets, so that a crash from here on scans little."""
        for log in self.logs.values():
            if log.failure is None:
                self.maintenance.checkpoint_now(log)
        self.checkpoint_writer()()

    def close(self) -> None:
        """Make everything durable and leave the directory clean, so that the next start scans nothing."""
        self.stop_background()
        clean = True
        for log in self.logs.values():
            try:
                log.flush_to_disk()
                log.segments[-1].finish()
                self.maintenance.checkpoint_now(log)
            except (OSError, EnvironmentFailed) as error:
                _log.error("%s could not be closed cleanly: %s", log.folder, error)
                clean = False
        self.checkpoint_writer()()
        if clean:
            write_whole(self.context.filesystem, f"{self.path}/{CLEAN_SHUTDOWN}", b'{"version":0,"brokerEpoch":-1}')
        for log in self.logs.values():
            for segment in log.segments:
                for file in segment.files():
                    file.close()
        self.release_lock()

    def release_lock(self) -> None:
        """Let another process have the directory: the last step of `close`, and what the end of a process does."""
        self.context.filesystem.close(self._lock_fd)

    # ---- for the other modules of this package

    def checkpoint_writer(self) -> Callable[[], None]:
        """Writes, on any thread, the recovery points and start offsets as they are now."""
        points = self._writer(RECOVERY_POINTS, {key: log.recovery_point for key, log in self.logs.items()})
        starts = self._writer(START_OFFSETS, {key: log.log_start_offset for key, log in self.logs.items()})

        def write() -> None:
            points()
            starts()

        return write

    def write_start_offsets(self) -> None:
        self._writer(START_OFFSETS, {key: log.log_start_offset for key, log in self.logs.items()})()

    def cleaned_upto_writer(self) -> Callable[[], None]:
        """Writes, on any thread, how far compaction has been, as it is now."""
        return self._writer(CLEANED_UPTO, dict(self.cleaned_upto))

    def _writer(self, name: str, offsets: Offsets) -> Callable[[], None]:
        """Writers may run on several threads and out of order: the newest offsets stay."""
        number = next(self._numbers)

        def write() -> None:
            with self._writing:
                if number >= self._written.get(name, 0):
                    write_whole(self.context.filesystem, f"{self.path}/{name}", encode_checkpoint(offsets))
                    self._written[name] = number

        return write

    def _checkpoint(self, name: str) -> Offsets:
        path = f"{self.path}/{name}"
        if not self.context.filesystem.exists(path):
            return {}
        try:
            return decode_checkpoint(read_whole(self.context.filesystem, path), path)
        except Corrupted as finding:
            _log.warning("%s; going on without it", finding)
            self.findings.append(finding)
            return {}

    def _identity(self, cluster_id: str, node_id: int) -> str:
        path = f"{self.path}/{META}"
        filesystem = self.context.filesystem
        if filesystem.exists(path):
            known = decode_properties(read_whole(filesystem, path)).get("cluster.id")
            if known:
                return known
        properties = {
            "version": "1",
            "cluster.id": cluster_id,
            "node.id": str(node_id),
            "directory.id": secrets.token_urlsafe(16),
        }
        write_whole(filesystem, path, encode_properties(properties))
        return cluster_id

    def _open_all(self) -> None:
        recovery_points = self._checkpoint(RECOVERY_POINTS)
        starts = self._checkpoint(START_OFFSETS)
        unsynced: list[Segment] = []
        self.doomed: list[str] = []  # folders of partitions deleted before a stop
        for entry in self.context.filesystem.scan(self.path):
            if entry.is_directory and _DELETED_FOLDER.fullmatch(entry.name):
                self.doomed.append(f"{self.path}/{entry.name}")
            elif entry.is_directory and (match := _FOLDER.fullmatch(entry.name)):
                key = match["topic"], int(match["partition"])
                unsynced += self._open(key, starts.get(key, 0), recovery_points.get(key, 0))
        self._sync(unsynced)

    def _sync(self, segments: list[Segment]) -> None:
        """A killed process leaves what it wrote to the system: it counts as durable from now on, so it must be."""
        filesystem = self.context.filesystem
        if len(segments) > SYNCFS_FROM_FILES:
            filesystem.sync_filesystem(self._lock_fd)
            return
        for segment in segments:
            filesystem.datasync(segment.file.descriptor())
            filesystem.sync_directory(segment.folder)

    def _open(self, key: tuple[str, int], start: int, recovery_point: int) -> list[Segment]:
        """The segments of it that have to be synced."""
        topic, partition = key
        folder = f"{self.path}/{topic}-{partition}"
        filesystem = self.context.filesystem
        metadata = f"{folder}/{METADATA_FILE}"
        topic_id = UUID(int=0)
        if filesystem.exists(metadata):
            try:
                topic_id = decode_metadata(read_whole(filesystem, metadata), metadata)
            except Corrupted as finding:  # who knows the topic gives it again
                _log.warning("%s", finding)
                self.findings.append(finding)
        found = recover_partition(
            self.context,
            RecoveryPlan(
                folder,
                start=start,
                recovery_point=recovery_point,
                clean=self.clean,
                index_interval_bytes=self.settings.index_interval_bytes,
                compacted=key in self.cleaned_upto,
            ),
        )
        self.findings += found.findings
        start = min(max(start, found.segments[0].base_offset), found.log_end)
        opened = Opened(
            found.segments, found.producers, found.epochs, start, found.log_end, min(recovery_point, found.log_end)
        )
        self.logs[key] = PartitionLog(self.context, Name(topic, partition, topic_id, folder), self.settings, opened)
        return found.unsynced
