"""When a follower commits, how long it waits for records, and when it tries again: pure, time is an argument.

A batch is due when it is large enough; or when nothing more is at hand and the store's commit interval has passed. So
a follower that keeps up commits at once, one that has fallen behind (until it sees the ends of its partitions again)
commits in large batches, and a store whose commits are expensive gets one an interval.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BATCH_BYTES", "BATCH_RECORDS", "Limits", "Pace"]

BATCH_RECORDS, BATCH_BYTES = 50_000, 64 << 20  # of one commit

IDLE_WAIT_MS = 100.0  # for the next record when there is nothing to do; stopping takes as long
BEHIND_AGE_MAX_MS = 1_000.0  # a follower that has fallen behind waits no longer than this for its batch to fill
RETRY_FIRST_MS, RETRY_MAX_MS = 50.0, 5_000.0  # after a store or the log did not answer: doubled each time


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one batch: what is read from the log before it is applied, and so what the follower holds in memory."""

    records: int = BATCH_RECORDS
    bytes: int = BATCH_BYTES
    commit_interval_ms: float = 0.0


class Pace:
    """One follower's rhythm."""

    def __init__(self, limits: Limits, now_ms: float) -> None:
        self._limits = limits
        self._records = self._bytes = 0
        self._committed_ms = now_ms - limits.commit_interval_ms
        self._failures = 0
        self._behind = True  # until the ends have been seen
        self._first_ms = now_ms  # when the oldest of the records at hand came

    def add(self, records: int, size_bytes: int, now_ms: float = 0.0, *, at_end: bool = False) -> None:
        """`at_end`: every partition has been read to where it ended."""
        if self._records == 0:
            self._first_ms = now_ms
        if at_end:
            self._behind = False
        self._records += records
        self._bytes += size_bytes

    def full(self) -> bool:
        return self._records >= self._limits.records or self._bytes >= self._limits.bytes

    def due(self, now_ms: float, *, waiting: bool) -> bool:
        """Whether to commit now; `waiting`: more records are at hand."""
        if self._records == 0:
            return False
        if self.full():
            self._behind = True
            return True
        if waiting or now_ms < self._next_commit_ms():
            return False
        return not self._behind or now_ms >= self._first_ms + BEHIND_AGE_MAX_MS

    def wait_ms(self, now_ms: float) -> float:
        """How long to wait for records: not past the time when those at hand are due."""
        if self._records == 0:
            return IDLE_WAIT_MS
        due_ms = self._next_commit_ms()
        if self._behind:
            due_ms = max(due_ms, self._first_ms + BEHIND_AGE_MAX_MS)
        return min(max(due_ms - now_ms, 0.0), IDLE_WAIT_MS)

    def committed(self, now_ms: float) -> None:
        self._records = self._bytes = 0
        self._committed_ms = now_ms
        self._failures = 0

    def failed(self) -> float:
        """What was read is read again; how long to wait before that, in milliseconds."""
        self._records = self._bytes = 0
        delay: float = min(RETRY_FIRST_MS * 2**self._failures, RETRY_MAX_MS)
        self._failures = min(self._failures + 1, 16)
        return delay

    def _next_commit_ms(self) -> float:
        return self._committed_ms + self._limits.commit_interval_ms
