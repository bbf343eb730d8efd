"""FindCoordinator 0-6: this broker, for every group, share group and transactional id.

Nothing is looked up: one broker coordinates everything, also what does not exist yet.
"""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

__all__ = ["API_KEY", "handle"]

API_KEY = 10

GROUP, TRANSACTION, SHARE = 0, 1, 2  # what a key may be
BATCHED_SINCE = 4  # from this version any number of keys is asked for at once
SHARE_SINCE = 6

NOT_A_NODE = -1


def handle(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    version = call.header.api_version
    keys = request.coordinator_keys if version >= BATCHED_SINCE else (request.key,)
    found = tuple(_find(call, key, request.key_type) for key in keys)
    if version >= BATCHED_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _find(call: Call, key: str, kind: int) -> Coordinator:
    known = (GROUP, TRANSACTION, SHARE) if call.header.api_version >= SHARE_SINCE else (GROUP, TRANSACTION)
    if kind not in known or (kind == SHARE and not _is_share_key(key)):
        code = ErrorCode.INVALID_REQUEST
        return Coordinator(
            key=key, node_id=NOT_A_NODE, port=-1, error_code=code, error_message=f"Key type {kind}: {key}"
        )
    host, port = call.peer.endpoint
    return Coordinator(key=key, node_id=call.broker.cluster.node_id, host=host, port=port)


def _is_share_key(key: str) -> bool:
    """group:topic id:partition"""
    return key.count(":") >= 2
