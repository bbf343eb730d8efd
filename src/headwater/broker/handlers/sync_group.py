"""SyncGroup 0-5: the leader hands in the assignment, all get their part once it is stored. Everything is supported."""

from __future__ import annotations

from collections.abc import Awaitable

from headwater.broker.call import Call
from headwater.broker.groups.driver import driver_of
from headwater.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["API_KEY", "handle"]

API_KEY = 14


def handle(call: Call, request: SyncGroupRequest) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    driver = driver_of(call)
    answer: SyncGroupResponse | Awaitable[SyncGroupResponse] = driver.ask(
        request.group_id, lambda token, now: driver.coordinator.sync(request, token, now)
    )
    return answer
