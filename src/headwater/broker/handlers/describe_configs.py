"""DescribeConfigs 1-4: effective values of topics, this broker and groups; where they come from; what they mean.

The broker's loggers, a Java matter, have no settings here.
"""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.config_resources import BROKER, GROUP, TOPIC, current, table
from headwater.broker.configs import ConfigSource, Effective
from headwater.broker.refusals import Refusal
from headwater.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 32


def handle(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=tuple(_describe(call, request, wanted) for wanted in request.resources))


def _describe(call: Call, request: DescribeConfigsRequest, wanted: DescribeConfigsResource) -> DescribeConfigsResult:
    kind, name = wanted.resource_type, wanted.resource_name
    try:
        current(call.broker, kind, name)
        keys = table(kind)
    except Refusal as refusal:
        return DescribeConfigsResult(
            error_code=refusal.code, error_message=refusal.message, resource_type=kind, resource_name=name
        )
    asked = wanted.configuration_keys
    names = sorted(keys if not asked else (key for key in asked if key in keys))
    found = (_effective(call, kind, name, key) for key in names)
    return DescribeConfigsResult(
        resource_type=kind,
        resource_name=name,
        configs=tuple(_config(request, kind, effective) for effective in found if effective is not None),
    )


def _effective(call: Call, kind: int, name: str, key: str) -> Effective | None:
    config = call.broker.config
    if kind == TOPIC:
        return config.explain_topic(call.broker.cluster.topics[name].configs, key)
    if kind == GROUP:
        return config.explain_group(call.broker.cluster.group_configs(name), key)
    effective = config.explain(key)
    if not name:  # the default of all brokers: only what was set for them
        return effective if effective.source is ConfigSource.DYNAMIC_DEFAULT_BROKER else None
    return effective


def _config(request: DescribeConfigsRequest, kind: int, effective: Effective) -> DescribeConfigsResourceResult:
    key = effective.key
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    if request.include_synonyms:
        synonyms = tuple(
            DescribeConfigsSynonym(name=o.name, value=None if key.secret else o.text, source=o.source)
            for o in effective.origins
        )
    return DescribeConfigsResourceResult(
        name=key.name,
        value=None if key.secret else effective.text,
        read_only=kind == BROKER and not key.dynamic,
        config_source=effective.source,
        is_sensitive=key.secret,
        synonyms=synonyms,
        config_type=key.type,
        documentation=key.doc if request.include_documentation else None,
    )
