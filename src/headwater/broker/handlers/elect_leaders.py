"""ElectLeaders 0-2: the only replica leads already, so there is never an election to hold."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 43


def handle(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.topic_partitions is None:  # all partitions that need one: none does
        return ElectLeadersResponse()
    return ElectLeadersResponse(
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=wanted.topic,
                partition_result=tuple(_result(call, wanted.topic, index) for index in wanted.partitions),
            )
            for wanted in request.topic_partitions
        )
    )


def _result(call: Call, topic: str, index: int) -> PartitionResult:
    if call.broker.logs.partition(topic, index) is None:
        return PartitionResult(
            partition_id=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"No such topic or partition as {topic}-{index}",
        )
    return PartitionResult(
        partition_id=index,
        error_code=ErrorCode.ELECTION_NOT_NEEDED,
        error_message="Leader election not needed for topic partition.",
    )
