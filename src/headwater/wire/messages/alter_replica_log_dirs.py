"""AlterReplicaLogDirs, Kafka's API 34, versions 1 to 2."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, int16, int32, string

__all__ = [
    "AlterReplicaLogDir",
    "AlterReplicaLogDirPartitionResult",
    "AlterReplicaLogDirTopic",
    "AlterReplicaLogDirTopicResult",
    "AlterReplicaLogDirsRequest",
    "AlterReplicaLogDirsResponse",
]


class AlterReplicaLogDirTopic(Struct):
    name: str = string()
    partitions: tuple[int, ...] = array(int32)


class AlterReplicaLogDir(Struct):
    path: str = string()
    topics: tuple[AlterReplicaLogDirTopic, ...] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Struct):
    dirs: tuple[AlterReplicaLogDir, ...] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = string()
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Struct):
    throttle_time_ms: int = int32()
    results: tuple[AlterReplicaLogDirTopicResult, ...] = array(AlterReplicaLogDirTopicResult)
