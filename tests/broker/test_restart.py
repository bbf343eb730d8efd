"""What a stop and a start leave as it was: topics, settings, records, groups' offsets, producers, transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from headwater import Broker
from headwater.testing.waiting import eventually
from headwater.wire.batches import split_batches
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.describe_transactions import DescribeTransactionsRequest
from headwater.wire.messages.end_txn import EndTxnRequest
from headwater.wire.messages.init_producer_id import InitProducerIdRequest
from headwater.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from .clients import DEADLINE_S, create_topic, poll_until, producer, read_everything, send, subscribed, values
from .raw import RawClient, batch


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "log"


@contextmanager
def running(data: Path, **settings: object) -> Iterator[str]:
    with Broker(data, **settings) as broker:
        yield broker.bootstrap_servers


def test_topics_settings_and_records_are_there_again(data: Path) -> None:
    with running(data) as bootstrap, RawClient(bootstrap) as raw:
        create_topic(bootstrap, "kept", partitions=3, retention_ms=123_000)
        create_topic(bootstrap, "deleted")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_topics(["deleted"])["deleted"].result(DEADLINE_S)
        entry = ConfigEntry("max.message.bytes", "5000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "kept", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
        topic_id = raw.topic_id("kept")
        send(producer(bootstrap), "kept", [b"a", b"b"], partition=2)
    with running(data) as bootstrap, RawClient(bootstrap) as raw:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = admin.list_topics(timeout=DEADLINE_S).topics
        assert {name: len(topic.partitions) for name, topic in topics.items() if not name.startswith("__")} == {
            "kept": 3
        }
        assert raw.topic_id("kept") == topic_id
        resource = ConfigResource(ResourceType.TOPIC, "kept")
        settings = admin.describe_configs([resource])[resource].result(DEADLINE_S)
        assert (settings["retention.ms"].value, settings["max.message.bytes"].value) == ("123000", "5000")
        assert values(read_everything(bootstrap, "kept", (0, 1, 2))) == [b"a", b"b"]
        assert send(producer(bootstrap), "kept", [b"c"], partition=2) == [2]


def test_each_start_is_a_new_leader_epoch(data: Path) -> None:
    with running(data) as bootstrap:
        create_topic(bootstrap, "t")
    for epoch in (1, 2, 3):
        with running(data) as bootstrap, RawClient(bootstrap) as raw:
            assert raw.produce("t", batch(b"x")).error_code == ErrorCode.NONE
            found = [header.leader_epoch for header, _ in split_batches(raw.fetch("t", 0).records or b"")]
            assert found == list(range(1, epoch + 1))


def test_committed_offsets_are_there_again(data: Path) -> None:
    for protocol in ("classic", "consumer"):
        with running(data) as bootstrap:
            topic = create_topic(bootstrap, f"offsets-{protocol}")
            send(producer(bootstrap), topic, [b"1", b"2", b"3"])
            with subscribed(bootstrap, [topic], protocol, group_protocol=protocol) as consumer:
                found = poll_until([consumer], lambda seen: len(seen) == 3, "all records")
                consumer.commit(message=found[1], asynchronous=False)
    with running(data) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for protocol in ("classic", "consumer"):
            request = ConsumerGroupTopicPartitions(protocol, [TopicPartition(f"offsets-{protocol}", 0)])
            found_offset = admin.list_consumer_group_offsets([request])[protocol].result(DEADLINE_S)
            assert found_offset.topic_partitions[0].offset == 2


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_go_on_through_a_restart(data: Path, protocol: str) -> None:
    with running(data) as bootstrap:
        port = bootstrap.rpartition(":")[2]
        topic = create_topic(bootstrap, "through", partitions=2)
        send(producer(bootstrap), topic, [b"before"])
        broker = subscribed(bootstrap, [topic], "g", group_protocol=protocol, reconnect_backoff_max_ms=100)
        consumer = broker.__enter__()
        found = poll_until([consumer], lambda seen: len(seen) == 1, "what came before")
        consumer.commit(message=found[0], asynchronous=False)
    with Broker(data, f"127.0.0.1:{port}") as again:
        send(producer(again.bootstrap_servers), topic, [b"after"])
        found = poll_until([consumer], lambda seen: b"after" in values(seen), "what came after")
        assert b"before" not in values(found)
        broker.__exit__(None, None, None)


def test_a_retry_across_a_restart_is_written_once(data: Path) -> None:
    with running(data) as bootstrap, RawClient(bootstrap) as raw:
        create_topic(bootstrap, "t")
        me = raw.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)).producer_id
        sent = batch(b"x", producer_id=me, epoch=0, sequence=0)
        assert raw.produce("t", sent).base_offset == 0
    with running(data) as bootstrap, RawClient(bootstrap) as raw:
        assert raw.produce("t", sent).base_offset == 0
        assert raw.produce("t", batch(b"y", producer_id=me, epoch=0, sequence=1)).base_offset == 1
        other = raw.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)).producer_id
        assert other != me
        assert values(read_everything(bootstrap, "t")) == [b"x", b"y"]


def open_transaction(raw: RawClient, name: str, topic: str, value: bytes) -> tuple[int, int]:
    found = raw.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))
    records = batch(value, producer_id=found.producer_id, epoch=found.producer_epoch, sequence=0, transactional=True)
    data = TopicProduceData(
        topic_id=raw.topic_id(topic), partition_data=(PartitionProduceData(index=0, records=records),)
    )
    answer = raw.call(ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1_000, topic_data=(data,)))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return found.producer_id, found.producer_epoch


def test_an_open_transaction_is_still_open_and_can_be_committed(data: Path) -> None:
    with running(data) as bootstrap, RawClient(bootstrap) as raw:
        create_topic(bootstrap, "t")
        me, epoch = open_transaction(raw, "tx", "t", b"x")
    with running(data) as bootstrap, RawClient(bootstrap) as raw:
        assert read_everything(bootstrap, "t", isolation_level="read_committed") == []
        (found,) = raw.call(DescribeTransactionsRequest(transactional_ids=("tx",))).transaction_states
        assert (found.transaction_state, found.producer_id) == ("Ongoing", me)
        ended = raw.call(EndTxnRequest(transactional_id="tx", producer_id=me, producer_epoch=epoch, committed=True))
        assert ended.error_code == ErrorCode.NONE
        assert values(read_everything(bootstrap, "t", isolation_level="read_committed")) == [b"x"]


def test_an_open_transaction_is_aborted_by_its_producers_return(data: Path) -> None:
    with running(data) as bootstrap, RawClient(bootstrap) as raw:
        create_topic(bootstrap, "t")
        open_transaction(raw, "tx", "t", b"lost")
    with running(data) as bootstrap:
        writer: Producer = producer(bootstrap, transactional_id="tx")
        writer.init_transactions(DEADLINE_S)
        writer.begin_transaction()
        send(writer, "t", [b"kept"])
        writer.commit_transaction(DEADLINE_S)
        eventually(
            lambda: values(read_everything(bootstrap, "t", isolation_level="read_committed")) == [b"kept"],
            deadline_s=DEADLINE_S,
        )


def test_a_stopped_broker_frees_its_port_and_its_directory(data: Path) -> None:
    with running(data) as bootstrap:
        address = bootstrap
    for _ in range(3):
        with Broker(data, address) as broker:
            assert broker.bootstrap_servers == address
