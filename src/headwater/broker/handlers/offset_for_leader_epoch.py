"""OffsetForLeaderEpoch 2-4: where an epoch ended, so that a client notices that its log was cut."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 23


def handle(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=tuple(_find(call, topic.topic, wanted) for wanted in topic.partitions)
            )
            for topic in request.topics
        )
    )


def _find(call: Call, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = call.broker.logs.partition(topic, wanted.partition)
    if partition is None:
        return EpochEndOffset(partition=wanted.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    claimed = wanted.current_leader_epoch
    if claimed >= 0 and claimed != partition.leader_epoch:
        older = claimed < partition.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        return EpochEndOffset(partition=wanted.partition, error_code=code)
    if wanted.leader_epoch == partition.leader_epoch:  # the running one, which may have no record yet
        return EpochEndOffset(
            partition=wanted.partition, leader_epoch=wanted.leader_epoch, end_offset=partition.log.log_end_offset
        )
    epoch, end = partition.log.end_of_epoch(wanted.leader_epoch)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end)
