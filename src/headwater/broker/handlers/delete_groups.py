"""DeleteGroups 0-2: groups without members, of either protocol, with their offsets."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.groups.driver import driver_of
from headwater.broker.promise import gather
from headwater.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

__all__ = ["API_KEY", "handle"]

API_KEY = 42


async def handle(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    driver = driver_of(call)
    codes = await gather([driver.delete_group(group_id) for group_id in request.groups_names])
    return DeleteGroupsResponse(
        results=tuple(
            DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id, code in zip(request.groups_names, codes, strict=True)
        )
    )
