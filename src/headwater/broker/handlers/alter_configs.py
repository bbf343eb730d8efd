"""AlterConfigs 0-2: replace everything that was set on a topic, broker or group (IncrementalAlterConfigs changes
single ones)."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.config_resources import replace
from headwater.broker.promise import Promise
from headwater.broker.refusals import Refusal
from headwater.log.results import Appended
from headwater.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 33


async def handle(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    saved: list[Promise[Appended] | None] = []
    responses = []
    for resource in request.resources:
        response = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        configs = {config.name: config.value for config in resource.configs}
        try:
            saved.append(
                replace(
                    call.broker,
                    resource.resource_type,
                    resource.resource_name,
                    configs,
                    validate_only=request.validate_only,
                )
            )
        except Refusal as refusal:
            response = AlterConfigsResourceResponse(
                error_code=refusal.code,
                error_message=refusal.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        responses.append(response)
    for promise in saved:
        if promise is not None:
            await promise
    return AlterConfigsResponse(responses=tuple(responses))
