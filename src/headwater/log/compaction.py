"""Compaction of a data directory's logs, one at a time, the dirtiest first, beside appends and reads.

The owner's thread decides what is done and changes names; reading, writing and syncing happen on another thread. What
is written in one language here is a generator: it yields work for the other thread and goes on when that is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import Corrupted
from headwater.log.compaction_keys import DEDUPE_BUFFER_BYTES
from headwater.log.compaction_pass import CompactionPass, CompactionStopped, Pace
from headwater.log.compaction_plan import Candidate, Source, examine, grouped
from headwater.log.layout import ABORTED, CLEANED, COVERED, INDEX, LOG, TIMES, segment_name
from headwater.log.replacement import replace
from headwater.log.segment import Segment

if TYPE_CHECKING:
    from headwater.log.directory import LogDirectory
    from headwater.log.groupcommit import GroupCommit
    from headwater.log.partition import PartitionLog

__all__ = ["CompactionSettings", "Compactor"]

Work = Callable[[], object]
Steps = Generator[Work, None, None]

_log = logging.getLogger("headwater.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """The broker's, by their Kafka names: log.cleaner.enable, .backoff.ms, .dedupe.buffer.size."""

    enable: bool = True
    backoff_ms: int = 15_000
    dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES


class Compactor:
    """Owned by a directory's Maintenance; used on the owner's thread."""

    def __init__(self, directory: LogDirectory, commits: GroupCommit | None, settings: CompactionSettings) -> None:
        self.log: PartitionLog | None = None  # being compacted
        self.passes = 0  # finished
        self._directory = directory
        self._commits = commits
        self._settings = settings
        self._steps: Steps | None = None
        self._next_look_ms = 0
        # Not tried again while this process runs: damaged, or between two steps of a replacement that failed, which the
        # next start finishes.
        self._left_alone: set[PartitionLog] = set()

    def step(self, now_ms: int, remove_later: Callable[[str, int], None]) -> None:
        """Begin a pass if one is due; it then goes on by itself."""
        if self._steps is not None or not self._settings.enable or now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + self._settings.backoff_ms
        found = [self._candidate(log, now_ms) for log in self._directory.logs.values() if log.settings.cleanup_compact]
        due = [candidate for candidate in found if candidate is not None and candidate.due]
        if due:
            self._begin(max(due, key=lambda one: (one.overdue, one.dirty_ratio)), now_ms, remove_later)

    def stop(self) -> None:
        """The pass that runs ends soon, without harm."""
        if self.log is not None:
            self.log.stop_compaction()

    def forget(self, log: PartitionLog) -> None:
        """It is being deleted."""
        log.stop_compaction()
        self._left_alone.discard(log)

    def _candidate(self, log: PartitionLog, now_ms: int) -> Candidate | None:
        if log.failure is not None or log in self._left_alone:
            return None
        try:
            return examine(log, self._directory.cleaned_upto.get((log.topic, log.partition), -1), now_ms)
        except (OSError, Corrupted) as error:
            self._give_up(log, error)
            return None

    def _begin(self, candidate: Candidate, now_ms: int, remove_later: Callable[[str, int], None]) -> None:
        self.log = candidate.log
        pace = candidate.log.compaction = Pace(self._directory.context.clock)
        self._steps = self._compact(candidate, pace, now_ms, remove_later)
        self._go_on(None)

    def _compact(
        self, candidate: Candidate, pace: Pace, now_ms: int, remove_later: Callable[[str, int], None]
    ) -> Steps:
        log, directory = candidate.log, self._directory
        if log.recovery_point < candidate.limit:  # what is compacted is never read by recovery
            yield from self._checkpoint(log)
        key = log.topic, log.partition
        if key not in directory.cleaned_upto:  # recovery must know that offsets may be missing before any is
            directory.cleaned_upto[key] = candidate.dirty_from
            yield directory.cleaned_upto_writer()
        run = CompactionPass(candidate, pace, self._settings.dedupe_buffer_bytes, now_ms)
        yield run.learn_keys
        for group in grouped(tuple(source for source in candidate.sources if source.base < run.upto), log.settings):
            doomed: list[str] = []
            yield from self._replace(run, group, doomed)
            for path in doomed:
                remove_later(path, directory.context.clock.now_ms() + log.settings.file_delete_delay_ms)
        directory.cleaned_upto[key] = run.upto
        yield directory.cleaned_upto_writer()
        self.passes += 1
        _log.info(
            "%s is compacted up to offset %d: %d bytes became %d",
            log.folder, run.upto, run.bytes_before, run.bytes_after,
        )  # fmt: skip

    def _checkpoint(self, log: PartitionLog) -> Steps:
        checkpoint = self._directory.maintenance.begin_checkpoint(log)
        if checkpoint is None:
            raise CompactionStopped  # one is being made; the next look finds it
        try:
            yield checkpoint.sync
        except OSError as error:
            checkpoint.finish(error)
            raise CompactionStopped from error
        else:
            checkpoint.finish(None)
            yield self._directory.checkpoint_writer()
        finally:
            self._directory.maintenance.checkpoint_written()

    def _replace(self, run: CompactionPass, group: list[Source], doomed: list[str]) -> Steps:
        log = run.log
        written: list[Segment | None] = []
        try:
            yield lambda: written.append(run.write(group))
            if written[0] is None:
                return
            for step, _ in enumerate(replace(log, [source.segment for source in group], written[0], doomed)):
                if step:  # names have changed
                    self._left_alone.add(log)
                yield lambda: log.context.filesystem.sync_directory(log.folder)
            self._left_alone.discard(log)
        except BaseException:
            self._remove_cleaned(log, group[0])
            raise

    def _remove_cleaned(self, log: PartitionLog, first: Source) -> None:
        """What an unfinished group wrote; what cannot be removed now goes at the next start."""
        filesystem = log.context.filesystem
        for suffix in (LOG, INDEX, TIMES, ABORTED, COVERED):
            path = f"{log.folder}/{segment_name(first.base)}{suffix}{CLEANED}"
            try:
                if filesystem.exists(path):
                    filesystem.remove(path)
            except OSError as error:
                _log.warning("%s cannot be removed: %s", path, error)

    # -- running the steps

    def _go_on(self, error: Exception | None) -> None:
        """Take steps until one of them goes to another thread, or all are done."""
        while self._steps is not None:
            work = self._next_work(error)
            if work is None:
                return
            if self._commits is not None:
                self._commits.run_apart(work, self._go_on)
                return
            error = None
            try:
                work()
            except Exception as failed:
                error = failed

    def _next_work(self, error: Exception | None) -> Work | None:
        """The next step's work; None when the pass has ended, well or not."""
        steps, log = self._steps, self.log
        assert steps is not None
        assert log is not None
        try:
            if error is None and (log.compaction is None or log.compaction.stopped):
                error = CompactionStopped()
            return next(steps) if error is None else steps.throw(error)
        except StopIteration:
            pass
        except CompactionStopped:
            _log.debug("%s: compaction stopped", log.folder)
        except (OSError, Corrupted) as failed:
            self._give_up(log, failed)
        self._steps = None
        self.log = log.compaction = None
        return None

    def _give_up(self, log: PartitionLog, error: OSError | Corrupted) -> None:
        if isinstance(error, Corrupted):
            self._left_alone.add(log)
            _log.error("%s is not compacted any more: %s", log.folder, error)
        else:  # tried again
            _log.warning("%s cannot be compacted now: %s", log.folder, error)
