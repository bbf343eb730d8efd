"""JoinGroup 0-9: a classic member joins or rejoins; answered when the rebalance has everybody. Fully supported."""

from __future__ import annotations

from collections.abc import Awaitable

from headwater.broker.call import Call
from headwater.broker.groups.driver import caller_of, driver_of
from headwater.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

__all__ = ["API_KEY", "handle"]

API_KEY = 11


def handle(call: Call, request: JoinGroupRequest) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    driver, caller = driver_of(call), caller_of(call)
    answer: JoinGroupResponse | Awaitable[JoinGroupResponse] = driver.ask(
        request.group_id, lambda token, now: driver.coordinator.join(request, caller, token, now)
    )
    return answer
