"""Transactions as real clients make them, and by hand: both flows, fencing, time-outs, offsets, what can be seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import aiokafka
import kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater.testing.waiting import eventually
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headwater.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headwater.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headwater.wire.messages.describe_transactions import DescribeTransactionsRequest
from headwater.wire.messages.end_txn import EndTxnRequest
from headwater.wire.messages.init_producer_id import InitProducerIdRequest
from headwater.wire.messages.list_transactions import ListTransactionsRequest
from headwater.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from .clients import DEADLINE_S, create_topic, poll_until, producer, read_everything, send, subscribed, values
from .raw import RawClient, batch


@pytest.fixture
def raw(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(bootstrap) as client:
        yield client


def transactional(bootstrap: str, name: str, **options: object) -> Producer:
    writer = producer(bootstrap, transactional_id=name, **options)
    writer.init_transactions(DEADLINE_S)
    return writer


def committed(bootstrap: str, topic: str, partitions: tuple[int, ...] = (0,)) -> list[bytes]:
    return values(read_everything(bootstrap, topic, partitions, isolation_level="read_committed"))


# -- clients


def test_a_transaction_covers_partitions_of_several_topics(bootstrap: str, unique: str) -> None:
    one, two = create_topic(bootstrap, f"one-{unique}", partitions=2), create_topic(bootstrap, f"two-{unique}")
    writer = transactional(bootstrap, f"tx-{unique}")
    writer.begin_transaction()
    for topic, partition in ((one, 0), (one, 1), (two, 0)):
        send(writer, topic, [b"x"], partition=partition)
    assert committed(bootstrap, one, (0, 1)) == committed(bootstrap, two) == []
    writer.commit_transaction(DEADLINE_S)
    assert committed(bootstrap, one, (0, 1)) == [b"x", b"x"]
    assert committed(bootstrap, two) == [b"x"]


def test_a_second_producer_of_the_same_name_fences_the_first(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"fence-{unique}")
    first = transactional(bootstrap, f"tx-{unique}")
    first.begin_transaction()
    send(first, topic, [b"lost"])
    second = transactional(bootstrap, f"tx-{unique}")
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(DEADLINE_S)
    assert fenced.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    second.begin_transaction()
    send(second, topic, [b"kept"])
    second.commit_transaction(DEADLINE_S)
    assert committed(bootstrap, topic) == [b"kept"]


def test_a_transaction_past_its_time_out_is_aborted(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"late-{unique}")
    writer = transactional(bootstrap, f"tx-{unique}", transaction_timeout_ms=1_000)
    writer.begin_transaction()
    send(writer, topic, [b"late"])
    send(producer(bootstrap), topic, [b"after"])
    eventually(lambda: committed(bootstrap, topic) == [b"after"], deadline_s=DEADLINE_S)
    with pytest.raises(KafkaException):
        writer.commit_transaction(DEADLINE_S)


def test_consume_transform_produce_moves_the_offsets_with_the_records(bootstrap: str, unique: str) -> None:
    source, target = create_topic(bootstrap, f"source-{unique}"), create_topic(bootstrap, f"target-{unique}")
    group = f"group-{unique}"
    send(producer(bootstrap), source, [b"1", b"2", b"3"])
    writer = transactional(bootstrap, f"tx-{unique}")
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def position() -> int:
        request = ConsumerGroupTopicPartitions(group, [TopicPartition(source, 0)])
        found = admin.list_consumer_group_offsets([request])[group].result(DEADLINE_S)
        return int(found.topic_partitions[0].offset)

    with subscribed(bootstrap, [source], group) as reader:
        found = poll_until([reader], lambda seen: len(seen) == 3, "three records")
        for outcome in ("abort", "commit"):
            writer.begin_transaction()
            send(writer, target, [value + b"!" for value in values(found)])
            writer.send_offsets_to_transaction(
                [TopicPartition(source, 0, 3)], reader.consumer_group_metadata(), DEADLINE_S
            )
            if outcome == "abort":
                writer.abort_transaction(DEADLINE_S)
                assert position() < 0
            else:
                writer.commit_transaction(DEADLINE_S)
        eventually(lambda: position() == 3, what="the committed position")
    assert committed(bootstrap, target) == [b"1!", b"2!", b"3!"]


def test_kafka_python_aborts_and_commits(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"kp-{unique}")
    writer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"tx-{unique}")
    try:
        writer.init_transactions()
        writer.begin_transaction()
        writer.send(topic, b"no").get(DEADLINE_S)
        writer.abort_transaction()
        writer.begin_transaction()
        writer.send(topic, b"yes").get(DEADLINE_S)
        writer.commit_transaction()
    finally:
        writer.close()
    assert committed(bootstrap, topic) == [b"yes"]


def test_aiokafka_aborts_and_commits(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"aio-{unique}")

    async def write() -> None:
        writer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"tx-{unique}")
        await writer.start()
        try:
            await writer.begin_transaction()
            await writer.send_and_wait(topic, b"no")
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send_and_wait(topic, b"yes")
        finally:
            await writer.stop()

    asyncio.run(write())
    assert committed(bootstrap, topic) == [b"yes"]


# -- by hand


def init(raw: RawClient, name: str, version: int = 5) -> tuple[int, int]:
    answer = raw.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), version)
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id, answer.producer_epoch


def produced(raw: RawClient, request: ProduceRequest) -> int:
    return int(raw.call(request).responses[0].partition_responses[0].error_code)


def unless_concurrent(ask: Callable[[], int]) -> int:
    """The answer once the transaction before is over: a real Kafka ends it after it has said so."""
    codes: list[int] = []

    def settled() -> bool:
        codes.append(ask())
        return codes[-1] != ErrorCode.CONCURRENT_TRANSACTIONS

    eventually(settled, deadline_s=DEADLINE_S, what="the transaction before is over")
    return codes[-1]


def test_the_older_flow_names_its_partitions_first(bootstrap: str, unique: str, raw: RawClient) -> None:
    topic, name = create_topic(bootstrap, f"tv0-{unique}"), f"tx-{unique}"
    me, epoch = init(raw, name, 0)
    sent = batch(b"x", producer_id=me, epoch=epoch, sequence=0, transactional=True)
    refused = raw.produce(topic, sent, transactional_id=name)
    assert refused.error_code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
    added = raw.call(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=me,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic, partitions=(0,)),),
        ),
        0,
    )
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == ErrorCode.NONE
    assert raw.produce(topic, sent, transactional_id=name).error_code == ErrorCode.NONE
    ended = raw.call(EndTxnRequest(transactional_id=name, producer_id=me, producer_epoch=epoch, committed=True), 0)
    assert ended.error_code == ErrorCode.NONE
    assert committed(bootstrap, topic) == [b"x"]


def test_the_newer_flow_adds_partitions_by_writing_and_gets_a_new_epoch_at_each_end(
    bootstrap: str, unique: str, raw: RawClient
) -> None:
    topic, name = create_topic(bootstrap, f"tv2-{unique}"), f"tx-{unique}"
    me, epoch = init(raw, name)
    topic_id = raw.topic_id(topic)

    def write(value: bytes) -> int:
        records = batch(value, producer_id=me, epoch=epoch, sequence=0, transactional=True)
        data = TopicProduceData(topic_id=topic_id, partition_data=(PartitionProduceData(index=0, records=records),))
        return produced(raw, ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1_000, topic_data=(data,)))

    def end(commit: bool) -> int:
        request = EndTxnRequest(transactional_id=name, producer_id=me, producer_epoch=epoch, committed=commit)
        answer = raw.call(request)
        assert answer.error_code != ErrorCode.NONE or (answer.producer_id, answer.producer_epoch) == (me, epoch + 1)
        return int(answer.error_code)

    for number, commit in enumerate((True, False, True)):
        assert unless_concurrent(lambda value=b"%d" % number: write(value)) == ErrorCode.NONE
        assert unless_concurrent(lambda commit=commit: end(commit)) == ErrorCode.NONE
        # the same end once more is a retry, answered alike
        assert unless_concurrent(lambda commit=commit: end(commit)) == ErrorCode.NONE
        epoch += 1
    assert committed(bootstrap, topic) == [b"0", b"2"]


def test_a_delayed_end_cannot_hit_the_next_transaction(bootstrap: str, unique: str, raw: RawClient) -> None:
    """The fault that Jepsen found in Kafka before KIP-890."""
    topic, name = create_topic(bootstrap, f"delayed-{unique}"), f"tx-{unique}"
    me, epoch = init(raw, name)
    topic_id = raw.topic_id(topic)

    def write(at_epoch: int, value: bytes) -> int:
        records = batch(value, producer_id=me, epoch=at_epoch, sequence=0, transactional=True)
        data = TopicProduceData(topic_id=topic_id, partition_data=(PartitionProduceData(index=0, records=records),))
        written = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1_000, topic_data=(data,))
        return unless_concurrent(lambda: produced(raw, written))

    assert write(epoch, b"1") == ErrorCode.NONE
    commit = EndTxnRequest(transactional_id=name, producer_id=me, producer_epoch=epoch, committed=True)
    assert raw.call(commit).error_code == ErrorCode.NONE
    assert write(epoch + 1, b"2") == ErrorCode.NONE
    delayed_abort = EndTxnRequest(transactional_id=name, producer_id=me, producer_epoch=epoch, committed=False)
    assert raw.call(delayed_abort).error_code != ErrorCode.NONE
    assert committed(bootstrap, topic) == [b"1"]
    last = EndTxnRequest(transactional_id=name, producer_id=me, producer_epoch=epoch + 1, committed=True)
    assert raw.call(last).error_code == ErrorCode.NONE
    assert committed(bootstrap, topic) == [b"1", b"2"]


def test_transactions_can_be_listed_and_described(bootstrap: str, unique: str, raw: RawClient) -> None:
    topic, name = create_topic(bootstrap, f"described-{unique}"), f"tx-{unique}"
    writer = transactional(bootstrap, name)
    writer.begin_transaction()
    send(writer, topic, [b"x"])
    found = raw.call(DescribeTransactionsRequest(transactional_ids=(name, f"no-{unique}"))).transaction_states
    mine = next(each for each in found if each.transactional_id == name)
    assert (mine.error_code, mine.transaction_state) == (ErrorCode.NONE, "Ongoing")
    assert [(each.topic, each.partitions) for each in mine.topics] == [(topic, (0,))]
    other = next(each for each in found if each.transactional_id != name)
    assert other.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    listed = raw.call(ListTransactionsRequest(state_filters=("Ongoing",))).transaction_states
    assert name in {each.transactional_id for each in listed}
    wanted = TopicRequest(name=topic, partition_indexes=(0,))
    active = raw.call(DescribeProducersRequest(topics=(wanted,))).topics[0].partitions[0].active_producers
    assert [each.producer_id for each in active] == [mine.producer_id]
    assert active[0].current_txn_start_offset == 0
    writer.abort_transaction(DEADLINE_S)
    listed = raw.call(ListTransactionsRequest(state_filters=("Ongoing",))).transaction_states
    assert name not in {each.transactional_id for each in listed}


def test_an_old_epoch_cannot_add_offsets(unique: str, raw: RawClient) -> None:
    me, epoch = init(raw, f"tx-{unique}")
    init(raw, f"tx-{unique}")
    answer = raw.call(
        AddOffsetsToTxnRequest(
            transactional_id=f"tx-{unique}", producer_id=me, producer_epoch=epoch, group_id=f"group-{unique}"
        )
    )
    assert answer.error_code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
