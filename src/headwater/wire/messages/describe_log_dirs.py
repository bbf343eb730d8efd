"""DescribeLogDirs, Kafka's API 35, versions 1 to 5."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, boolean, int16, int32, int64, string

__all__ = [
    "DescribableLogDirTopic",
    "DescribeLogDirsPartition",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeLogDirsResult",
    "DescribeLogDirsTopic",
]


class DescribableLogDirTopic(Struct):
    topic: str = string()
    partitions: tuple[int, ...] = array(int32)


class DescribeLogDirsRequest(Struct):
    topics: tuple[DescribableLogDirTopic, ...] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    name: str = string()
    partitions: tuple[DescribeLogDirsPartition, ...] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    error_code: int = int16()
    log_dir: str = string()
    topics: tuple[DescribeLogDirsTopic, ...] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)
    is_cordoned: bool = boolean("5+")


class DescribeLogDirsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: tuple[DescribeLogDirsResult, ...] = array(DescribeLogDirsResult)
