"""ElectLeaders, Kafka's API 43, versions 0 to 2."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, int8, int16, int32, string

__all__ = ["ElectLeadersRequest", "ElectLeadersResponse", "PartitionResult", "ReplicaElectionResult", "TopicPartitions"]


class TopicPartitions(Struct):
    topic: str = string()
    partitions: tuple[int, ...] = array(int32)


class ElectLeadersRequest(Struct):
    election_type: int = int8("1+")
    topic_partitions: tuple[TopicPartitions, ...] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: tuple[PartitionResult, ...] = array(PartitionResult)


class ElectLeadersResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: tuple[ReplicaElectionResult, ...] = array(ReplicaElectionResult)
