"""What consumers put inside JoinGroup and SyncGroup, as far as the coordinator looks: three cases only.

Which topics a group is subscribed to (OffsetDelete, expiry), moving a group between the two protocols, and classic
clients that are members of a consumer group. For everything else these bytes are opaque.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.wire.errors import Malformed
from headwater.wire.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_consumer_protocol,
    encode_consumer_protocol,
)

__all__ = ["PROTOCOL_TYPE", "Assignment", "Malformed", "Subscription", "encode_assignment"]

PROTOCOL_TYPE = "consumer"


@dataclass(frozen=True, slots=True)
class Subscription:
    topics: tuple[str, ...]
    owned: frozenset[tuple[str, int]]
    rack_id: str | None

    @classmethod
    def decode(cls, data: bytes) -> Subscription:
        """Raises `Malformed`."""
        read = decode_consumer_protocol(ConsumerProtocolSubscription, data)
        return cls(read.topics, _flat(read.owned_partitions), read.rack_id)


@dataclass(frozen=True, slots=True)
class Assignment:
    partitions: frozenset[tuple[str, int]]
    user_data: bytes | None

    @classmethod
    def decode(cls, data: bytes) -> Assignment:
        """Raises `Malformed`."""
        read = decode_consumer_protocol(ConsumerProtocolAssignment, data)
        return cls(_flat(read.assigned_partitions), read.user_data)


def encode_assignment(partitions: Mapping[str, Iterable[int]], version: int) -> bytes:
    """As a leader would have written it."""
    assigned = tuple(TopicPartition(topic=topic, partitions=tuple(sorted(partitions[topic]))) for topic in partitions)
    return encode_consumer_protocol(ConsumerProtocolAssignment(assigned_partitions=assigned), version)


def _flat(topics: Iterable[TopicPartition]) -> frozenset[tuple[str, int]]:
    return frozenset((topic.topic, partition) for topic in topics for partition in topic.partitions)
