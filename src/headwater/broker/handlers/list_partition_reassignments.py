"""ListPartitionReassignments 0: none is ever in progress."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 46


def handle(call: Call, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse()
