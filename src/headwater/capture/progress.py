"""How far a snapshot is, and when it will be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Progress"]


@dataclass(slots=True)
class Progress:
    """Rows read of an estimated total; `started` and `now` are seconds of a monotonic clock."""

    total: int
    rows: int
    started: float
    finished: bool = False
    _rows_before: int = -1  # read by earlier runs: they say nothing about this one's speed
    _last: float = 0.0

    def advance(self, rows: int, now: float) -> None:
        if self._rows_before < 0:
            self._rows_before = self.rows
        self.rows, self._last = rows, now

    def finish(self, rows: int) -> None:
        self.rows = self.total = rows
        self.finished = True

    def describe(self, now: float) -> dict[str, Any]:
        """rows, total, percent, and seconds to go (None while unknown)."""
        total = max(self.total, self.rows)
        percent = 100.0 if self.finished else min(99.9, 100.0 * self.rows / total) if total else 0.0
        done = self.rows - max(self._rows_before, 0)
        speed = done / (self._last - self.started) if done > 0 and self._last > self.started else 0.0
        eta = 0.0 if self.finished else round((total - self.rows) / speed, 1) if speed else None
        return {"rows": self.rows, "total": total, "percent": round(percent, 1), "eta_s": eta, "done": self.finished}
