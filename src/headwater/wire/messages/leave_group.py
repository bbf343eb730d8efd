"""LeaveGroup, Kafka's API 13, versions 0 to 5."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, int16, int32, string

__all__ = ["LeaveGroupRequest", "LeaveGroupResponse", "MemberIdentity", "MemberResponse"]


class MemberIdentity(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None)


class LeaveGroupRequest(Struct):
    group_id: str = string()
    member_id: str = string("0-2")
    members: tuple[MemberIdentity, ...] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


class LeaveGroupResponse(Struct):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: tuple[MemberResponse, ...] = array(MemberResponse, "3+")
