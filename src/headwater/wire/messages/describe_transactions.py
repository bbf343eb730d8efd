"""DescribeTransactions, Kafka's API 65, version 0."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, int16, int32, int64, string

__all__ = ["DescribeTransactionsRequest", "DescribeTransactionsResponse", "TopicData", "TransactionState"]


class DescribeTransactionsRequest(Struct):
    transactional_ids: tuple[str, ...] = array(string)


class TopicData(Struct):
    topic: str = string()
    partitions: tuple[int, ...] = array(int32)


class TransactionState(Struct):
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: tuple[TopicData, ...] = array(TopicData)


class DescribeTransactionsResponse(Struct):
    throttle_time_ms: int = int32()
    transaction_states: tuple[TransactionState, ...] = array(TransactionState)
