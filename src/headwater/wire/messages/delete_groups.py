"""DeleteGroups, Kafka's API 42, versions 0 to 2."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, int16, int32, string

__all__ = ["DeletableGroupResult", "DeleteGroupsRequest", "DeleteGroupsResponse"]


class DeleteGroupsRequest(Struct):
    groups_names: tuple[str, ...] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Struct):
    throttle_time_ms: int = int32()
    results: tuple[DeletableGroupResult, ...] = array(DeletableGroupResult)
