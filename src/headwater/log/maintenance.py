"""Background work of a data directory, in slices short enough for the event loop: what may take long runs on the sync
threads.

Checkpoints bound what a crash makes the next start read: a log is checkpointed when `CHECKPOINT_BYTES` were written to
it since the last time, or, the fullest first, when all together exceed `UNSCANNED_BYTES_MAX`.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.log import compaction_plan, retention
from headwater.log.checkpointing import Checkpoint
from headwater.log.compaction import CompactionSettings, Compactor
from headwater.log.layout import DELETED
from headwater.log.partition import PartitionLog

if TYPE_CHECKING:
    from headwater.log.directory import LogDirectory
    from headwater.log.groupcommit import GroupCommit

__all__ = ["Maintenance"]

CHECKPOINT_BYTES = 64 << 20  # about 50 ms of scanning
UNSCANNED_BYTES_MAX = 512 << 20  # over all logs: less than half a second of scanning at start
ROUND_INTERVAL_MS = 1_000  # how often each log is looked at
LOGS_PER_STEP = 32  # looked at in one step: about a millisecond
REMOVALS_PER_STEP = 16  # files removed in one step

_log = logging.getLogger("headwater.log")


class Maintenance:
    """Owned by a LogDirectory."""

    def __init__(self, directory: LogDirectory, commits: GroupCommit | None, compaction: CompactionSettings) -> None:
        self.compactor = Compactor(directory, commits, compaction)
        self._directory = directory
        self._commits = commits
        self._round: deque[PartitionLog] = deque()
        self._next_round_ms = 0
        self._retention_interval_ms = 0  # 0: in every round
        self._next_retention_ms = 0
        self._checks_retention = True  # in this round
        self._checkpointing = False
        self._doomed: list[tuple[int, str]] = []  # (when, path) of files and folders to remove, soonest first
        for path in directory.doomed:
            self.remove_later(path, 0)

    def step(self, now_ms: int) -> float:
        """One slice; in how many milliseconds the next is wanted."""
        if not self._round and now_ms >= self._next_round_ms:
            self._round.extend(self._directory.logs.values())
            self._next_round_ms = now_ms + ROUND_INTERVAL_MS
            self._checks_retention = now_ms >= self._next_retention_ms
            if self._checks_retention:
                self._next_retention_ms = now_ms + self._retention_interval_ms
        for _ in range(min(LOGS_PER_STEP, len(self._round))):
            self._look_at(self._round.popleft(), now_ms)
        self._maybe_checkpoint()
        self.compactor.step(now_ms, self.remove_later)
        self._remove(now_ms)
        if self._round:
            return 0.0
        wanted = self._next_round_ms
        if self._doomed:
            wanted = min(wanted, self._doomed[0][0])
        return float(max(0, wanted - now_ms))

    def check_retention_every(self, interval_ms: int, first_ms: int) -> None:
        """How often old segments are looked for, and when for the first time."""
        self._retention_interval_ms = interval_ms
        self._next_retention_ms = first_ms

    def forget(self, log: PartitionLog) -> None:
        """The log is being deleted."""
        self.compactor.forget(log)
        if log in self._round:
            self._round.remove(log)

    def remove_later(self, path: str, at_ms: int) -> None:
        heapq.heappush(self._doomed, (at_ms, path))

    # -- each log

    def _look_at(self, log: PartitionLog, now_ms: int) -> None:
        try:
            if log.failure is not None:
                return
            log.producer_states.expire(now_ms, log.settings.producer_id_expiration_ms)
            self._flush_if_due(log, now_ms)
            compaction_plan.roll_if_lagging(log, now_ms)
            if self._checks_retention:
                retention.roll_if_due(log, now_ms)
                self._delete_expired(log, now_ms)
        except OSError as error:  # tried again in the next round
            _log.warning("%s: maintenance failed: %s", log.folder, error)

    def _flush_if_due(self, log: PartitionLog, now_ms: int) -> None:
        if log.unflushed and now_ms - log.durability.dirty_since_ms >= log.settings.flush_ms:
            if self._commits is None:
                log.flush_to_disk()
            else:
                self._commits.sync(log)

    def _delete_expired(self, log: PartitionLog, now_ms: int) -> None:
        count = 0 if log.compaction is not None else retention.expired(log, now_ms)
        if not count:
            return
        doomed = log.drop_first(count)
        # The new start must be known before the files go: a start offset never goes back.
        self._directory.write_start_offsets()
        filesystem = self._directory.context.filesystem
        for path in doomed:
            filesystem.rename(path, path + DELETED)
            self.remove_later(path + DELETED, now_ms + log.settings.file_delete_delay_ms)

    def _remove(self, now_ms: int) -> None:
        for _ in range(REMOVALS_PER_STEP):
            if not self._doomed or self._doomed[0][0] > now_ms:
                return
            _, path = heapq.heappop(self._doomed)
            try:
                self._remove_path(path, now_ms)
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning("%s cannot be removed: %s", path, error)

    def _remove_path(self, path: str, now_ms: int) -> None:
        filesystem = self._directory.context.filesystem
        if not path.endswith("-delete"):
            filesystem.remove(path)
            return
        inside = filesystem.scan(path)
        for entry in inside:
            filesystem.remove(f"{path}/{entry.name}")
        filesystem.remove_directory(path)

    # -- checkpoints

    def _maybe_checkpoint(self) -> None:
        if self._checkpointing:
            return
        logs = self._directory.logs.values()
        fullest = max((log for log in logs if log.failure is None), key=lambda log: log.unscanned_bytes, default=None)
        if fullest is None or not fullest.unscanned_bytes:
            return
        if (
            fullest.unscanned_bytes >= CHECKPOINT_BYTES
            or sum(log.unscanned_bytes for log in logs) >= UNSCANNED_BYTES_MAX
        ):
            self._checkpoint(fullest)

    def _checkpoint(self, log: PartitionLog) -> None:
        try:
            checkpoint = self.begin_checkpoint(log)
        except OSError as error:
            _log.warning("%s: no checkpoint: %s", log.folder, error)
            return
        if checkpoint is None:
            return

        def synced(error: OSError | None) -> None:
            checkpoint.finish(error)
            self._run(self._directory.checkpoint_writer(), written)

        def written(error: OSError | None) -> None:
            self.checkpoint_written()
            if error is None:
                checkpoint.forget_older_snapshots()

        self._run(checkpoint.sync, synced)

    def begin_checkpoint(self, log: PartitionLog) -> Checkpoint | None:
        """One to be synced, finished and written; None while there is another."""
        if self._checkpointing:
            return None
        checkpoint = Checkpoint(log)
        self._checkpointing = True
        return checkpoint

    def checkpoint_written(self) -> None:
        """The one that was begun is over, well or not."""
        self._checkpointing = False

    def checkpoint_now(self, log: PartitionLog) -> None:
        """The same at once, on the caller's thread; the caller writes the recovery points."""
        checkpoint = Checkpoint(log)
        checkpoint.sync()
        checkpoint.finish(None)

    def _run(self, work: Callable[[], object], done: Callable[[OSError | None], object]) -> None:
        if self._commits is not None:
            self._commits.run(work, done)
            return
        try:
            work()
        except OSError as error:
            done(error)
        else:
            done(None)
