"""ListGroups 0-5: every group of either protocol, filtered by state (4+) and type (5+)."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.groups.driver import driver_of
from headwater.broker.groups.queries import list_groups
from headwater.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

__all__ = ["API_KEY", "handle"]

API_KEY = 16


def handle(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    groups = list_groups(driver_of(call).coordinator, request.states_filter, request.types_filter)
    return ListGroupsResponse(groups=groups)
