"""AlterReplicaLogDirs 1-2: there is one data directory, so nothing can move to another."""

from __future__ import annotations

import os

from headwater.broker.call import Call
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 34


def handle(call: Call, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    here = os.path.abspath(call.broker.config.text("log.dirs"))
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=tuple(
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=_code(call, directory.path == here, topic.name, index)
                    )
                    for index in topic.partitions
                ),
            )
            for directory in request.dirs
            for topic in directory.topics
        )
    )


def _code(call: Call, stays: bool, topic: str, index: int) -> ErrorCode:
    if not stays:
        return ErrorCode.LOG_DIR_NOT_FOUND
    found = call.broker.logs.partition(topic, index) is not None
    return ErrorCode.NONE if found else ErrorCode.REPLICA_NOT_AVAILABLE
