"""DescribeGroups 0-6: classic groups; others are unknown here (ConsumerGroupDescribe has them), as in Kafka."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.groups.driver import driver_of
from headwater.broker.groups.queries import describe_classic
from headwater.broker.promise import Promise, gather, settled
from headwater.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

__all__ = ["API_KEY", "handle"]

API_KEY = 15


async def handle(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=tuple(await gather([_one(call, request, name) for name in request.groups])))


def _one(call: Call, request: DescribeGroupsRequest, group_id: str) -> Promise[DescribedGroup]:
    driver, version = driver_of(call), call.header.api_version
    operations = request.include_authorized_operations
    answer: DescribedGroup | Promise[DescribedGroup] = driver.read(
        group_id, lambda: describe_classic(driver.coordinator, group_id, version, operations=operations)
    )
    return settled(answer) if isinstance(answer, DescribedGroup) else answer
