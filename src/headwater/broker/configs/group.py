"""Group settings (resource type GROUP), and the broker settings that are their defaults and bounds."""

from __future__ import annotations

from headwater.broker.configs.keys import ConfigKey, ConfigType, at_least

__all__ = ["GROUP_KEYS"]

_T = ConfigType

_KEYS = (
    ConfigKey(
        "consumer.session.timeout.ms",
        _T.INT,
        "45000",
        "How long a member of a consumer group (new protocol) may be silent before it is removed.",
        at_least(1),
        ("group.consumer.session.timeout.ms",),
    ),
    ConfigKey(
        "consumer.heartbeat.interval.ms",
        _T.INT,
        "5000",
        "How often members of a consumer group (new protocol) are told to report.",
        at_least(1),
        ("group.consumer.heartbeat.interval.ms",),
    ),
)

GROUP_KEYS: dict[str, ConfigKey] = {key.name: key for key in _KEYS}
