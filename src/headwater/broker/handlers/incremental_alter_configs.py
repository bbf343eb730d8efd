"""IncrementalAlterConfigs 0-1: set, delete, append to and subtract from single settings of a topic, broker or group."""

from __future__ import annotations

from collections import Counter

from headwater.broker.call import Call
from headwater.broker.config_resources import TOPIC, current, replace, table
from headwater.broker.configs import ConfigType
from headwater.broker.promise import Promise
from headwater.broker.refusals import Refusal
from headwater.log.results import Appended
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 44

SET, DELETE, APPEND, SUBTRACT = range(4)


async def handle(call: Call, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    saved: list[Promise[Appended] | None] = []
    responses = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        response = AlterConfigsResourceResponse(resource_type=kind, resource_name=name)
        try:
            configs = _changed(call, resource)
            saved.append(replace(call.broker, kind, name, configs, validate_only=request.validate_only))
        except Refusal as refusal:
            response = AlterConfigsResourceResponse(
                error_code=refusal.code, error_message=refusal.message, resource_type=kind, resource_name=name
            )
        responses.append(response)
    for promise in saved:
        if promise is not None:
            await promise
    return IncrementalAlterConfigsResponse(responses=tuple(responses))


def _changed(call: Call, resource: AlterConfigsResource) -> dict[str, str | None]:
    """All of the resource's own settings after the operations."""
    configs: dict[str, str | None] = dict(current(call.broker, resource.resource_type, resource.resource_name))
    repeated = [name for name, count in Counter(config.name for config in resource.configs).items() if count > 1]
    if repeated:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(repeated)}")
    for change in resource.configs:
        if change.config_operation == DELETE:
            configs.pop(change.name, None)
        elif change.config_operation == SET:
            if change.value is None:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
            configs[change.name] = change.value
        elif change.config_operation in (APPEND, SUBTRACT):
            configs[change.name] = _list_changed(call, resource, change)
        else:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown config operation {change.config_operation}")
    return configs


def _list_changed(call: Call, resource: AlterConfigsResource, change: AlterableConfig) -> str:
    """The list with items added or taken away; one that was not set starts from its effective value."""
    key = table(resource.resource_type).get(change.name)
    if key is None or key.type is not ConfigType.LIST or change.value is None:
        raise Refusal(
            ErrorCode.INVALID_CONFIG, f"Config value append/subtract is not allowed for config key: {change.name}"
        )
    own = current(call.broker, resource.resource_type, resource.resource_name)
    config = call.broker.config
    effective = config.explain_topic(own, key.name) if resource.resource_type == TOPIC else config.explain(key.name)
    items = [item for item in (own.get(key.name) or effective.text or "").split(",") if item]
    changed = [item.strip() for item in change.value.split(",")]
    if change.config_operation == APPEND:
        items += [item for item in changed if item not in items]
    else:
        items = [item for item in items if item not in changed]
    return ",".join(items)
