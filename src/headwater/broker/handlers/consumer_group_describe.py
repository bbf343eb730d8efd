"""ConsumerGroupDescribe 0-1: groups of KIP-848's protocol; classic groups are unknown here, as in Kafka."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.groups.driver import driver_of
from headwater.broker.groups.queries import describe_consumer
from headwater.broker.promise import Promise, gather, settled
from headwater.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 69


async def handle(call: Call, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    described = await gather([_one(call, request, group_id) for group_id in request.group_ids])
    return ConsumerGroupDescribeResponse(groups=tuple(described))


def _one(call: Call, request: ConsumerGroupDescribeRequest, group_id: str) -> Promise[DescribedGroup]:
    driver, operations = driver_of(call), request.include_authorized_operations
    answer: DescribedGroup | Promise[DescribedGroup] = driver.read(
        group_id, lambda: describe_consumer(driver.coordinator, group_id, operations=operations)
    )
    return settled(answer) if isinstance(answer, DescribedGroup) else answer
