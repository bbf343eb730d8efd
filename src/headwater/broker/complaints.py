"""Warnings about what clients do, so few that no client can fill a disk with them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.broker.loop import Loop

__all__ = ["Complaints"]

PER_INTERVAL_MAX = 20  # warnings of all kinds together
INTERVAL_MS = 10_000

_log = logging.getLogger("headwater.broker")


class Complaints:
    """Every one is counted in the metrics by whoever complains; here it is only said."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._since_ms = loop.monotonic_ms()
        self._said = 0
        self._unsaid = 0

    def warn(self, message: str, *arguments: object) -> None:
        now_ms = self._loop.monotonic_ms()
        if now_ms - self._since_ms >= INTERVAL_MS:
            if self._unsaid:
                _log.warning("%d more warnings about clients were left out; see the metrics", self._unsaid)
            self._since_ms, self._said, self._unsaid = now_ms, 0, 0
        if self._said < PER_INTERVAL_MAX:
            self._said += 1
            _log.warning(message, *arguments)
        else:
            self._unsaid += 1
