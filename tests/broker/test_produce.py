"""Producing: acknowledgements, idempotence, order, and what is refused."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from headwater.wire.batches import Record, encode_batch
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.init_producer_id import InitProducerIdRequest
from headwater.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from .clients import create_topic, producer, read_everything, send, values
from .raw import RawClient, batch


@pytest.fixture
def raw(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(bootstrap) as client:
        yield client


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_in_order_whatever_the_acknowledgement(bootstrap: str, unique: str, acks: str) -> None:
    topic = create_topic(bootstrap, f"acks-{unique}")
    written = [str(n).encode() for n in range(2_000)]
    send(producer(bootstrap, acks=acks, linger_ms=5), topic, written)
    if acks != "0":
        assert values(read_everything(bootstrap, topic)) == written
    else:  # sent is not yet written
        end = time.monotonic() + 30
        while values(read_everything(bootstrap, topic)) != written:
            assert time.monotonic() < end


def test_offsets_are_consecutive_from_zero(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"offsets-{unique}")
    writer = producer(bootstrap)
    assert send(writer, topic, [b"a", b"b", b"c"]) == [0, 1, 2]
    assert send(writer, topic, [b"d"]) == [3]


def test_an_unknown_topic_is_created_when_somebody_writes_to_it(bootstrap: str, unique: str) -> None:
    assert send(producer(bootstrap), f"auto-{unique}", [b"x"]) == [0]


def test_a_batch_larger_than_the_topic_allows_is_refused(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"large-{unique}", max_message_bytes=2_000)
    writer = producer(bootstrap)
    with pytest.raises(KafkaException) as refused:
        send(writer, topic, [b"x" * 3_000])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert send(writer, topic, [b"fits"]) == [0]


def test_a_record_without_a_key_is_refused_on_a_compacted_topic(bootstrap: str, unique: str, raw: RawClient) -> None:
    topic = create_topic(bootstrap, f"compacted-{unique}", cleanup_policy="compact")
    assert raw.produce(topic, batch(b"no key")).error_code == ErrorCode.INVALID_RECORD


def test_more_replicas_wanted_than_there_can_be_are_those_there_are(
    bootstrap: str, unique: str, raw: RawClient
) -> None:
    """As in Kafka since 4.0: min.insync.replicas counts up to the number of replicas."""
    topic = create_topic(bootstrap, f"isr-{unique}", min_insync_replicas=2)
    assert raw.produce(topic, batch(b"x"), acks=-1).error_code == ErrorCode.NONE


def test_log_append_time_replaces_the_producers_time(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"append-time-{unique}", message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    send(producer(bootstrap), topic, [b"x"])
    (found,) = read_everything(bootstrap, topic)
    kind, at_ms = found.timestamp()
    assert kind == 2
    assert before_ms - 1_000 <= at_ms <= before_ms + 30_000


def test_a_time_too_far_ahead_is_refused(bootstrap: str, unique: str, raw: RawClient) -> None:
    topic = create_topic(bootstrap, f"ahead-{unique}", message_timestamp_after_max_ms=1_000)
    ahead = Record(value=b"x", timestamp=int(time.time() * 1000) + 3_600_000)
    answer = raw.produce(topic, encode_batch([ahead]))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP


def test_acks_that_do_not_exist_are_refused(unique: str, bootstrap: str, raw: RawClient) -> None:
    topic = create_topic(bootstrap, f"acks7-{unique}")
    assert raw.produce(topic, batch(b"x"), acks=7).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_a_batch_with_a_wrong_checksum_is_refused_and_harms_nothing(
    bootstrap: str, unique: str, raw: RawClient
) -> None:
    topic = create_topic(bootstrap, f"checksum-{unique}")
    damaged = bytearray(batch(b"value"))
    damaged[-1] ^= 1
    assert raw.produce(topic, bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert raw.produce(topic, batch(b"value")).base_offset == 0


# -- idempotence, by hand, because clients hide it


def producer_id(raw: RawClient) -> int:
    answer = raw.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
    assert answer.error_code == ErrorCode.NONE
    number: int = answer.producer_id
    return number


def test_a_retried_batch_is_written_once_and_answered_with_its_first_offset(
    bootstrap: str, unique: str, raw: RawClient
) -> None:
    topic, me = create_topic(bootstrap, f"retry-{unique}"), producer_id(raw)
    sent = [batch(b"a", b"b", producer_id=me, epoch=0, sequence=2 * n) for n in range(5)]
    assert [raw.produce(topic, each).base_offset for each in sent] == [0, 2, 4, 6, 8]
    assert [raw.produce(topic, each).base_offset for each in sent] == [0, 2, 4, 6, 8]
    assert len(read_everything(bootstrap, topic)) == 10


def test_a_retry_older_than_five_batches_is_recognised_but_its_offset_is_forgotten(
    bootstrap: str, unique: str, raw: RawClient
) -> None:
    topic, me = create_topic(bootstrap, f"old-retry-{unique}"), producer_id(raw)
    sent = [batch(b"a", producer_id=me, epoch=0, sequence=n) for n in range(6)]
    for each in sent:
        raw.produce(topic, each)
    assert raw.produce(topic, sent[0]).error_code in (
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
    assert len(read_everything(bootstrap, topic)) == 6


def test_a_gap_in_the_sequence_is_refused(bootstrap: str, unique: str, raw: RawClient) -> None:
    topic, me = create_topic(bootstrap, f"gap-{unique}"), producer_id(raw)
    raw.produce(topic, batch(b"a", producer_id=me, epoch=0, sequence=0))
    answer = raw.produce(topic, batch(b"c", producer_id=me, epoch=0, sequence=2))
    assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_refused(bootstrap: str, unique: str, raw: RawClient) -> None:
    topic, me = create_topic(bootstrap, f"epoch-{unique}"), producer_id(raw)
    raw.produce(topic, batch(b"a", producer_id=me, epoch=1, sequence=0))
    answer = raw.produce(topic, batch(b"b", producer_id=me, epoch=0, sequence=1))
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_idempotent_client_writes_each_record_once(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"idempotent-{unique}", partitions=3)
    writer = producer(bootstrap, enable_idempotence=True, batch_num_messages=7)
    written = [str(n).encode() for n in range(500)]
    for partition in range(3):
        send(writer, topic, written, partition=partition)
    found = read_everything(bootstrap, topic, (0, 1, 2))
    for partition in range(3):
        assert values(m for m in found if m.partition() == partition) == written


def test_a_failed_write_without_acknowledgement_closes_the_connection(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"acks0-{unique}", max_message_bytes=100)
    with RawClient(bootstrap) as client, pytest.raises(ConnectionError):
        client.produce(topic, batch(b"x" * 500), acks=0)


def test_the_error_of_a_partition_leaves_the_others_of_its_request_alone(
    bootstrap: str, unique: str, raw: RawClient
) -> None:
    topic = create_topic(bootstrap, f"partly-{unique}")
    data = TopicProduceData(
        topic_id=raw.topic_id(topic),
        partition_data=(
            PartitionProduceData(index=0, records=batch(b"x")),
            PartitionProduceData(index=7, records=batch(b"x")),
        ),
    )
    answer = raw.call(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=(data,)))
    found = {each.index: each.error_code for each in answer.responses[0].partition_responses}
    assert found == {0: ErrorCode.NONE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_an_unknown_topic_id_is_said_to_be_so(bootstrap: str, raw: RawClient) -> None:
    data = TopicProduceData(topic_id=uuid.uuid4(), partition_data=(PartitionProduceData(index=0, records=batch(b"x")),))
    answer = raw.call(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=(data,)))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
