"""LeaveGroup 0-5: members leave, or an administrator removes static ones by instance id. Everything is supported.

Before version 3 there is one member, and its error is the response's.
"""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.groups.driver import driver_of
from headwater.broker.promise import Promise
from headwater.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

__all__ = ["API_KEY", "handle"]

API_KEY = 13

BATCHED_SINCE = 3


def handle(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse | Promise[LeaveGroupResponse]:
    driver = driver_of(call)
    single = call.header.api_version < BATCHED_SINCE
    if single:
        members = (MemberIdentity(member_id=request.member_id),)
        request = LeaveGroupRequest(group_id=request.group_id, members=members)
    answer: LeaveGroupResponse | Promise[LeaveGroupResponse] = driver.ask(
        request.group_id, lambda token, now: driver.coordinator.leave(request, token, now)
    )
    if not single:
        return answer
    if isinstance(answer, LeaveGroupResponse):
        return _of_one(answer)
    promise: Promise[LeaveGroupResponse] = Promise()
    answer.then(lambda done: promise.resolve(_of_one(done.result())))
    return promise


def _of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=response.members[0].error_code) if response.members else response
