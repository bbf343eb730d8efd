"""AlterPartitionReassignments, Kafka's API 45, versions 0 to 1."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, boolean, int16, int32, string

__all__ = [
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "ReassignablePartition",
    "ReassignablePartitionResponse",
    "ReassignableTopic",
    "ReassignableTopicResponse",
]


class ReassignablePartition(Struct):
    partition_index: int = int32()
    replicas: tuple[int, ...] | None = array(int32, nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = string()
    partitions: tuple[ReassignablePartition, ...] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Struct):
    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: tuple[ReassignableTopic, ...] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = string()
    partitions: tuple[ReassignablePartitionResponse, ...] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Struct):
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: tuple[ReassignableTopicResponse, ...] = array(ReassignableTopicResponse)
