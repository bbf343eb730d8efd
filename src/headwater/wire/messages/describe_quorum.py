"""DescribeQuorum, Kafka's API 55, versions 0 to 2."""

from __future__ import annotations

from uuid import UUID

from headwater.wire.fields import Struct, array, int16, int32, int64, string, uint16, uuid

__all__ = [
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "Listener",
    "Node",
    "PartitionData",
    "ReplicaState",
    "TopicData",
    "WantedPartition",
    "WantedTopic",
]


class WantedPartition(Struct):
    partition_index: int = int32()


class WantedTopic(Struct):
    topic_name: str = string()
    partitions: tuple[WantedPartition, ...] = array(WantedPartition)


class DescribeQuorumRequest(Struct):
    topics: tuple[WantedTopic, ...] = array(WantedTopic)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: UUID = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: tuple[ReplicaState, ...] = array(ReplicaState)
    observers: tuple[ReplicaState, ...] = array(ReplicaState)


class TopicData(Struct):
    topic_name: str = string()
    partitions: tuple[PartitionData, ...] = array(PartitionData)


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class Node(Struct):
    node_id: int = int32()
    listeners: tuple[Listener, ...] = array(Listener)


class DescribeQuorumResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    topics: tuple[TopicData, ...] = array(TopicData)
    nodes: tuple[Node, ...] = array(Node, "2+")
