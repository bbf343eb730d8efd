"""What members of a classic consumer group tell each other inside JoinGroup and SyncGroup (protocol type "consumer").

An int16 version precedes each.
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

from headwater.wire.codec import decode, encode
from headwater.wire.errors import Malformed
from headwater.wire.fields import Struct, array, blob, int32, string

__all__ = [
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "TopicPartition",
    "decode_consumer_protocol",
    "encode_consumer_protocol",
]


class TopicPartition(Struct):
    topic: str = string()
    partitions: tuple[int, ...] = array(int32)


class ConsumerProtocolSubscription(Struct):
    topics: tuple[str, ...] = array(string)
    user_data: bytes | None = blob(nullable="0+", default=None)
    owned_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+", default=None)


class ConsumerProtocolAssignment(Struct):
    assigned_partitions: tuple[TopicPartition, ...] = array(TopicPartition)
    user_data: bytes | None = blob(nullable="0+", default=None)


NEWEST: Final = 3
"""The newest version known here."""

T = TypeVar("T", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def encode_consumer_protocol(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int) -> bytes:
    """The message after its version."""
    return struct.pack(">h", version) + encode(message, version=version, flexible=False)


def decode_consumer_protocol(of: type[T], data: bytes | memoryview) -> T:
    """The message. One of a newer version is read as the newest known: its fields come after those known here."""
    if len(data) < 2:
        raise Malformed(of.__name__, "version", 0, "ends early")
    (version,) = struct.unpack_from(">h", data)
    if version < 0:
        raise Malformed(of.__name__, "version", 0, f"is {version}")
    return decode(of, data, version=min(version, NEWEST), flexible=False, position=2)[0]
