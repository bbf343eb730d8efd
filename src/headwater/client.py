"""The one way to reach a log: Kafka clients, configured alike, for our broker or any Apache Kafka.

A `Connection` is the bootstrap address and whatever else librdkafka needs (`security.protocol`, `sasl.*`, `ssl.*`),
under librdkafka's own names. Replacing the embedded broker by a cluster is replacing this value.

`Writer` produces and says, as a position token, how far a view must have got to have seen it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.errors import EnvironmentFailed
from headwater.positions import Position

__all__ = ["Connection", "Writer", "ensure_topics", "partitions_of", "watermarks"]

REQUEST_TIMEOUT_S = 30.0  # admin and metadata calls: past this the broker counts as unreachable

_log = logging.getLogger("headwater.kafka")  # what librdkafka says; it comes when a client is polled

SYSLOG_WARNING = 4  # librdkafka tells of every connection that comes and goes at the levels beyond

# When all brokers it knows are gone ("rebootstrap"), librdkafka strikes them off its list, but still waits for one of
# them if it was a group's coordinator: `send_offsets_to_transaction` never returns, whatever its time-out (its issues
# 5511 and 5456). So the list is kept; who finds nobody any more makes a new producer.
_TRANSACTIONAL = {"metadata.recovery.strategy": "none"}

# librdkafka's names whose values never reach a log, a page or an error message
SECRET_OPTIONS = frozenset(
    {"sasl.password", "ssl.key.password", "ssl.keystore.password", "sasl.oauthbearer.client.secret"}
)


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the log is and how to get in."""

    bootstrap_servers: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        shown = {k: "***" if k in SECRET_OPTIONS else v for k, v in self.options.items()}
        return f"Connection({self.bootstrap_servers!r}, {shown!r})"

    def client_options(self, **extra: Any) -> dict[str, Any]:
        """librdkafka's settings; keyword `linger_ms=5` becomes `linger.ms`."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "log_level": SYSLOG_WARNING,
            **self.options,
            **{name.replace("_", "."): value for name, value in extra.items()},
        }

    def producer(self, *, transactional_id: str | None = None, **extra: Any) -> Producer:
        """Idempotent, acks=all, and partitioned as the Java client does, so that topics of both join."""
        options = self.client_options(enable_idempotence=True, partitioner="murmur2_random", **extra)
        if transactional_id is not None:
            options = {**_TRANSACTIONAL, **options, "transactional.id": transactional_id}
        return Producer(options, logger=_log)

    def consumer(self, group: str, *, committed: bool = True, **extra: Any) -> Consumer:
        """Positions are the caller's to keep: nothing is committed behind its back."""
        options = {
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": False,
        }
        return Consumer({**options, **self.client_options(**extra)}, logger=_log)

    def admin(self) -> AdminClient:
        return AdminClient(self.client_options(), logger=_log)


class Writer:
    """Produces records and yields the position that covers them."""

    def __init__(self, connection: Connection, **options: Any) -> None:
        self._producer = connection.producer(**options)
        self._written: dict[tuple[str, int], int] = {}
        self._failed: list[KafkaError] = []

    def write(self, topic: str, value: bytes | None, *, key: bytes | None = None, **more: Any) -> None:
        """Queue one record; `more` is what confluent_kafka's produce takes (headers, timestamp, partition)."""
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=self._delivered, **more)
                break
            except BufferError:  # librdkafka's bounded queue is full: wait for deliveries
                self._producer.poll(0.1)
        self._producer.poll(0)

    def flush(self) -> str:
        """Wait until everything written is acknowledged; the token that covers all of it."""
        remaining = self._producer.flush(REQUEST_TIMEOUT_S)
        if self._failed or remaining:
            why = str(self._failed[0]) if self._failed else f"{remaining} records unacknowledged"
            self._failed.clear()
            raise EnvironmentFailed(f"writing failed: {why}; is the broker up and does the topic exist?")
        return Position(dict(self._written)).token()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(error)
            return
        where = (str(message.topic()), int(message.partition() or 0))
        self._written[where] = max(self._written.get(where, 0), int(message.offset() or 0) + 1)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.flush(REQUEST_TIMEOUT_S)


def ensure_topics(
    connection: Connection, names: Sequence[str], *, partitions: int = -1, config: Mapping[str, str] | None = None
) -> None:
    """Create the topics that are not there yet (-1: the broker's default number of partitions)."""
    if not names:
        return
    wanted = [NewTopic(n, num_partitions=partitions, replication_factor=-1, config=dict(config or {})) for n in names]
    admin = connection.admin()  # kept until the answers are in: its futures die with it
    for name, future in admin.create_topics(wanted, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            future.result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise EnvironmentFailed(f"cannot create topic {name!r}: {error.args[0].str()}") from error


def partitions_of(connection: Connection, topic: str) -> list[int]:
    """The partitions of a topic, in order; empty when it does not exist."""
    found = connection.admin().list_topics(timeout=REQUEST_TIMEOUT_S).topics.get(topic)
    return [] if found is None or found.error is not None else sorted(found.partitions)


def watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """First offset kept and next offset to be written (the last stable one for a committed reader)."""
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=REQUEST_TIMEOUT_S)
    return low, high
