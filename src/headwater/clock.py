"""Time as a dependency: whoever needs the time is given a clock, so that tests move it by hand."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since 1970: what goes into records."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds that never go back: what time-outs are measured with."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1e6


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> float:
        return float(self._now_ms)

    def advance(self, milliseconds: int) -> None:
        if milliseconds < 0:
            raise ValueError(f"a clock cannot go back: {milliseconds} ms")
        self._now_ms += milliseconds
