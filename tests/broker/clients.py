"""Real clients, in the few words that the tests of this folder need. Everything here works against any Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import aiokafka
import kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from headwater.testing.waiting import eventually

__all__ = [
    "CODECS",
    "WRITERS",
    "Record",
    "assigned",
    "create_topic",
    "poll_until",
    "producer",
    "read_everything",
    "send",
    "subscribed",
    "values",
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_S = 30.0  # for anything that takes milliseconds on an idle machine

Headers = tuple[tuple[str, bytes], ...]


class Record(NamedTuple):
    """What was written, and must be read."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


# -- confluent-kafka


def producer(bootstrap: str, **options: Any) -> Producer:
    """`acks=all`, at once; keyword `linger_ms` is `linger.ms`."""
    chosen = {"linger.ms": 0, **{name.replace("_", "."): value for name, value in options.items()}}
    return Producer({"bootstrap.servers": bootstrap, **chosen})


def send(to: Producer, topic: str, records: Iterable[bytes | Record], *, partition: int = 0) -> list[int]:
    """Produce and wait: the offsets, in order. The first failure is raised."""
    offsets: list[int] = []
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offsets.append(int(message.offset() or 0))
        else:
            failed.append(error)

    for each in records:
        record = each if isinstance(each, Record) else Record(None, each, (), 0)
        to.produce(
            topic,
            record.value,
            record.key,
            partition=partition,
            on_delivery=delivered,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
    assert to.flush(DEADLINE_S) == 0, "records are unacknowledged"
    if failed:
        raise KafkaException(failed[0])
    return offsets


@contextmanager
def assigned(bootstrap: str, topic: str, partitions: Sequence[int] = (0,), **options: Any) -> Iterator[Consumer]:
    """A consumer of fixed partitions from their beginning, that belongs to no group in use."""
    chosen = {name.replace("_", "."): value for name, value in options.items()}
    start = int(chosen.pop("start", -2))
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            **chosen,
        }
    )
    consumer.list_topics(topic, DEADLINE_S)  # without a known leader librdkafka waits a second before it asks again
    consumer.assign([TopicPartition(topic, partition, start) for partition in partitions])
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def subscribed(bootstrap: str, topics: Sequence[str], group: str, **options: Any) -> Iterator[Consumer]:
    """A member of a group, from the beginning of its topics."""
    chosen = {name.replace("_", "."): value for name, value in options.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
            **({"heartbeat.interval.ms": 100} if chosen.get("group.protocol") != "consumer" else {}),
            **chosen,
        }
    )
    consumer.subscribe(list(topics))
    try:
        yield consumer
    finally:
        consumer.close()


def read_everything(bootstrap: str, topic: str, partitions: Sequence[int] = (0,), **options: Any) -> list[Message]:
    """Every record up to the end that this reader may see."""
    found: list[Message] = []
    unfinished = set(partitions)
    end = time.monotonic() + DEADLINE_S
    with assigned(bootstrap, topic, partitions, **options) as consumer:
        while unfinished:
            assert time.monotonic() < end, f"{topic}: no end of {unfinished} after {len(found)} records"
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(int(message.partition() or 0))
            else:
                raise KafkaException(error)
    return found


def values(messages: Iterable[Message]) -> list[bytes]:
    return [bytes(message.value() or b"") for message in messages]


def poll_until(consumers: Sequence[Consumer], enough: Callable[[list[Message]], bool], what: str) -> list[Message]:
    """Poll all of them in turn until what they got is enough."""
    found: list[Message] = []
    end = time.monotonic() + DEADLINE_S
    while not enough(found):
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what}; there are {len(found)} records"
        for consumer in consumers:
            message = consumer.poll(0.02)
            if message is not None:
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if error is None:
                    found.append(message)
    return found


def create_topic(bootstrap: str, name: str, partitions: int = 1, **config: object) -> str:
    """The topic's name, once it is there; keyword `retention_ms` is `retention.ms`."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    chosen = {key.replace("_", "."): str(value) for key, value in config.items()}
    wanted = NewTopic(name, num_partitions=partitions, replication_factor=1, config=chosen)
    admin.create_topics([wanted])[name].result(DEADLINE_S)
    eventually(lambda: _led(admin, name, partitions), deadline_s=DEADLINE_S, what=f"{name} has leaders")
    return name


def _led(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Whether requests about every partition are answered: a real Kafka tells its brokers of a topic a little later."""
    wanted = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(partitions)}
    with contextlib.suppress(KafkaException):
        return all(found.result(DEADLINE_S).offset == 0 for found in admin.list_offsets(wanted).values())
    return False


# -- the same for kafka-python and aiokafka


def write_confluent(
    bootstrap: str, topic: str, records: Sequence[Record], codec: str, transactional: str | None
) -> None:
    options: dict[str, Any] = {"compression_type": codec, "linger_ms": 50}
    if transactional is None:
        send(producer(bootstrap, **options), topic, records)
        return
    writer = producer(bootstrap, transactional_id=transactional, **options)
    writer.init_transactions(DEADLINE_S)
    writer.begin_transaction()
    send(writer, topic, records)
    writer.commit_transaction(DEADLINE_S)


def write_kafka_python(
    bootstrap: str, topic: str, records: Sequence[Record], codec: str, transactional: str | None
) -> None:
    options: dict[str, Any] = {"compression_type": None if codec == "none" else codec, "linger_ms": 50}
    if transactional is not None:
        options["transactional_id"] = transactional
    writer = kafka.KafkaProducer(bootstrap_servers=bootstrap, **options)
    try:
        if transactional is not None:
            writer.init_transactions()
            writer.begin_transaction()
        futures = [
            writer.send(topic, r.value, r.key, list(r.headers), partition=0, timestamp_ms=r.timestamp_ms)
            for r in records
        ]
        writer.flush(DEADLINE_S)
        for future in futures:
            future.get(DEADLINE_S)
        if transactional is not None:
            writer.commit_transaction()
    finally:
        writer.close()


def write_aiokafka(
    bootstrap: str, topic: str, records: Sequence[Record], codec: str, transactional: str | None
) -> None:
    asyncio.run(_write_aiokafka(bootstrap, topic, records, codec, transactional))


async def _write_aiokafka(
    bootstrap: str, topic: str, records: Sequence[Record], codec: str, transactional: str | None
) -> None:
    writer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        transactional_id=transactional,
        enable_idempotence=True,
        linger_ms=50,
    )
    await writer.start()
    try:
        if transactional is not None:
            async with writer.transaction():
                await _send_aiokafka(writer, topic, records)
        else:
            await _send_aiokafka(writer, topic, records)
    finally:
        await writer.stop()


async def _send_aiokafka(writer: Any, topic: str, records: Sequence[Record]) -> None:
    sent = [
        await writer.send(
            topic, value=r.value, key=r.key, headers=list(r.headers), partition=0, timestamp_ms=r.timestamp_ms
        )
        for r in records
    ]
    for each in sent:
        await asyncio.wait_for(each, DEADLINE_S)


def read_confluent(bootstrap: str, topic: str, count: int) -> list[Record]:
    found = read_everything(bootstrap, topic)
    assert len(found) == count
    return [
        Record(m.key(), m.value(), tuple((k, v) for k, v in m.headers() or ()), m.timestamp()[1])  # type: ignore[arg-type]
        for m in found
    ]


def read_kafka_python(bootstrap: str, topic: str, count: int) -> list[Record]:
    reader = kafka.KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    try:
        partition = kafka.TopicPartition(topic, 0)
        reader.assign([partition])
        reader.seek_to_beginning(partition)
        found: list[Record] = []
        end = time.monotonic() + DEADLINE_S
        while len(found) < count and time.monotonic() < end:
            for batch in reader.poll(timeout_ms=200).values():
                found += [Record(r.key, r.value, tuple(map(tuple, r.headers)), r.timestamp) for r in batch]
        return found
    finally:
        reader.close()


def read_aiokafka(bootstrap: str, topic: str, count: int) -> list[Record]:
    return asyncio.run(_read_aiokafka(bootstrap, topic, count))


async def _read_aiokafka(bootstrap: str, topic: str, count: int) -> list[Record]:
    reader = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    await reader.start()
    try:
        partition = aiokafka.TopicPartition(topic, 0)
        reader.assign([partition])
        await reader.seek_to_beginning(partition)
        found: list[Record] = []
        end = time.monotonic() + DEADLINE_S
        while len(found) < count and time.monotonic() < end:
            for batch in (await reader.getmany(timeout_ms=200)).values():
                found += [Record(r.key, r.value, tuple(r.headers), r.timestamp) for r in batch]
        return found
    finally:
        await reader.stop()


WRITERS = {"confluent": write_confluent, "kafka-python": write_kafka_python, "aiokafka": write_aiokafka}
READERS = {"confluent": read_confluent, "kafka-python": read_kafka_python, "aiokafka": read_aiokafka}
