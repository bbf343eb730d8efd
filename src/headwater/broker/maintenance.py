"""Upkeep between requests: retention, rolls, compaction, checkpoints, a few milliseconds at a time.

The log says how long until it wants to be called again; when it says 0 there is more to do, and clients are served in
between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.loop import Loop, Timer

if TYPE_CHECKING:
    from headwater.log.directory import LogDirectory

__all__ = ["Maintenance"]

FIRST_AFTER_MS = 1_000  # a start is for serving; upkeep can wait
PAUSE_MS = 5  # between two slices of work that is at hand: half the time at most goes to upkeep
FIRST_RETENTION_AFTER_MS = 30_000  # as Kafka: what arrives old is there for a while, and a start is not busy deleting
INTERVAL_MS_MAX = 60_000  # how long upkeep is left alone at the most, whatever the log says


class Maintenance:
    """Calls `LogDirectory.maintain` from a timer of the loop."""

    def __init__(self, loop: Loop, directory: LogDirectory, retention_interval_ms: int) -> None:
        self._loop = loop
        self._directory = directory
        first_ms = loop.now_ms() + min(FIRST_RETENTION_AFTER_MS, retention_interval_ms)
        directory.maintenance.check_retention_every(retention_interval_ms, first_ms)
        self._timer: Timer | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(FIRST_AFTER_MS, self._step)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._directory.stop_background()

    def _step(self) -> None:
        self._timer = self._loop.call_later(INTERVAL_MS_MAX, self._step)  # also when this slice fails
        again_ms = self._directory.maintain(self._loop.now_ms())
        self._timer.cancel()
        self._timer = self._loop.call_later(min(max(again_ms, PAUSE_MS), INTERVAL_MS_MAX), self._step)
