"""Records of `__transaction_state`: one key a transactional id, its last value is its state."""

from __future__ import annotations

from typing import Final

from headwater.wire.fields import Struct, array, int8, int16, int32, int64, string
from headwater.wire.records.keyed import KeyedRecords, RecordType

__all__ = ["TRANSACTION_RECORDS", "PartitionsSchema", "TransactionLogKey", "TransactionLogValue"]


class TransactionLogKey(Struct):
    transactional_id: str = string("0")


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: tuple[int, ...] = array(int32)


class TransactionLogValue(Struct):
    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: tuple[PartitionsSchema, ...] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)


TRANSACTION_RECORDS: Final = KeyedRecords(RecordType(0, TransactionLogKey, TransactionLogValue, 1, 1, written=1))
"""The one kind of record."""
