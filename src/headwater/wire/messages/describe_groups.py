"""DescribeGroups, Kafka's API 15, versions 0 to 6."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, blob, boolean, int16, int32, string

__all__ = ["DescribeGroupsRequest", "DescribeGroupsResponse", "DescribedGroup", "DescribedGroupMember"]


class DescribeGroupsRequest(Struct):
    groups: tuple[str, ...] = array(string)
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = blob()
    member_assignment: bytes = blob()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: tuple[DescribedGroupMember, ...] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


class DescribeGroupsResponse(Struct):
    throttle_time_ms: int = int32("1+")
    groups: tuple[DescribedGroup, ...] = array(DescribedGroup)
