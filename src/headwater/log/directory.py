"""All partitions under one data directory."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from headwater.clock import Clock
from headwater.filesystem import Filesystem
from headwater.log.partition import PartitionLog
from headwater.log.settings import LogSettings

__all__ = ["LogDirectory"]


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
    ) -> None:
        """Creates the directory if need be, locks it, opens every partition. `settings` are for logs until they are given
        their own. DirectoryInUse when another process has it; `cluster_id` is ignored when meta.properties has one."""

    cluster_id: str
    clean: bool  # whether the last shutdown was
    logs: dict[tuple[str, int], PartitionLog]

    def get(self, topic: str, partition: int) -> PartitionLog | None: ...

    def create(self, topic: str, partition: int, settings: LogSettings, topic_id: UUID) -> PartitionLog:
        """A new, empty partition, durable when this returns. One that exists already is returned with the new settings."""
        ...

    def delete(self, topic: str, partition: int) -> None:
        """Gone at once for users and after a crash; its files vanish after `file.delete.delay.ms`."""
        ...

    def __iter__(self) -> Iterator[PartitionLog]: ...

    def checkpoint(self) -> None:
        """Write recovery points and start offsets, so that a crash from here on scans little."""
        ...

    def maintain(self, now_ms: int) -> float:
        """One short slice (a few milliseconds at most) of background work: retention, rolls by time, flush.ms, checkpoints,
        deletions, compaction. Returns in how many milliseconds it wants to be called again (0: there is more to do)."""
        ...

    def close(self) -> None:
        """Make everything durable and leave the directory clean, so that the next start scans nothing."""
        ...
