"""ConsumerGroupHeartbeat 0-1: the whole of KIP-848's protocol, with the assignors `uniform` and `range`.

Regular expressions (version 1) are resolved here; see `headwater.broker.groups.regex` for their syntax.
"""

from __future__ import annotations

from collections.abc import Awaitable
from uuid import uuid4

from msgspec.structs import replace

from headwater.broker.call import Call
from headwater.broker.groups.driver import caller_of, driver_of
from headwater.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 68

Response = ConsumerGroupHeartbeatResponse


def handle(call: Call, request: ConsumerGroupHeartbeatRequest) -> Response | Awaitable[Response]:
    driver, caller = driver_of(call), caller_of(call)
    if not request.member_id and caller.api_version == 0 and request.member_epoch == 0:
        request = replace(request, member_id=str(uuid4()))  # in version 0 the coordinator invents it
    answer: Response | Awaitable[Response] = driver.ask(
        request.group_id, lambda token, now: driver.coordinator.consumer_heartbeat(request, caller, token, now)
    )
    return answer
