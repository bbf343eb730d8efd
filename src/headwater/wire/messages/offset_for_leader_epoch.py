"""OffsetForLeaderEpoch, Kafka's API 23, versions 2 to 4."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, int16, int32, int64, string

__all__ = [
    "EpochEndOffset",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "OffsetForLeaderTopicResult",
]


class OffsetForLeaderPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32("2+", default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    topic: str = string()
    partitions: tuple[OffsetForLeaderPartition, ...] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Struct):
    replica_id: int = int32("3+", default=-2)
    topics: tuple[OffsetForLeaderTopic, ...] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32("1+", default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string()
    partitions: tuple[EpochEndOffset, ...] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Struct):
    throttle_time_ms: int = int32("2+")
    topics: tuple[OffsetForLeaderTopicResult, ...] = array(OffsetForLeaderTopicResult)
