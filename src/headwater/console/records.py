"""Records for people to look at: decoded, filtered, from an offset, a time, or the end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, Message, TopicPartition

from headwater.client import REQUEST_TIMEOUT_S, Connection, partitions_of
from headwater.console.offsets import offsets
from headwater.errors import BadInput

__all__ = ["Query", "browse", "follow", "shown"]

RECORDS_MAX = 500  # in one answer
SCANNED_MAX = 50_000  # records looked through for a filter in one answer
TAILED_WHOLE_MAX = 64  # partitions of which the whole tail is read
SCAN_TIMEOUT_S = 5.0
VALUE_CHARACTERS_MAX = 20_000  # of a record's key or value; the rest is cut and said to be
FOLLOWED_PER_S_MAX = 50  # records shown a second; the others are counted
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Query:
    """What to show. Exactly one of `offset`, `time_ms` and `tail` says where to begin; `tail` is the default."""

    topic: str
    partition: int | None = None  # None: all
    offset: int | None = None
    time_ms: int | None = None
    tail: int = 100
    limit: int = 100
    contains: str = ""

    @property
    def forward(self) -> bool:
        """Whether the first records from a place are wanted, rather than the last ones."""
        return self.offset is not None or self.time_ms is not None

    @classmethod
    def parse(cls, given: dict[str, str]) -> Query:
        """From a request's parameters; BadInput names the one that is wrong."""
        unknown = given.keys() - {"topic", "partition", "offset", "time", "tail", "limit", "contains", "token"}
        if unknown:
            raise BadInput(f"there is no parameter {min(unknown)!r}")
        if not given.get("topic"):
            raise BadInput("say which topic")
        numbers = {name: _number(given, name) for name in ("partition", "offset", "time", "tail", "limit")}
        if numbers["offset"] is not None and numbers["partition"] is None:
            raise BadInput("an offset belongs to a partition: say which")
        return cls(
            topic=given["topic"],
            partition=numbers["partition"],
            offset=numbers["offset"],
            time_ms=numbers["time"],
            tail=min(numbers["tail"] or 100, RECORDS_MAX),
            limit=min(numbers["limit"] or 100, RECORDS_MAX),
            contains=given.get("contains", ""),
        )


def _number(given: dict[str, str], name: str) -> int | None:
    text = given.get(name, "")
    if not text:
        return None
    if not text.isdigit():
        raise BadInput(f"{name} is {text!r}: it must be a number, zero or more")
    return int(text)


def browse(connection: Connection, query: Query) -> dict[str, Any]:
    """Records by time, and where to go on (`next`)."""
    admin = connection.admin()
    chosen = [(query.topic, partition) for partition in _chosen(connection, query)]
    ends = {p: end for (_, p), end in offsets(admin, chosen, "latest").items()}
    lows = {p: low for (_, p), low in offsets(admin, chosen, "earliest").items()}
    consumer = connection.consumer("headwater.console.browse", enable_partition_eof=True)
    try:
        starts = _starts(consumer, query, lows, ends)
        consumer.assign([TopicPartition(query.topic, p, offset) for p, offset in starts.items()])
        return _collect(consumer, query, starts, ends)
    finally:
        consumer.close()


def follow(connection: Connection, query: Query) -> Iterator[dict[str, Any] | None]:
    """New records as they come; None when there was none for a moment, so that the caller can look up."""
    consumer = connection.consumer("headwater.console.follow")
    try:
        consumer.assign([TopicPartition(query.topic, p, OFFSET_END) for p in _chosen(connection, query)])
        second, count = 0, 0
        while True:
            message = consumer.poll(POLL_S)
            if message is None or message.error() is not None:
                yield None
                continue
            now = int(time.monotonic())
            second, count = (now, 0) if now != second else (second, count)
            if count < FOLLOWED_PER_S_MAX and _matches(message, query.contains):
                count += 1
                yield shown(message)
    finally:
        consumer.close()


def _chosen(connection: Connection, query: Query) -> list[int]:
    there = partitions_of(connection, query.topic)
    if not there:
        raise BadInput(f"there is no topic {query.topic!r}")
    if query.partition is None:
        return there
    if query.partition not in there:
        raise BadInput(f"{query.topic} has partitions {there[0]} to {there[-1]}, not {query.partition}")
    return [query.partition]


def _starts(consumer: Consumer, query: Query, lows: dict[int, int], ends: dict[int, int]) -> dict[int, int]:
    if query.time_ms is not None:
        asked = [TopicPartition(query.topic, p, query.time_ms) for p in ends]
        found = consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S)
        return {t.partition: t.offset if t.offset >= 0 else ends[t.partition] for t in found}
    if query.offset is not None:
        return {p: min(max(query.offset, lows[p]), ends[p]) for p in ends}
    # the last `tail` may all be in one partition; of very many partitions fewer each, so that the answer stays bounded
    each = query.tail if len(ends) <= TAILED_WHOLE_MAX else 1
    return {p: max(end - each, lows[p]) for p, end in ends.items()}


def _collect(consumer: Consumer, query: Query, starts: dict[int, int], ends: dict[int, int]) -> dict[str, Any]:
    records: list[dict[str, Any]] = []
    next_, scanned, deadline = dict(starts), 0, time.monotonic() + SCAN_TIMEOUT_S
    open_ = {p for p in ends if next_[p] < ends[p]}
    while open_ and scanned < SCANNED_MAX and time.monotonic() < deadline:
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        partition = int(message.partition() or 0)
        if message.error() is not None:  # the end of a partition, also where markers are its last records
            next_[partition] = ends[partition]
        else:
            scanned += 1
            next_[partition] = int(message.offset() or 0) + 1
            if _matches(message, query.contains):
                records.append(shown(message))
        if next_[partition] >= ends[partition]:
            open_.discard(partition)
        if query.forward and len(records) >= query.limit:
            break
    records.sort(key=lambda record: (record["timestamp"], record["partition"], record["offset"]))
    return {"records": records[-query.limit :], "scanned": scanned, "next": next_, "end": not open_}


def _matches(message: Message, text: str) -> bool:
    if not text:
        return True
    wanted = text.encode()
    return any(wanted in part for part in (message.key(), message.value()) if isinstance(part, bytes))


def shown(message: Message) -> dict[str, Any]:
    """A record as JSON."""
    kind, timestamp = message.timestamp()
    key, value = message.key(), message.value()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp if kind else 0,
        "key": _decoded(key if isinstance(key, bytes) else None),
        "value": _decoded(value if isinstance(value, bytes) else None),
        "headers": {name: _text(content) for name, content in _headers(message)},
        "bytes": len(value) if isinstance(value, bytes) else 0,
    }


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    found: Any = message.headers() or []
    return [(str(name), content) for name, content in found]


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")[:VALUE_CHARACTERS_MAX]


def _decoded(content: bytes | None) -> dict[str, Any] | None:
    """{"form": "json" | "text" | "hex", "data": ..., "cut": true where it was}."""
    if content is None:
        return None
    cut = {"cut": True} if len(content) > VALUE_CHARACTERS_MAX else {}
    if not cut:
        try:
            return {"form": "json", "data": json.loads(content)}
        except (ValueError, RecursionError):
            pass
    try:
        return {"form": "text", "data": content.decode()[:VALUE_CHARACTERS_MAX], **cut}
    except UnicodeDecodeError:
        return {"form": "hex", "data": content[: VALUE_CHARACTERS_MAX // 2].hex(" "), **cut}
