"""First and next offsets of many partitions in one request a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient

from headwater.client import REQUEST_TIMEOUT_S

__all__ = ["offsets"]

_SPEC: Any = vars(kafka_admin)["OffsetSpec"]  # public, but neither exported nor typed there


def offsets(
    admin: AdminClient, partitions: Iterable[tuple[str, int]], which: Literal["earliest", "latest"]
) -> dict[tuple[str, int], int]:
    """The offsets of the partitions that exist."""
    spec = _SPEC.latest() if which == "latest" else _SPEC.earliest()
    asked = {TopicPartition(topic, partition): spec for topic, partition in partitions}
    found: dict[tuple[str, int], int] = {}
    if not asked:
        return found
    for each, future in admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            found[each.topic, each.partition] = future.result(REQUEST_TIMEOUT_S).offset
        except KafkaException:  # deleted a moment ago
            continue
    return found
