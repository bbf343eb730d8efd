"""WriteTxnMarkers 1-2: end a producer's transaction in single partitions, whatever the coordinator thinks of it.

In a cluster, coordinators send it to partition leaders; here only an administrator does, to abort a hanging transaction
(`kafka-transactions.sh abort`). The marker of a transaction version 2 must have a newer epoch than what it ends
(KIP-1228): a delayed one from before would otherwise end the producer's next transaction.
"""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.partitions import Partition
from headwater.log.results import AppendRefused
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 27


async def handle(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=tuple([await _marker(call, each) for each in request.markers]))


async def _marker(call: Call, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    topics = []
    for topic in marker.topics:
        results = []
        for index in topic.partition_indexes:
            code = await _end(call.broker.logs.partition(topic.name, index), marker)
            results.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=tuple(results)))
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=tuple(topics))


async def _end(partition: Partition | None, marker: WritableTxnMarker) -> ErrorCode:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if marker.transaction_version >= 2 and not _newer(partition, marker):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    try:
        await partition.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
        )
    except AppendRefused as refused:
        return refused.code
    return ErrorCode.NONE


def _newer(partition: Partition, marker: WritableTxnMarker) -> bool:
    known = next((each for each in partition.log.producers() if each.producer_id == marker.producer_id), None)
    return known is None or marker.producer_epoch > known.producer_epoch
