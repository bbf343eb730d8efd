"""The settings of the group coordinator, under Kafka's names, read once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["GroupSettings"]

UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Defaults are Kafka's, but for the initial rebalance delay: waiting 3 s for more members suits a fleet, not a
    laptop."""

    initial_rebalance_delay_ms: int = 0
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = UNLIMITED
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = UNLIMITED
    consumer_migration_policy: str = "bidirectional"  # disabled, upgrade, downgrade or bidirectional
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000

    @property
    def upgrades(self) -> bool:
        return self.consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def downgrades(self) -> bool:
        return self.consumer_migration_policy in ("downgrade", "bidirectional")

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000

    @classmethod
    def read(cls, get: Callable[[str], Any | None]) -> GroupSettings:
        """From a look-up by Kafka's name (None where it is not set)."""
        values: dict[str, Any] = {}
        for item in fields(cls):
            value = get(KAFKA_NAMES[item.name])
            if value is not None:
                values[item.name] = str(value).lower() if item.type == "str" else int(value)
        return cls(**values)


KAFKA_NAMES = {
    "initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "min_session_timeout_ms": "group.min.session.timeout.ms",
    "max_session_timeout_ms": "group.max.session.timeout.ms",
    "max_size": "group.max.size",
    "consumer_session_timeout_ms": "group.consumer.session.timeout.ms",
    "consumer_heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
    "consumer_max_size": "group.consumer.max.size",
    "consumer_migration_policy": "group.consumer.migration.policy",
    "offset_metadata_max_bytes": "offset.metadata.max.bytes",
    "offsets_retention_minutes": "offsets.retention.minutes",
    "offsets_retention_check_interval_ms": "offsets.retention.check.interval.ms",
}
