"""DeleteRecords 0-2: everything before an offset is gone; -1 means before the high watermark."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.cluster import INTERNAL_TOPICS
from headwater.log.results import OffsetOutOfRange, StorageFailed
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 21


def handle(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name, partitions=tuple(_delete(call, topic.name, wanted) for wanted in topic.partitions)
            )
            for topic in request.topics
        )
    )


def _delete(call: Call, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    index = wanted.partition_index
    partition = call.broker.logs.partition(topic, index)
    code = _refusal(call, topic, index)
    if partition is None or code is not None:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=-1, error_code=code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    try:
        start = partition.log.delete_records_before(wanted.offset)
    except OffsetOutOfRange:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=-1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE
        )
    except StorageFailed:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=-1, error_code=ErrorCode.KAFKA_STORAGE_ERROR
        )
    partition.advanced()  # readers below are told that their offset is gone
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=start)


def _refusal(call: Call, topic: str, index: int) -> ErrorCode | None:
    """Only topics with cleanup.policy `delete` lose records that somebody asks to delete, as in Kafka."""
    if topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    partition = call.broker.logs.partition(topic, index)
    if partition is not None and not partition.log.settings.cleanup_delete:
        return ErrorCode.POLICY_VIOLATION
    return None
