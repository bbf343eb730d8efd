"""DescribeProducers 0: the producers that partitions remember, and which of them have a transaction open."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.topics import name_problem
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 61


def handle(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(_partition(call, topic.name, index) for index in topic.partition_indexes),
            )
            for topic in request.topics
        )
    )


def _partition(call: Call, topic: str, index: int) -> PartitionResponse:
    problem = name_problem(topic)
    if problem is not None:
        return PartitionResponse(
            partition_index=index, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, error_message=problem
        )
    partition = call.broker.logs.partition(topic, index)
    if partition is None:
        return PartitionResponse(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"there is no partition {topic}-{index}",
        )
    return PartitionResponse(
        partition_index=index,
        active_producers=tuple(
            ProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_timestamp,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.transaction_start_offset,
            )
            for each in partition.log.producers()
        ),
    )
