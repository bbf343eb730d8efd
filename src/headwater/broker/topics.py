"""A topic as the cluster knows it; which names are allowed; and its settings as its logs need them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from uuid import UUID

from headwater.broker.configs import BrokerConfig
from headwater.log.settings import LogSettings

__all__ = ["NAME_CHARACTERS_MAX", "Topic", "TopicChange", "log_settings", "name_collision", "name_problem"]

NAME_CHARACTERS_MAX = 249  # a file name (255) less the partition's number
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Topic:
    """`born`: in which start of the broker it was created (its leader epochs count from there)."""

    name: str
    id: UUID
    partitions: int
    born: int
    internal: bool = False
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """What happened to a topic: created (no `before`), deleted (no `after`), grown or configured (both)."""

    before: Topic | None
    after: Topic | None


def name_problem(name: str) -> str | None:
    """Why a topic cannot be called so, in Kafka's words; None when it can."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return "Topic name is invalid: '.' or '..' is not allowed"
    if len(name) > NAME_CHARACTERS_MAX:
        longest = NAME_CHARACTERS_MAX
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {longest}"
    if _LEGAL.fullmatch(name) is None:
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def name_collision(name: str, others: Mapping[str, object]) -> str | None:
    """A topic that differs from `name` only in `.` and `_`, which metrics cannot tell apart."""
    if "." not in name and "_" not in name:
        return None
    folded = name.replace(".", "_")
    return next((other for other in others if other != name and other.replace(".", "_") == folded), None)


def log_settings(config: BrokerConfig, own: Mapping[str, str]) -> LogSettings:
    """The effective settings of a topic with `own` values."""
    values: dict[str, object] = {}
    for each in fields(LogSettings):
        name = each.name.replace("_", ".")
        if name in _SAME:
            values[each.name] = config.topic_value(own, name)
    policy = config.topic_value(own, "cleanup.policy")
    assert isinstance(policy, tuple)
    compression = config.topic_value(own, "compression.type")
    level = f"compression.{compression}.level"
    return LogSettings(
        cleanup_delete="delete" in policy,
        cleanup_compact="compact" in policy,
        compression_level=config.topic_value(own, level) if level in _LEVELS else None,  # type: ignore[arg-type]
        producer_id_expiration_ms=config.number("producer.id.expiration.ms"),
        **values,  # type: ignore[arg-type]
    )


_LEVELS = {"compression.gzip.level", "compression.lz4.level", "compression.zstd.level"}
_SAME = {
    "segment.bytes", "segment.ms", "segment.index.bytes", "index.interval.bytes", "retention.ms", "retention.bytes",
    "delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms", "min.cleanable.dirty.ratio",
    "file.delete.delay.ms", "flush.messages", "flush.ms", "max.message.bytes", "message.timestamp.type",
    "message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "compression.type",
}  # fmt: skip
