"""Waiting for a condition instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["eventually"]

T = TypeVar("T")

POLL_INTERVAL_S = 0.01  # how often the condition is looked at: short beside any deadline, long beside a cheap check


def eventually(condition: Callable[[], T], *, deadline_s: float = 10.0, what: str = "") -> T:
    """The first truthy result of `condition`; an AssertionError that says what was waited for after the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s} s: {what or condition!r} (last seen: {result!r})")
        time.sleep(POLL_INTERVAL_S)
