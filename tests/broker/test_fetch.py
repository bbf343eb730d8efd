"""Fetching: long polls that are notified, offsets by time, bounds, positions, isolation."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headwater.wire.batches import split_batches
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headwater.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from .clients import DEADLINE_S, Record, assigned, create_topic, producer, read_everything, send, values
from .raw import RawClient, batch


@pytest.fixture
def raw(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(bootstrap) as client:
        yield client


# -- waiting


def test_a_waiting_fetch_is_answered_by_the_append_and_not_by_a_clock(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"poll-{unique}")
    waits_ms = []
    with RawClient(bootstrap) as reader, RawClient(bootstrap) as writer:
        for offset in range(30):
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=10_000, min_bytes=1, topics=(FetchTopic(topic=topic, partitions=(wanted,)),)
            )
            header = reader.send(request, 12)
            written = writer.produce(topic, batch(b"x"))
            acknowledged = time.perf_counter()
            assert written.base_offset == offset
            found = reader.receive(header).responses[0].partitions[0]
            waits_ms.append((time.perf_counter() - acknowledged) * 1e3)
            assert found.records
    # the reader hears of a record within moments of its writer; a broker that looks every n ms shows as n/2
    assert statistics.median(waits_ms) < 5, waits_ms


def test_a_waiting_fetch_without_news_ends_when_the_client_said(bootstrap: str, unique: str, raw: RawClient) -> None:
    topic = create_topic(bootstrap, f"patience-{unique}")
    started = time.perf_counter()
    found = raw.fetch(topic, 0, max_wait_ms=150)
    assert 0.14 < time.perf_counter() - started < 5
    assert not found.records
    assert found.error_code == ErrorCode.NONE


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"min-bytes-{unique}")
    with RawClient(bootstrap) as reader, RawClient(bootstrap) as writer:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        header = reader.send(
            FetchRequest(max_wait_ms=20_000, min_bytes=250, topics=(FetchTopic(topic=topic, partitions=(wanted,)),)),
            12,
        )
        writer.produce(topic, batch(b"x" * 100))
        reader.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            reader.receive(header)
        reader.socket.settimeout(DEADLINE_S)
        writer.produce(topic, batch(b"x" * 100))
        answer = reader.receive(header)
    assert len(list(split_batches(answer.responses[0].partitions[0].records))) == 2


def test_deleting_a_topic_wakes_those_who_wait_for_it(bootstrap: str, unique: str, raw: RawClient) -> None:
    topic = create_topic(bootstrap, f"deleted-{unique}")
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=(FetchTopic(topic=topic, partitions=(wanted,)),))
    header = raw.send(request, 12)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    threading.Timer(0.1, lambda: admin.delete_topics([topic])[topic].result(DEADLINE_S)).start()
    answer = raw.receive(header).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- bounds and positions


def test_one_batch_comes_whatever_the_bounds(bootstrap: str, unique: str, raw: RawClient) -> None:
    topic = create_topic(bootstrap, f"bounds-{unique}")
    for _ in range(3):
        raw.produce(topic, batch(b"x" * 1_000))
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10)
    request = FetchRequest(max_bytes=10, min_bytes=1, topics=(FetchTopic(topic=topic, partitions=(wanted,)),))
    found = raw.call(request, 12).responses[0].partitions[0]
    assert [header.base_offset for header, _ in split_batches(found.records)] == [0]


def test_a_position_inside_a_batch_is_answered_with_that_batch(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"inside-{unique}")
    with RawClient(bootstrap) as raw:
        raw.produce(topic, batch(b"a", b"b", b"c"))
        raw.produce(topic, batch(b"d"))
        found = raw.fetch(topic, 1)
        assert [header.base_offset for header, _ in split_batches(found.records or b"")] == [0, 3]
    with assigned(bootstrap, topic, start=1) as consumer:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert (message.offset(), message.value()) == (1, b"b")


def test_positions_outside_the_log_are_refused(bootstrap: str, unique: str, raw: RawClient) -> None:
    topic = create_topic(bootstrap, f"outside-{unique}")
    raw.produce(topic, batch(b"a"))
    assert raw.fetch(topic, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert raw.fetch(topic, 1).error_code == ErrorCode.NONE
    assert raw.fetch(f"nothing-{unique}", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_many_partitions_are_read_in_turn(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"many-{unique}", partitions=40)
    writer = producer(bootstrap)
    for partition in range(40):
        send(writer, topic, [b"%d" % partition] * 5, partition=partition)
    found = read_everything(bootstrap, topic, range(40), fetch_max_bytes=1_000, message_max_bytes=1_000)
    assert sorted(values(found)) == sorted(b"%d" % p for p in range(40) for _ in range(5))


def test_a_fetch_session_tells_only_what_changed(bootstrap: str, unique: str, raw: RawClient) -> None:
    topic = create_topic(bootstrap, f"session-{unique}", partitions=3)
    partitions = tuple(FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1 << 20) for p in range(3))
    first = raw.call(
        FetchRequest(session_epoch=0, min_bytes=1, topics=(FetchTopic(topic=topic, partitions=partitions),)), 12
    )
    assert first.session_id != 0
    assert len(first.responses[0].partitions) == 3
    assert raw.call(FetchRequest(session_id=first.session_id, session_epoch=1, min_bytes=1), 12).responses == ()
    raw.produce(topic, batch(b"x"))
    news = raw.call(FetchRequest(session_id=first.session_id, session_epoch=2, min_bytes=1), 12)
    assert [each.partition_index for each in news.responses[0].partitions] == [0]
    wrong = raw.call(FetchRequest(session_id=first.session_id, session_epoch=7, min_bytes=1), 12)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = raw.call(FetchRequest(session_id=first.session_id ^ 1, session_epoch=1, min_bytes=1), 12)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# -- offsets by time


def test_offsets_by_time(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"times-{unique}")
    base = int(time.time() * 1000) - 100_000
    writer = producer(bootstrap)
    for step in (0, 10, 50, 20, 30):  # the greatest is in the middle
        send(writer, topic, [Record(None, b"x", (), base + step)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partition = TopicPartition(topic, 0)

    def offset(spec: object) -> tuple[int, int]:
        found = admin.list_offsets({partition: spec})[partition].result(DEADLINE_S)
        return found.offset, found.timestamp - base if found.timestamp >= 0 else found.timestamp

    assert offset(OffsetSpec.earliest()) == (0, -1)
    assert offset(OffsetSpec.latest()) == (5, -1)
    assert offset(OffsetSpec.max_timestamp()) == (2, 50)
    assert offset(OffsetSpec.for_timestamp(base)) == (0, 0)
    assert offset(OffsetSpec.for_timestamp(base + 5)) == (1, 10)
    assert offset(OffsetSpec.for_timestamp(base + 11)) == (2, 50)
    assert offset(OffsetSpec.for_timestamp(base + 51)) == (-1, -1)


@pytest.mark.parametrize(
    ("special", "offset"),
    [(-1, 3), (-2, 1), (-3, 2), (-4, 1), (-5, -1)],
    ids=["latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered"],
)
def test_every_special_time(bootstrap: str, unique: str, raw: RawClient, special: int, offset: int) -> None:
    topic = create_topic(bootstrap, f"special-{unique}")
    for _ in range(3):
        raw.produce(topic, batch(b"x"))
        time.sleep(0.002)  # timestamps are milliseconds
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partition = TopicPartition(topic, 0, 1)
    admin.delete_records([partition])[partition].result(DEADLINE_S)
    wanted = ListOffsetsPartition(partition_index=0, timestamp=special)
    answer = raw.call(ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=(wanted,)),)))
    found = answer.topics[0].partitions[0]
    assert (found.error_code, found.offset) == (ErrorCode.NONE, offset)


def test_a_special_time_is_refused_in_a_version_that_did_not_know_it(
    bootstrap: str, unique: str, raw: RawClient
) -> None:
    topic = create_topic(bootstrap, f"version-{unique}")
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-3)
    answer = raw.call(ListOffsetsRequest(topics=(ListOffsetsTopic(name=topic, partitions=(wanted,)),)), 6)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION


def test_the_end_of_a_leader_epoch_is_known(bootstrap: str, unique: str, raw: RawClient) -> None:
    topic = create_topic(bootstrap, f"epoch-{unique}")
    raw.produce(topic, batch(b"a", b"b"))
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    answer = raw.call(
        OffsetForLeaderEpochRequest(replica_id=-1, topics=(OffsetForLeaderTopic(topic=topic, partitions=(wanted,)),))
    )
    found = answer.topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, 0, 2)


# -- isolation


def test_a_committed_reader_waits_at_an_open_transaction(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"open-{unique}")
    writer = producer(bootstrap, transactional_id=f"tx-{unique}")
    writer.init_transactions(DEADLINE_S)
    writer.begin_transaction()
    send(writer, topic, [b"1", b"2"])
    send(producer(bootstrap), topic, [b"3"])
    assert values(read_everything(bootstrap, topic, isolation_level="read_committed")) == []
    assert values(read_everything(bootstrap, topic, isolation_level="read_uncommitted")) == [b"1", b"2", b"3"]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partition = TopicPartition(topic, 0)
    for level, end in ((IsolationLevel.READ_COMMITTED, 0), (IsolationLevel.READ_UNCOMMITTED, 3)):
        found = admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=level)[partition]
        assert found.result(DEADLINE_S).offset == end
    writer.commit_transaction(DEADLINE_S)
    assert values(read_everything(bootstrap, topic, isolation_level="read_committed")) == [b"1", b"2", b"3"]


def test_aborted_records_are_seen_by_uncommitted_readers_only(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"aborted-{unique}")
    writer = producer(bootstrap, transactional_id=f"tx-{unique}")
    writer.init_transactions(DEADLINE_S)
    for number in range(6):
        writer.begin_transaction()
        send(writer, topic, [b"%d" % number])
        if number % 2:
            writer.abort_transaction(DEADLINE_S)
        else:
            writer.commit_transaction(DEADLINE_S)
    assert values(read_everything(bootstrap, topic, isolation_level="read_committed")) == [b"0", b"2", b"4"]
    uncommitted = values(read_everything(bootstrap, topic, isolation_level="read_uncommitted"))
    assert uncommitted == [b"%d" % n for n in range(6)]
