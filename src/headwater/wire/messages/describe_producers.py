"""DescribeProducers, Kafka's API 61, version 0."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, int16, int32, int64, string

__all__ = [
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "PartitionResponse",
    "ProducerState",
    "TopicRequest",
    "TopicResponse",
]


class TopicRequest(Struct):
    name: str = string()
    partition_indexes: tuple[int, ...] = array(int32)


class DescribeProducersRequest(Struct):
    topics: tuple[TopicRequest, ...] = array(TopicRequest)


class ProducerState(Struct):
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: tuple[ProducerState, ...] = array(ProducerState)


class TopicResponse(Struct):
    name: str = string()
    partitions: tuple[PartitionResponse, ...] = array(PartitionResponse)


class DescribeProducersResponse(Struct):
    throttle_time_ms: int = int32()
    topics: tuple[TopicResponse, ...] = array(TopicResponse)
