"""ListGroups, Kafka's API 16, versions 0 to 5."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, int16, int32, string

__all__ = ["ListGroupsRequest", "ListGroupsResponse", "ListedGroup"]


class ListGroupsRequest(Struct):
    states_filter: tuple[str, ...] = array(string, "4+")
    types_filter: tuple[str, ...] = array(string, "5+")


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


class ListGroupsResponse(Struct):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: tuple[ListedGroup, ...] = array(ListedGroup)
