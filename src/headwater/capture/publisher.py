"""Records and state into the log, in one Kafka transaction: the half of exactly-once that is not the database's.

The transactional id is the capture's name: starting a capture fences any other of the same name, whose transaction in
flight is aborted. The newest writes itself down as `owner`; one that finds another there stops for good, so that two of
them do not take the stream from each other for ever. What a capture has done is in the compacted topic
`headwater.capture.<name>` (one partition):

    key    the name of a piece of state               for example `position`, `snapshot/public.t`
    value  JSON, whatever the source stores

Records and state become visible together or not at all, so the state that is read back says exactly what is there.
Each capture has a topic of its own: an open transaction of another capture would hide what comes after it.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from headwater.capture.envelope import EVERY_PARTITION, Record
from headwater.capture.errors import CaptureError, Fenced, LogUnavailable
from headwater.capture.source import Batch
from headwater.client import Connection, ensure_topics, partitions_of
from headwater.errors import HeadwaterError, SettingError

__all__ = ["Publisher", "captures", "read_state"]

STATE_TOPIC_PREFIX = "headwater.capture."
TRANSACTIONAL_ID_PREFIX = "headwater.capture."
TRANSACTION_TIMEOUT_MS = 600_000  # reading a table without a key may take long; brokers allow 15 minutes
OPERATION_TIMEOUT_S = 60.0  # for the broker to answer; then the capture starts over from its stored position
QUEUE_RECORDS_MAX = 200_000  # records on their way to the broker
QUEUE_KBYTES_MAX = 128 << 10
POLL_S = 0.1
READ_TIMEOUT_S = 30.0
MESSAGE_BYTES_MAX = 100 << 20  # a row may be large; a topic that was there before may allow less

TOPIC_CONFIG = {"max.message.bytes": str(MESSAGE_BYTES_MAX)}  # of the topics that are made here

# Read whole at every start: small segments make the broker compact it early.
STATE_CONFIG = {"cleanup.policy": "compact", "segment.bytes": "4194304", "min.cleanable.dirty.ratio": "0.1"}

_log = logging.getLogger("headwater.capture")


class Publisher:
    """Owns the producer; used by one thread. It may be closed and opened again."""

    def __init__(self, connection: Connection, name: str, *, partitions: int = -1) -> None:
        self._connection = connection
        self._name = name
        self._state_topic = STATE_TOPIC_PREFIX + name
        self._partitions = partitions
        self._owner = uuid.uuid4().hex
        self._claimed = False
        self._producer: Producer | None = None
        self._in_transaction = False
        self._known_topics: set[str] = set()
        self._counts: dict[str, int] = {}

    def open(self) -> dict[str, Any]:
        """Fence earlier captures of this name; the state that the last of them left."""
        ensure_topics(self._connection, [self._state_topic], partitions=1, config=STATE_CONFIG)
        self._known_topics.clear()
        if self._claimed:  # look before taking the name from a newer one
            self._refuse_if_replaced(read_state(self._connection, self._name))
        self._producer = self._make_producer()
        self._in_transaction = False
        self._call(self._producer.init_transactions, OPERATION_TIMEOUT_S)
        state = read_state(self._connection, self._name)
        if self._claimed:
            self._refuse_if_replaced(state)
        else:
            self.publish(Batch(state={"owner": self._owner}))
            self.commit()
            self._claimed = True
        return state

    def _refuse_if_replaced(self, state: Mapping[str, Any]) -> None:
        if state.get("owner") != self._owner:
            raise self._fenced()

    def still_owner(self) -> bool:
        """Whether a fencing was by one that has not claimed the name: then it may be tried again."""
        return not self._claimed or read_state(self._connection, self._name).get("owner") == self._owner

    def _fenced(self) -> Fenced:
        return Fenced(
            f"another capture named {self._name!r} has taken over; give this one another name, or stop that one"
        )

    def _make_producer(self) -> Producer:
        try:
            return self._connection.producer(
                transactional_id=TRANSACTIONAL_ID_PREFIX + self._name,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                linger_ms=0,
                compression_type="lz4",
                queue_buffering_max_messages=QUEUE_RECORDS_MAX,
                queue_buffering_max_kbytes=QUEUE_KBYTES_MAX,
                message_max_bytes=MESSAGE_BYTES_MAX,
                delivery_report_only_error=True,
            )
        except KafkaException as error:
            raise SettingError(f"the Kafka client refuses its options: {error.args[0].str()}") from error

    def publish(self, batch: Batch) -> None:
        """Queue the batch in the current Kafka transaction."""
        producer = self._begin()
        self._ensure(batch.new_topics)
        state: list[Record] = []
        for name, value in batch.state.items():
            body = None if value is None else json.dumps(value, separators=(",", ":")).encode()
            state.append((self._state_topic, name.encode(), body, None))
        try:
            self._produce(producer, batch.records)
            self._produce(producer, state)
        except KafkaException as error:  # half of the batch may be queued: only starting over is safe
            raise self._failure(error) from error

    def commit(self) -> None:
        """Make everything published since the last commit visible and durable."""
        if self._in_transaction and self._producer is not None:
            self._call(self._producer.commit_transaction, OPERATION_TIMEOUT_S)
            self._in_transaction = False

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            if self._in_transaction:
                producer.purge()
                producer.abort_transaction(POLL_S * 10)
            producer.close()
        except KafkaException as error:  # fenced, or the broker is away: the next capture of this name aborts it
            _log.debug("capture %s: abort on close: %s", self._name, error)

    def _begin(self) -> Producer:
        if self._producer is None:
            raise LogUnavailable("the publisher is closed")
        if not self._in_transaction:
            self._call(self._producer.begin_transaction)
            self._in_transaction = True
        return self._producer

    def _produce(self, producer: Producer, records: Iterable[Record]) -> None:
        produce = producer.produce
        for topic, key, value, headers in records:
            if headers is EVERY_PARTITION:
                self._to_every_partition(producer, topic, key, value)
                continue
            while True:
                try:
                    if headers is None:
                        produce(topic, value, key)
                    else:
                        produce(topic, value, key, headers=headers)
                    break
                except BufferError:  # the queue is full: the broker is the slower one
                    self._wait_for_room(producer)
        producer.poll(0)

    def _wait_for_room(self, producer: Producer) -> None:
        end = time.monotonic() + OPERATION_TIMEOUT_S
        before = len(producer)
        while len(producer) >= before:
            producer.poll(POLL_S)
            if time.monotonic() > end:
                raise LogUnavailable(f"the broker took no records for {OPERATION_TIMEOUT_S:.0f} s")

    def _to_every_partition(self, producer: Producer, topic: str, key: bytes | None, value: bytes | None) -> None:
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = len(partitions_of(self._connection, topic)) or 1
        for partition in range(count):
            producer.produce(topic, value, key, partition=partition)

    def _ensure(self, topics: Iterable[tuple[str, bool]]) -> None:
        for compacted in (True, False):
            wanted = dict.fromkeys(name for name, compact in topics if compact == compacted)
            names = [name for name in wanted if name not in self._known_topics]
            config = {"cleanup.policy": "compact", **TOPIC_CONFIG} if compacted else TOPIC_CONFIG
            try:
                ensure_topics(self._connection, names, partitions=self._partitions, config=config)
            except HeadwaterError as error:
                raise LogUnavailable(str(error)) from error
            except KafkaException as error:
                raise LogUnavailable(f"topics cannot be created: {error}") from error
            self._known_topics.update(names)

    def _call(self, operation: Any, *arguments: Any) -> None:
        """Run one producer call that is safe to repeat, until the broker answers or the time is over."""
        end = time.monotonic() + OPERATION_TIMEOUT_S
        while True:
            try:
                operation(*arguments)
                return
            except KafkaException as error:
                problem = error.args[0]
                if not (isinstance(problem, KafkaError) and problem.retriable()) or time.monotonic() > end:
                    raise self._failure(error) from error

    def _failure(self, error: KafkaException) -> CaptureError:
        """What fails is ours to start over from, unless a newer capture owns the name."""
        if _is_fenced(error.args[0]):
            return self._fenced()
        return LogUnavailable(f"the log did not take the records: {error}")


def _is_fenced(problem: object) -> bool:
    return isinstance(problem, KafkaError) and problem.code() in (
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    )


def captures(connection: Connection) -> list[str]:
    """The names of all captures that have ever stored something."""
    try:
        topics = connection.admin().list_topics(timeout=READ_TIMEOUT_S).topics
    except KafkaException as error:
        raise LogUnavailable(f"the topics cannot be listed: {error}") from error
    return sorted(name.removeprefix(STATE_TOPIC_PREFIX) for name in topics if name.startswith(STATE_TOPIC_PREFIX))


def read_state(connection: Connection, name: str) -> dict[str, Any]:
    """What the capture of this name stored last; empty if there is none."""
    topic = STATE_TOPIC_PREFIX + name
    consumer = connection.consumer(f"headwater.capture.{uuid.uuid4().hex}")
    state: dict[str, Any] = {}
    try:
        where = TopicPartition(topic, 0, 0)
        low, high = consumer.get_watermark_offsets(where, timeout=READ_TIMEOUT_S)
        where.offset = low
        consumer.assign([where])
        end = time.monotonic() + READ_TIMEOUT_S
        while low < high and consumer.position([where])[0].offset < high:
            for message in consumer.consume(10_000, POLL_S):
                if message.error() is not None:
                    raise LogUnavailable(f"{topic} cannot be read: {message.error()}")
                _apply(state, topic, message.key(), message.value())
                end = time.monotonic() + READ_TIMEOUT_S
            if time.monotonic() > end:
                raise LogUnavailable(f"{topic} cannot be read to its end within {READ_TIMEOUT_S:.0f} s")
        return state
    except KafkaException as error:
        raise LogUnavailable(f"{topic} cannot be read: {error}") from error
    finally:
        consumer.close()


def _apply(state: dict[str, Any], topic: str, key: Any, value: Any) -> None:
    try:
        name = key.decode()
        if value is None:
            state.pop(name, None)
        else:
            state[name] = json.loads(value)
    except (ValueError, AttributeError) as error:
        raise CaptureError(f"{topic} holds a record that no capture wrote: {key!r}: {error}") from error
