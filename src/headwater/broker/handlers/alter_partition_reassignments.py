"""AlterPartitionReassignments 0-1: partitions stay where they are, on the only broker."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 45


def handle(call: Call, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name, partitions=tuple(_answer(call, topic.name, wanted) for wanted in topic.partitions)
            )
            for topic in request.topics
        ),
    )


def _answer(call: Call, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
    index, node = wanted.partition_index, call.broker.cluster.node_id
    code, message = ErrorCode.NONE, None
    if call.broker.logs.partition(topic, index) is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{index}."
    elif wanted.replicas is None:
        code, message = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{topic}-{index} is not being reassigned."
    elif wanted.replicas != (node,):
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        message = f"The replicas {list(wanted.replicas)} cannot be: this cluster consists of broker {node}."
    return ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)
