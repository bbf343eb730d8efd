"""The things that have settings (topics, brokers, groups) as DescribeConfigs and the two AlterConfigs name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.broker.configs import ConfigRefused
from headwater.broker.configs.broker import BROKER_KEYS
from headwater.broker.configs.group import GROUP_KEYS
from headwater.broker.configs.keys import ConfigKey
from headwater.broker.configs.resolve import validated
from headwater.broker.configs.topic import TOPIC_KEYS
from headwater.broker.promise import Promise
from headwater.broker.refusals import Refusal
from headwater.broker.topics import name_problem
from headwater.log.results import Appended, AppendRefused
from headwater.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headwater.broker.services import Services

__all__ = ["BROKER", "BROKER_LOGGER", "GROUP", "TOPIC", "current", "replace", "table"]

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32

_TABLES: dict[int, Mapping[str, ConfigKey]] = {TOPIC: TOPIC_KEYS, BROKER: BROKER_KEYS, GROUP: GROUP_KEYS}


def table(kind: int) -> Mapping[str, ConfigKey]:
    """The settings that resources of this type have."""
    found = _TABLES.get(kind)
    if found is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Resource type {kind} has no settings here.")
    return found


def current(broker: Services, kind: int, name: str) -> Mapping[str, str]:
    """What was set on the resource itself. Refusal when there is no such resource."""
    table(kind)
    if kind == TOPIC:
        problem = name_problem(name)
        if problem is not None:
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        topic = broker.cluster.topic(name)
        if topic is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        return topic.configs
    if kind == GROUP:
        if not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty.")
        return broker.cluster.group_configs(name)
    if name not in ("", str(broker.cluster.node_id)):
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker.cluster.node_id} or empty string, but received {name}",
        )
    return broker.config.this_broker if name else broker.config.cluster_wide


def replace(
    broker: Services, kind: int, name: str, configs: Mapping[str, str | None], *, validate_only: bool
) -> Promise[Appended] | None:
    """Set all of the resource's own settings, after checking each of them; None when only checking."""
    before = current(broker, kind, name)
    try:
        accepted = validated(table(kind), configs)
    except ConfigRefused as error:
        raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from error
    for setting in accepted:
        if not table(kind)[setting].dynamic and accepted[setting] != before.get(setting):
            raise Refusal(
                ErrorCode.INVALID_REQUEST, f"Cannot update this config dynamically: {setting}; set it at the start"
            )
    _check_bounds(broker, kind, accepted)
    if validate_only:
        return None
    try:
        if kind == TOPIC:
            return broker.cluster.configure(broker.cluster.topics[name], accepted)
        if kind == GROUP:
            return broker.cluster.set_group_configs(name, accepted)
        return broker.cluster.set_broker_configs(name, accepted)
    except AppendRefused as error:
        raise Refusal(error.code, error.message) from error


def _check_bounds(broker: Services, kind: int, configs: Mapping[str, str]) -> None:
    """A group's time-outs stay within what the broker allows."""
    if kind != GROUP:
        return
    for name, text in configs.items():
        setting = name.removeprefix("consumer.")
        low = broker.config.number(f"group.consumer.min.{setting}")
        high = broker.config.number(f"group.consumer.max.{setting}")
        if not low <= int(text) <= high:
            raise Refusal(
                ErrorCode.INVALID_CONFIG, f"{name} must be from {low} to {high} (group.consumer.min/max.{setting})"
            )
