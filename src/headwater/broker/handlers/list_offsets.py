"""ListOffsets 1-11: offsets by time, and by the special times below.

-1  the end of what the reader may see: last stable offset for committed readers, else high watermark
-2  the first offset kept          -4  the first offset kept on this machine: the same here
-3  the record with the greatest timestamp
-5  the end of what was moved to remote storage      -6  the first not yet moved: there is no remote storage, so
neither is there
"""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.partitions import Partition
from headwater.errors import Corrupted
from headwater.log.results import StorageFailed
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 2

READ_COMMITTED = 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6

# special time -> the version that introduced it
_SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}


def handle(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    committed = request.isolation_level == READ_COMMITTED
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(_find(call, topic.name, wanted, committed) for wanted in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _find(call: Call, topic: str, wanted: ListOffsetsPartition, committed: bool) -> ListOffsetsPartitionResponse:
    partition = call.broker.logs.partition(topic, wanted.partition_index)
    if partition is None:
        return _failed(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if wanted.current_leader_epoch >= 0 and wanted.current_leader_epoch != partition.leader_epoch:
        older = wanted.current_leader_epoch < partition.leader_epoch
        return _failed(wanted, ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)
    if wanted.timestamp < 0 and call.header.api_version < _SINCE.get(wanted.timestamp, 1 << 15):
        return _failed(wanted, ErrorCode.UNSUPPORTED_VERSION)
    try:
        offset, timestamp, epoch = _look_up(partition, wanted.timestamp, committed)
    except (StorageFailed, Corrupted):
        return _failed(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _look_up(partition: Partition, timestamp: int, committed: bool) -> tuple[int, int, int]:
    """Offset, timestamp and leader epoch; -1 for what there is none of."""
    log = partition.log
    if timestamp == LATEST:
        end = log.last_stable_offset if committed else log.high_watermark
        return end, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return start, -1, log.epoch_of(start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING):
        return -1, -1, -1
    found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else None
    if timestamp >= 0:
        found = log.offset_for_timestamp(timestamp, committed=committed)
    return (-1, -1, -1) if found is None else (found.offset, found.timestamp, found.leader_epoch)


def _failed(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)
