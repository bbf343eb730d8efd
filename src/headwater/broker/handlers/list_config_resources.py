"""ListConfigResources 0-1: what has settings: topics, this broker, groups with settings of their own."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.config_resources import BROKER, BROKER_LOGGER, GROUP, TOPIC
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 74

CLIENT_METRICS = 16  # the only type of version 0; there is none of it here
_KINDS = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def handle(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    version_0 = call.header.api_version == 0
    kinds = (CLIENT_METRICS,) if version_0 else request.resource_types or _KINDS
    if any(kind not in _KINDS for kind in kinds):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    names = {
        TOPIC: sorted(call.broker.cluster.topics),
        BROKER: [str(call.broker.cluster.node_id)],
        BROKER_LOGGER: [str(call.broker.cluster.node_id)],
        GROUP: [key[2] for key, _ in call.broker.cluster.facts.of_kind("configs") if key[1] == "group"],
    }
    return ListConfigResourcesResponse(
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(kinds)
            for name in names.get(kind, ())
        )
    )
