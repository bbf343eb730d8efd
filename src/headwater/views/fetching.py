"""Records of a view's topics from a position on, as columns; committed ones only, in the order of each partition."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from headwater.client import REQUEST_TIMEOUT_S, Connection
from headwater.positions import Position
from headwater.views.errors import RecordsLost, StoreUnavailable

__all__ = ["Fetcher", "Records"]

FETCH_RECORDS_MAX = 20_000  # taken from librdkafka at once
PREFETCH_RECORDS, PREFETCH_KIB = 100_000, 32 << 10  # waiting in librdkafka while a batch is applied
FETCH_BYTES_MAX = 4 << 20  # of one partition in one response
FETCH_WAIT_MS = 100  # the broker answers an empty fetch after this; records end the wait at once
METADATA_INTERVAL_S = 10.0  # between looks for new partitions
RECONNECT_FIRST_MS, RECONNECT_MAX_MS = 20, 1_000

_client_log = logging.getLogger("headwater.views.client")  # librdkafka reports every refused connection
_client_log.addHandler(logging.NullHandler())
_client_log.propagate = False

_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


@dataclass(slots=True)
class Records:
    """What one fetch brought; `ends` is the position after it, also past what held no records (markers, gaps)."""

    messages: list[Message] = field(default_factory=list)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    size_bytes: int = 0
    waiting: bool = False  # whether there probably is more at hand
    at_end: bool = False  # whether every partition has been read to where it ended


class Fetcher:
    """A consumer of all partitions of some topics, which starts where a position says."""

    def __init__(self, connection: Connection, topics: Sequence[str], start: Position, name: str) -> None:
        self._topics = tuple(topics)
        self._consumer = connection.consumer(
            name,
            auto_offset_reset="error",
            enable_partition_eof=True,
            fetch_wait_max_ms=FETCH_WAIT_MS,
            fetch_message_max_bytes=FETCH_BYTES_MAX,
            queued_min_messages=PREFETCH_RECORDS,
            queued_max_messages_kbytes=PREFETCH_KIB,
            reconnect_backoff_ms=RECONNECT_FIRST_MS,
            reconnect_backoff_max_ms=RECONNECT_MAX_MS,
            fetch_error_backoff_ms=RECONNECT_FIRST_MS,
            check_crcs=True,
            logger=_client_log,
        )
        self._assigned: set[tuple[str, int]] = set()
        self._only: tuple[str, int] | None = None
        self._at_end: set[tuple[str, int]] = set()
        try:
            self._assign(start)
        except BaseException:
            self._consumer.close()
            raise

    def _assign(self, start: Position) -> None:
        found = {(topic, p) for topic in self._topics for p in _partitions(self._consumer, topic)}
        new = found - self._assigned
        if not new:
            return
        self._check_start(start)
        where = [TopicPartition(t, p, start.offsets.get((t, p), OFFSET_BEGINNING)) for t, p in sorted(new)]
        if self._assigned:
            self._consumer.incremental_assign(where)
        else:
            self._consumer.assign(where)
        self._assigned |= new
        self._only = next(iter(self._assigned)) if len(self._assigned) == 1 else None

    def _check_start(self, start: Position) -> None:
        """A position past the end, or of a partition that is gone, belongs to another log."""
        for topic, partition, offset in start.restrict(self._topics):
            if (topic, partition) in self._assigned:
                continue
            try:
                _, high = self._consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=REQUEST_TIMEOUT_S
                )
            except KafkaException as error:
                raise StoreUnavailable(f"the log does not answer for {topic}-{partition}: {error.args[0]}") from error
            if offset > high:
                raise RecordsLost(
                    f"the view has read {topic}-{partition} up to offset {offset}, but the log ends at {high}: the "
                    "topic was deleted or the log replaced; rebuild the view"
                )

    def look_for_partitions(self) -> None:
        """Follow partitions that were added; they are read from their beginning."""
        self._assign(Position())

    def fetch(self, wait_s: float) -> Records:
        """What is at hand, waiting for the first record only."""
        first = self._consumer.poll(wait_s)
        if first is None:
            return Records()
        found = [first, *self._consumer.consume(FETCH_RECORDS_MAX - 1, 0)]
        records = Records(waiting=len(found) > 1)
        events = [message for message in found if message.error() is not None]
        if len(events) < len(found):
            self._at_end.clear()
        if events:
            self._handle(events, records)
            found = [message for message in found if message.error() is None]
            records.waiting = False
        records.at_end = len(self._at_end) == len(self._assigned)
        records.messages = found
        records.size_bytes = sum(map(len, found))
        self._advance(records)
        return records

    def close(self) -> None:
        self._consumer.close()

    def _advance(self, records: Records) -> None:
        if not records.messages:
            return
        if self._only is not None:
            last = (records.messages[-1].offset() or 0) + 1
            records.ends[self._only] = max(records.ends.get(self._only, 0), last)
            return
        ends = {}
        for message in records.messages:
            ends[message.topic(), message.partition()] = message.offset()
        for where, offset in ends.items():
            records.ends[where] = max(records.ends.get(where, 0), offset + 1)  # type: ignore[index,operator,arg-type]

    def _handle(self, events: Sequence[Message], records: Records) -> None:
        for message in events:
            error = message.error()
            assert error is not None
            if error.code() == KafkaError._PARTITION_EOF:
                where = (str(message.topic()), int(message.partition() or 0))
                records.ends[where] = max(records.ends.get(where, 0), int(message.offset() or 0))
                self._at_end.add(where)
            elif error.code() in _LOST:
                raise RecordsLost(
                    f"{message.topic()}-{message.partition()}: {error.str()}: retention has removed records that the "
                    "view had not read; rebuild it from what is left"
                )
            else:
                raise StoreUnavailable(f"the log cannot be read: {error.str()}")


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    try:
        found: Any = consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics.get(topic)
    except KafkaException as error:
        raise StoreUnavailable(f"the log does not answer: {error.args[0]}") from error
    if found is None or found.error is not None or not found.partitions:
        raise StoreUnavailable(f"topic {topic!r} does not exist (yet)")
    return sorted(found.partitions)
