"""One task's transaction: rows, marker, input positions and coverage become visible together or not at all.

The transactional id is `headwater-<query>-<task>`: opening a producer with it fences whoever wrote this task before,
be it an executor thought dead, a speculative copy or the driver of an earlier run, and settles what it left open.
Only then is the marker (see `markers`) looked at.

Producers are kept in their Python worker between batches. One that has committed an earlier batch of the same run
need not ask again: had anybody else written this task since, it would be fenced, and finds out with the first thing it
sends, the marker, before it takes a row.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from headwater.client import REQUEST_TIMEOUT_S, Connection, ensure_topics, partitions_of, watermarks
from headwater.pipeline.errors import WriteFailed
from headwater.pipeline.markers import Attempt, Marker, already_written
from headwater.positions import COVERAGE_TOPIC, Coverage, Position

__all__ = ["Transaction", "begin", "ensure_coverage_topic"]

TRANSACTION_TIMEOUT_MS = 300_000  # from a task's first row to its commit; longer and the broker aborts it
RETRY_BACKOFF_MS = 20  # while the broker still completes the transaction before: librdkafka's 100 would be seen
RECONNECT_BACKOFF_MS = 2  # first wait of an exponential back-off; librdkafka's 100 would be in every new producer
LINGER_MS = 10  # fuller batches; a task flushes at its end whatever the linger
QUEUE_MESSAGES_MAX = 100_000  # records waiting in librdkafka
QUEUE_BYTES_MAX = 64 << 20  # bytes queued between two waits for delivery
FLUSH_TIMEOUT_S = 120.0  # for the records of one task to be acknowledged
LIVE_PRODUCERS_MAX = 4  # kept by one Python worker; each has a few threads and connections
COVERAGE_KEPT_BATCHES = 1_000  # older coverage is deleted from its compacted topic; a follower then waits for a later
SCAN_TIMEOUT_S = 330.0  # for the end of the coverage topic to be stable: past any transaction's time-out
POSITIONS_TIMEOUT_S = 2 * REQUEST_TIMEOUT_S  # of ours, for a call that does not keep librdkafka's: see headwater.client
CONNECT_ATTEMPTS_MAX = 20  # metadata requests until one is answered by a broker of the cluster itself
SCAN_POLL_S = 1.0

_QUERY_ID_HEADER = "headwater.query.id"
_log = logging.getLogger("headwater.pipeline")
# librdkafka reports being fenced as an emergency; for us it is how a task learns that it has moved. What matters is
# raised as an error as well; whoever wants to see all of it adds a handler.
_client_log = logging.getLogger("headwater.pipeline.client")
_client_log.addHandler(logging.NullHandler())
_client_log.propagate = False


@dataclass(slots=True)
class _Groups:
    """What a worker keeps for a query's two groups: markers in `<query>.batches`, input positions in `<query>`."""

    consumer: Consumer  # asks for markers; never subscribed
    batches: Any  # the groups' metadata, as librdkafka wants it back
    inputs: Any

    @classmethod
    def of(cls, connection: Connection, query: str) -> _Groups:
        consumer = _consumer(connection, f"{query}.batches", reconnect_backoff_ms=RECONNECT_BACKOFF_MS)
        lender = _consumer(connection, query)
        groups = cls(consumer, consumer.consumer_group_metadata(), lender.consumer_group_metadata())
        lender.close()
        return groups


@dataclass(slots=True)
class _Live:
    """A producer that owns its transactional id as far as it knows."""

    producer: Producer
    groups: _Groups
    run_id: str
    last_batch: int = -1
    lost: bool = False  # in a call that does not return; closing it would not return either


_live: OrderedDict[tuple[str, str, int], _Live] = OrderedDict()
_groups: OrderedDict[tuple[str, str], _Groups] = OrderedDict()


def _consumer(connection: Connection, group: str, **more: Any) -> Consumer:
    return connection.consumer(group, logger=_client_log, **more)


def ensure_coverage_topic(connection: Connection, writers: int) -> None:
    """The compacted topic of coverages has a partition for every task: markers and coverage go by task number."""
    have = len(partitions_of(connection, COVERAGE_TOPIC))
    if have == 0:
        ensure_topics(connection, [COVERAGE_TOPIC], partitions=writers, config={"cleanup.policy": "compact"})
    elif have < writers:
        admin = connection.admin()
        grown = admin.create_partitions([NewPartitions(COVERAGE_TOPIC, writers)])
        try:
            grown[COVERAGE_TOPIC].result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            if len(partitions_of(connection, COVERAGE_TOPIC)) < writers:  # another query may have been faster
                raise WriteFailed(
                    f"cannot give {COVERAGE_TOPIC} {writers} partitions: {error.args[0].str()}"
                ) from error


def begin(connection: Connection, attempt: Attempt, inputs: Position) -> Transaction | None:
    """An open transaction that already holds the marker; None when this task of this batch is already written."""
    live = _live.pop((connection.bootstrap_servers, attempt.query, attempt.task), None)
    if live is not None and live.run_id == attempt.run_id and live.last_batch < attempt.batch:
        try:
            return _started(connection, attempt, inputs, live, reused=True)
        except KafkaException as error:
            _log.info("%s: written elsewhere since: %s", _where(attempt), error.args[0])
    _close(live)
    try:
        return _begin_anew(connection, attempt, inputs)
    except KafkaException as error:
        raise WriteFailed(f"{_where(attempt)}: cannot start a transaction: {error.args[0].str()}") from error


def _begin_anew(connection: Connection, attempt: Attempt, inputs: Position) -> Transaction | None:
    live = _Live(_producer(connection, attempt), _groups_of(connection, attempt.query), attempt.run_id)
    try:
        tasks = _tasks_ever(live.producer, connection, attempt)
        live.producer.init_transactions(REQUEST_TIMEOUT_S)
        if already_written(attempt, _markers(connection, attempt, live.groups.consumer, tasks)):
            _close(live)
            return None
        return _started(connection, attempt, inputs, live, reused=False)
    except BaseException:
        _close(live)
        raise


def _producer(connection: Connection, attempt: Attempt) -> Producer:
    return connection.producer(
        transactional_id=f"headwater-{attempt.query}-{attempt.task}",
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        retry_backoff_ms=RETRY_BACKOFF_MS,
        reconnect_backoff_ms=RECONNECT_BACKOFF_MS,
        linger_ms=LINGER_MS,
        queue_buffering_max_messages=QUEUE_MESSAGES_MAX * 2,
        compression_type="lz4",
        logger=_client_log,
    )


def _tasks_ever(producer: Producer, connection: Connection, attempt: Attempt) -> int:
    """How many tasks may have left a marker: the coverage topic has a partition for each.

    Asking until a broker of the cluster answers, not the bootstrap address, also connects the producer: starting
    transactions before that costs a timer of half a second inside librdkafka (measured: 505 ms against 18).
    """
    for _ in range(CONNECT_ATTEMPTS_MAX):
        cluster = producer.list_topics(COVERAGE_TOPIC, REQUEST_TIMEOUT_S)
        if cluster.orig_broker_id >= 0:
            break
    topic = cluster.topics.get(COVERAGE_TOPIC)
    found = 0 if topic is None or topic.error is not None else len(topic.partitions)
    if found >= attempt.writers:
        return found
    ensure_coverage_topic(connection, attempt.writers)
    return attempt.writers


def _groups_of(connection: Connection, query: str) -> _Groups:
    place = (connection.bootstrap_servers, query)
    groups = _groups.pop(place, None) or _Groups.of(connection, query)
    _groups[place] = groups
    while len(_groups) > LIVE_PRODUCERS_MAX:
        _groups.popitem(last=False)[1].consumer.close()
    return groups


def _started(connection: Connection, attempt: Attempt, inputs: Position, live: _Live, *, reused: bool) -> Transaction:
    marker = TopicPartition(COVERAGE_TOPIC, attempt.task, attempt.batch, metadata=attempt.marker().metadata())
    live.producer.begin_transaction()
    _send_positions(live, [marker], live.groups.batches)
    if attempt.task == 0 and inputs.offsets:
        read = [TopicPartition(topic, partition, offset) for topic, partition, offset in inputs]
        _send_positions(live, read, live.groups.inputs)
    return Transaction(connection, attempt, inputs, live, reused)


def _send_positions(live: _Live, positions: list[TopicPartition], group: Any) -> None:
    """On a thread that may be left behind: a broker that leaves its cluster can have the call wait for ever.

    It ends, fenced by the producer that takes over, with the next change of any of its connections.
    """
    failed: list[KafkaException] = []

    def send() -> None:
        try:
            live.producer.send_offsets_to_transaction(positions, group, REQUEST_TIMEOUT_S)
        except KafkaException as error:
            failed.append(error)

    sending = threading.Thread(target=send, name="headwater-positions", daemon=True)
    sending.start()
    sending.join(POSITIONS_TIMEOUT_S)
    if sending.is_alive():
        live.lost = True
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the group's coordinator is not found again"))
    if failed:
        raise failed[0]


def _markers(connection: Connection, attempt: Attempt, consumer: Consumer, tasks: int) -> dict[int, Marker]:
    """Of every task there is or was; this task's own from the coverage topic if the group has forgotten it."""
    found = consumer.committed([TopicPartition(COVERAGE_TOPIC, task) for task in range(tasks)], REQUEST_TIMEOUT_S)
    markers = {}
    for place in found:
        if place.error is not None:
            raise KafkaException(place.error)
        if place.offset >= 0:
            markers[place.partition] = Marker.parse(place.offset, place.metadata or "")
    if attempt.task not in markers and (kept := _marker_in_coverage(connection, attempt)) is not None:
        markers[attempt.task] = kept
    return markers


def _marker_in_coverage(connection: Connection, attempt: Attempt) -> Marker | None:
    """Brokers forget the offsets of groups that are silent for days; the coverage topic has the same commit."""
    everything = _consumer(connection, f"{attempt.query}.batches", committed=False)
    low, high = watermarks(everything, COVERAGE_TOPIC, attempt.task)
    everything.close()
    if low == high:
        return None
    reader = _consumer(connection, f"{attempt.query}.batches", enable_partition_eof=True)
    reader.assign([TopicPartition(COVERAGE_TOPIC, attempt.task, low)])
    try:
        return attempt.marker() if _contains(reader, high, attempt) else None
    finally:
        reader.close()


def _contains(reader: Consumer, end: int, attempt: Attempt) -> bool:
    """Whether the coverage of `attempt` is committed before `end`; waits while open transactions hide the answer."""
    key = Coverage(attempt.query, attempt.task, 0, attempt.batch, Position(), Position()).key()
    deadline = time.monotonic() + SCAN_TIMEOUT_S
    while time.monotonic() < deadline:
        message = reader.poll(SCAN_POLL_S)
        if message is None:
            continue
        error = message.error()
        if error is None:
            if message.key() == key and message.value() is not None and _query_id(message) == attempt.query_id:
                return True
        elif error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        elif (message.offset() or 0) >= end:
            return False
    raise WriteFailed(f"{_where(attempt)}: {COVERAGE_TOPIC} has had an open transaction for {SCAN_TIMEOUT_S:.0f} s")


def _query_id(message: Message) -> str | None:
    headers = dict(message.headers() or [])
    value = headers.get(_QUERY_ID_HEADER)
    return value.decode() if isinstance(value, bytes) else None


@dataclass(slots=True)
class Transaction:
    """Open from `begin` to `commit` or `abort`; used by one thread."""

    connection: Connection
    attempt: Attempt
    inputs: Position
    live: _Live
    reused: bool  # whether the producer of an earlier batch could go on
    outputs: dict[tuple[str, int], int] = field(default_factory=dict)
    failed: KafkaError | None = None
    queued_bytes: int = 0

    def send(self, topic: str, messages: Sequence[dict[str, Any]], size_bytes: int) -> None:
        """Queue records without headers, in order."""
        producer = self.live.producer
        for start in range(0, len(messages), QUEUE_MESSAGES_MAX):
            chunk = list(messages[start : start + QUEUE_MESSAGES_MAX])
            self._make_room(size_bytes * len(chunk) // len(messages))
            queued = producer.produce_batch(topic, chunk, on_delivery=self._delivered)
            producer.poll(0)
            if queued != len(chunk):
                refused = next(message["_error"] for message in chunk if "_error" in message)
                raise WriteFailed(f"{_where(self.attempt)}: a record for {topic!r} was refused: {refused}")

    def send_one(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, str | bytes | None]],
        **more: Any,
    ) -> None:
        """Queue a record with headers (`more`: partition, timestamp in milliseconds)."""
        self._make_room(len(key or b"") + len(value or b""))
        self.live.producer.produce(topic, value, key, headers=list(headers), on_delivery=self._delivered, **more)
        self.live.producer.poll(0)

    def commit(self) -> Position:
        """Everything sent becomes visible, with the coverage of this task; the positions after its last records."""
        attempt, producer = self.attempt, self.live.producer
        try:
            self._flush()
            outputs = Position(dict(self.outputs))
            self._send_coverage(outputs)
            producer.commit_transaction(FLUSH_TIMEOUT_S)
        except KafkaException as error:
            self.abort()
            raise WriteFailed(f"{_where(attempt)}: not committed: {error.args[0].str()}") from error
        except WriteFailed:
            self.abort()
            raise
        self.live.last_batch = attempt.batch
        _keep((self.connection.bootstrap_servers, attempt.query, attempt.task), self.live)
        return outputs

    def abort(self) -> None:
        """Nothing of it becomes visible; the producer is not used again."""
        try:
            self.live.producer.abort_transaction(REQUEST_TIMEOUT_S)
        except KafkaException as error:  # fenced, or the broker is gone: it aborts by itself
            _log.info("%s: abort: %s", _where(self.attempt), error.args[0])
        _close(self.live)

    def _make_room(self, size_bytes: int) -> None:
        """Bounds what librdkafka holds: by bytes and, since its queue is twice this long, by records."""
        if self.queued_bytes + size_bytes > QUEUE_BYTES_MAX or len(self.live.producer) >= QUEUE_MESSAGES_MAX:
            self._flush()
        self.queued_bytes += size_bytes

    def _flush(self) -> None:
        remaining = self.live.producer.flush(FLUSH_TIMEOUT_S)
        self.queued_bytes = 0
        if self.failed is not None:
            raise WriteFailed(f"{_where(self.attempt)}: {self.failed.str()}")
        if remaining:
            raise WriteFailed(
                f"{_where(self.attempt)}: {remaining} records unacknowledged after {FLUSH_TIMEOUT_S:.0f} s"
            )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed = self.failed or error
        else:  # acknowledged in order within a partition: the last one stays
            place = (message.topic() or "", message.partition() or 0)
            self.outputs[place] = (message.offset() or 0) + 1

    def _send_coverage(self, outputs: Position) -> None:
        attempt, producer = self.attempt, self.live.producer
        coverage = Coverage(attempt.query, attempt.task, attempt.writers, attempt.batch, self.inputs, outputs)
        producer.produce(
            COVERAGE_TOPIC,
            coverage.value(),
            coverage.key(),
            partition=attempt.task,
            headers=[(_QUERY_ID_HEADER, attempt.query_id.encode())],
        )
        old = attempt.batch - COVERAGE_KEPT_BATCHES
        if old >= 0:
            key = Coverage(attempt.query, attempt.task, attempt.writers, old, self.inputs, outputs).key()
            producer.produce(COVERAGE_TOPIC, None, key, partition=attempt.task)


def _keep(place: tuple[str, str, int], live: _Live) -> None:
    _live[place] = live
    while len(_live) > LIVE_PRODUCERS_MAX:
        _close(_live.popitem(last=False)[1])


def _close(live: _Live | None) -> None:
    """Leave nothing behind; a producer that was fenced says so once more, which is no news."""
    if live is None or live.lost:
        return
    with contextlib.suppress(KafkaException), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        live.producer.close()


def _where(attempt: Attempt) -> str:
    return f"query {attempt.query!r}, batch {attempt.batch}, task {attempt.task}"
