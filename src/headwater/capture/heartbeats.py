"""Heartbeat records, for consumers that must tell "nothing happens" from "nobody captures"."""

from __future__ import annotations

import time

from headwater.capture.envelope import quoted
from headwater.capture.settings import Settings
from headwater.capture.source import Batch

__all__ = ["Heartbeats"]

TOPIC_PREFIX = "__debezium-heartbeat."


class Heartbeats:
    """One record every `heartbeat_s`; none when that is 0."""

    def __init__(self, settings: Settings) -> None:
        self._interval_s = settings.heartbeat_s
        self._prefix = settings.topic_prefix
        self._at = float("-inf")

    def due(self, now_s: float) -> Batch | None:
        """The heartbeat, if it is time for one; `now_s` is of a monotonic clock."""
        if not self._interval_s or now_s - self._at < self._interval_s:
            return None
        self._at = now_s
        topic = TOPIC_PREFIX + self._prefix
        key = b'{"serverName":%b}' % quoted(self._prefix)
        now_ns = time.time_ns()
        value = b'{"ts_ms":%d,"ts_us":%d,"ts_ns":%d}' % (now_ns // 1_000_000, now_ns // 1000, now_ns)
        return Batch([(topic, key, value, None)], new_topics=[(topic, False)])
