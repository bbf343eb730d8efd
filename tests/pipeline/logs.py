"""What tests of pipelines do with a log from outside: fill topics, read them committed, run queries to the end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, Message, TopicPartition

from headwater.client import Connection, Writer, ensure_topics, partitions_of
from headwater.pipeline.writing import METRICS
from headwater.positions import COVERAGE_TOPIC, Coverage

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

READ_TIMEOUT_S = 30.0
RUN_TIMEOUT_S = 90.0


def fill(log: Connection, topic: str, rows: Iterable[Mapping[str, Any] | bytes | None], *, key: str = "id") -> str:
    """Rows as JSON (bytes as they are), keyed by one of their fields; the position token that covers them."""
    ensure_topics(log, [topic], partitions=2)
    with Writer(log) as writer:
        for row in rows:
            if isinstance(row, bytes) or row is None:
                writer.write(topic, row, key=b"raw")
            else:
                writer.write(topic, json.dumps(row).encode(), key=str(row[key]).encode())
        return writer.flush()


def read(log: Connection, topic: str, *, committed: bool = True) -> list[Message]:
    """Every record of the topic up to its end, partition by partition."""
    consumer = log.consumer("tests", committed=committed, enable_partition_eof=True)
    partitions = partitions_of(log, topic)
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found: list[Message] = []
    ended: set[int] = set()
    try:
        while len(ended) < len(partitions):
            message = consumer.poll(READ_TIMEOUT_S)
            assert message is not None, f"{topic} did not answer within {READ_TIMEOUT_S} s"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(int(message.partition() or 0))
    finally:
        consumer.close()
    return sorted(found, key=lambda m: (m.partition() or 0, m.offset() or 0))


def values(log: Connection, topic: str) -> list[Any]:
    """The JSON values of the topic's committed records; None for tombstones."""
    return [None if m.value() is None else json.loads(m.value() or b"") for m in read(log, topic)]


def coverages(log: Connection, query: str) -> list[Coverage]:
    found = [Coverage.from_value(m.value() or b"") for m in read(log, COVERAGE_TOPIC) if m.value() is not None]
    return [coverage for coverage in found if coverage.query == query]


def finish(query: StreamingQuery) -> list[dict[str, Any]]:
    """Wait for a query with `availableNow`; what its batches say about the sink."""
    try:
        assert query.awaitTermination(int(RUN_TIMEOUT_S)), f"{query.name} has not ended after {RUN_TIMEOUT_S} s"
    finally:
        query.stop()
    found = []
    for progress in query.recentProgress:
        row = progress.observedMetrics.get(METRICS)
        if row is not None:
            found.append({"batch": progress.batchId, **row.asDict()})
    return found


ONCE = {"availableNow": True}
