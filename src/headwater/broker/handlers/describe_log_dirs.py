"""DescribeLogDirs 1-5: the data directory, what each partition takes of it and what the disk has left."""

from __future__ import annotations

import os

from headwater.broker.call import Call
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 35


def handle(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    path = os.path.abspath(call.broker.config.text("log.dirs"))
    if request.topics is None:
        wanted = {partition.topic: None for partition in call.broker.logs}
        topics = tuple(_topic(call, name, wanted[name]) for name in wanted)
    else:
        topics = tuple(_topic(call, topic.topic, topic.partitions) for topic in request.topics)
    total, usable = _space(path)
    return DescribeLogDirsResponse(
        results=(
            DescribeLogDirsResult(
                error_code=ErrorCode.NONE,
                log_dir=path,
                topics=tuple(topic for topic in topics if topic.partitions),
                total_bytes=total,
                usable_bytes=usable,
            ),
        )
    )


def _topic(call: Call, name: str, indexes: tuple[int, ...] | None) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=name,
        partitions=tuple(
            DescribeLogDirsPartition(partition_index=partition.index, partition_size=partition.log.size)
            for partition in call.broker.logs.of_topic(name)
            if indexes is None or partition.index in indexes
        ),
    )


def _space(path: str) -> tuple[int, int]:
    """Bytes of the disk and bytes of it that may be used; -1 where it does not say."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return -1, -1
    return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
