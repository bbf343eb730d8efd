"""Heartbeat 0-4: a classic member lives, and learns whether it has to join again. Everything is supported."""

from __future__ import annotations

from collections.abc import Awaitable

from headwater.broker.call import Call
from headwater.broker.groups.driver import driver_of
from headwater.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

__all__ = ["API_KEY", "handle"]

API_KEY = 12


def handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    driver = driver_of(call)
    answer: HeartbeatResponse | Awaitable[HeartbeatResponse] = driver.ask(
        request.group_id, lambda token, now: driver.coordinator.heartbeat(request, token, now)
    )
    return answer
