"""`__transaction_state`, in Kafka's formats: a metadata as a record, and back.

Key: version 0, the transactional id. Value: version 1 (flexible: the producer ids before and after, and the client's
transaction version are tagged fields); version 0, as old Kafkas wrote it, is read as well. A null value is a tombstone.
The partitions are null when the id has no transaction at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from headwater.broker.transactions.metadata import Metadata, State, TopicPartition
from headwater.wire.batches import Record, decode_records, encode_batch
from headwater.wire.records.transactions import (
    TRANSACTION_RECORDS,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

__all__ = ["apply_batch", "encode_state"]


def encode_state(transactional_id: str, metadata: Metadata) -> bytes:
    """A batch with the one record that says what holds for this id now; a tombstone when it is dead."""
    key = TRANSACTION_RECORDS.encode_key(TransactionLogKey(transactional_id=transactional_id))
    dead = metadata.state is State.DEAD
    value = None if dead else TRANSACTION_RECORDS.encode_value(_as_value(metadata))
    return encode_batch([Record(key=key, value=value, timestamp=metadata.updated_ms)])


def apply_batch(batch: memoryview, states: dict[str, Metadata]) -> None:
    """Replay: what the batch says replaces what was known. Records of unknown kinds are skipped, as Kafka does."""
    for record in decode_records(batch):
        key = TRANSACTION_RECORDS.decode_key(record.key or b"\xff\xff")
        if not isinstance(key, TransactionLogKey):
            continue
        if record.value is None:
            states.pop(key.transactional_id, None)
            continue
        value = TRANSACTION_RECORDS.decode_value(key, record.value)
        assert isinstance(value, TransactionLogValue)
        states[key.transactional_id] = _as_metadata(value)


def _as_value(metadata: Metadata) -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None if metadata.state is State.EMPTY else tuple(_by_topic(metadata.partitions)),
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.started_ms,
        client_transaction_version=metadata.version,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterator[PartitionsSchema]:
    for topic, group in groupby(sorted(partitions), key=lambda each: each[0]):
        yield PartitionsSchema(topic=topic, partition_ids=tuple(index for _, index in group))


def _as_metadata(value: TransactionLogValue) -> Metadata:
    return Metadata(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=State(value.transaction_status),
        partitions=frozenset(
            (each.topic, index) for each in value.transaction_partitions or () for index in each.partition_ids
        ),
        updated_ms=value.transaction_last_update_timestamp_ms,
        started_ms=value.transaction_start_timestamp_ms,
        version=value.client_transaction_version,
    )
