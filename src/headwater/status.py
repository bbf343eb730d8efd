"""What the running parts say of themselves, through the log: captures, pipelines and views.

Each part writes its status every `REPORT_INTERVAL_S` to the compacted topic `headwater.status`:

    key    JSON [kind, name]                      kind: "capture", "pipeline" or "view"
    value  JSON {"kind", "name", "time_ms", "state", "details"}

`state` is "running", "stopped" (it ended as it was told to) or "failed"; `details` is what the part's own status says.
So a page needs no addresses and no ports: whoever reaches the log can see all parts, on whatever machine they run. A
part that was killed says nothing more; readers take it for silent after `SILENT_AFTER_MS`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, Message, TopicPartition

from headwater.client import REQUEST_TIMEOUT_S, Connection, ensure_topics
from headwater.errors import BadInput, HeadwaterError

__all__ = ["STATUS_TOPIC", "Parts", "Reporter", "Status", "StatusBoard"]

STATUS_TOPIC = "headwater.status"
REPORT_INTERVAL_S = 1.0
SILENT_AFTER_MS = 10_000  # ten missed reports
DETAILS_BYTES_MAX = 256 * 1024  # a longer status is cut down to a remark: the topic is for people to look at
JOIN_TIMEOUT_S = 5.0
BATCH_REPORTS = 1_000  # read at once

_log = logging.getLogger("headwater.status")


@dataclass(frozen=True, slots=True)
class Status:
    """What one part last said."""

    kind: str
    name: str
    time_ms: int
    state: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def key(self) -> bytes:
        return json.dumps([self.kind, self.name], separators=(",", ":")).encode()

    def value(self) -> bytes:
        body = {"kind": self.kind, "name": self.name, "time_ms": self.time_ms, "state": self.state}
        text = json.dumps({**body, "details": dict(self.details)}, separators=(",", ":"), default=str)
        if len(text) > DETAILS_BYTES_MAX:
            remark = {"cut": f"a status of {len(text)} bytes; at most {DETAILS_BYTES_MAX} are reported"}
            text = json.dumps({**body, "details": remark}, separators=(",", ":"))
        return text.encode()

    @classmethod
    def from_value(cls, value: bytes) -> Status:
        try:
            body = json.loads(value)
            return cls(str(body["kind"]), str(body["name"]), int(body["time_ms"]), str(body["state"]), body["details"])
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"not a status record in {STATUS_TOPIC}: {value[:80]!r}: {error}") from error

    def as_json(self, now_ms: int) -> dict[str, Any]:
        """For a page: a part that ought to speak and does not is "silent"."""
        silent = self.state == "running" and now_ms - self.time_ms > SILENT_AFTER_MS
        return {
            "kind": self.kind,
            "name": self.name,
            "time_ms": self.time_ms,
            "state": "silent" if silent else self.state,
            "details": dict(self.details),
        }


Parts = Callable[[], Mapping[str, Mapping[str, Any]]]
"""Name -> details of the parts that a process runs. `state` among the details replaces "running"."""


class Reporter:
    """Reports for the parts of one kind that a process runs, in a thread of its own, while the `with` block runs.

    A report that cannot be made is left out: watching never stops what is watched.
    """

    def __init__(self, connection: Connection, kind: str, parts: Parts) -> None:
        self._connection, self._kind, self._parts = connection, kind, parts
        self._last_state: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"status of {kind}s", daemon=True)

    def __enter__(self) -> Reporter:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._last_state = "stopped" if kind is None or kind is KeyboardInterrupt else "failed"
        self._ended.set()
        self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        try:
            ensure_topics(self._connection, [STATUS_TOPIC], partitions=1, config={"cleanup.policy": "compact"})
        except (HeadwaterError, KafkaException) as error:
            _log.warning("no status reports of %ss: %s", self._kind, error)
            return
        producer = self._connection.producer(linger_ms=0)
        ending = False
        while not ending:
            ending = self._ended.wait(REPORT_INTERVAL_S)
            for status in self._statuses():
                try:
                    producer.produce(STATUS_TOPIC, status.value(), status.key())
                except (BufferError, KafkaException) as error:
                    _log.debug("a status report was left out: %s", error)
            producer.poll(0)
        producer.flush(JOIN_TIMEOUT_S)

    def _statuses(self) -> list[Status]:
        try:
            parts = self._parts()
        except Exception as error:  # a part that is just ending may not know its status
            _log.debug("no status of %ss: %s", self._kind, error)
            return []
        now_ms = time.time_ns() // 1_000_000
        return [self._status(name, dict(details), now_ms) for name, details in parts.items()]

    def _status(self, name: str, details: dict[str, Any], now_ms: int) -> Status:
        own = str(details.pop("state", "running"))
        state = own if own != "running" or self._last_state is None else self._last_state
        return Status(self._kind, name, now_ms, state, details)


class StatusBoard:
    """The last status of every part: read from the topic's start, and kept up to date by `poll`."""

    def __init__(self, connection: Connection) -> None:
        ensure_topics(connection, [STATUS_TOPIC], partitions=1, config={"cleanup.policy": "compact"})
        self._consumer = connection.consumer("headwater.status.board")
        self._consumer.assign([TopicPartition(STATUS_TOPIC, 0, 0)])
        self._found: dict[tuple[str, str], Status] = {}

    def poll(self, timeout_s: float) -> None:
        """Take in all that has been reported so far; waits so long for more."""
        full = True
        while full:
            messages = self._consumer.consume(BATCH_REPORTS, timeout=min(timeout_s, REQUEST_TIMEOUT_S))
            full = len(messages) == BATCH_REPORTS
            self._take(messages)

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            value = message.value()
            if message.error() is not None or not isinstance(value, bytes):
                continue
            try:
                status = Status.from_value(value)
            except BadInput as error:
                _log.warning("%s", error)
                continue
            self._found[status.kind, status.name] = status

    def all(self, now_ms: int) -> list[dict[str, Any]]:
        return [status.as_json(now_ms) for _, status in sorted(self._found.items())]

    def close(self) -> None:
        self._consumer.close()
