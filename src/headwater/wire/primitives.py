"""What generated decoders and encoders call for the rare or long cases; the common ones are written out in them.

Failures are `ValueError`, `IndexError` or `struct.error`: the generated code turns them into `Malformed`, which
knows the field.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from headwater.wire.fields import Payload

__all__ = [
    "MAX_ELEMENTS",
    "SMALL_UVARINTS",
    "add_payload",
    "ends_early",
    "read_uuid",
    "read_uvarint",
    "read_varint",
    "skip_tagged",
    "too_many",
    "unsigned_varint",
    "varint",
]

MAX_ELEMENTS: Final = 500_000
"""Array elements in one message, in all its arrays together. One byte on the wire may become an object of 200 bytes
here; this is what keeps a hostile message of allowed size from taking all memory. The largest legitimate messages name
200,000 partitions."""

COPIED_PAYLOAD_BYTES: Final = 1024
"""A payload up to this size is copied into the message around it: cheaper than one more buffer in the send call."""

UUID_CACHE_ENTRIES: Final = 4096
"""Topic ids seen lately. Building a UUID costs 1 µs, finding it 0.1 µs; when full the cache starts again."""

_uuids: dict[bytes, UUID] = {}


def ends_early(needed: int, left: int) -> ValueError:
    """The message says it is longer than it is."""
    return ValueError(f"needs {needed} bytes but {left} are left")


def too_many(count: int, left: int) -> ValueError:
    """An array claims more elements than its bytes could hold, or than one message may have."""
    return ValueError(f"claims {count} elements with {left} bytes left (and at most {MAX_ELEMENTS} a message)")


def read_uvarint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The unsigned varint at `position` (at most 32 bits, 5 bytes) and the position after it."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("varint longer than 5 bytes")


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The zigzag varint or varlong at `position` (at most 64 bits, 10 bytes) and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("varint longer than 10 bytes")


def skip_tagged(data: bytes | memoryview, position: int) -> int:
    """The position after the tagged fields at `position`; they are not kept."""
    count, position = read_uvarint(data, position)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        if size > len(data) - position:
            raise ends_early(size, len(data) - position)
        position += size
    return position


def unsigned_varint(value: int) -> bytes:
    """`value` as an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """`value` as a zigzag varint or varlong."""
    return unsigned_varint(value << 1 if value >= 0 else (-value << 1) - 1)


SMALL_UVARINTS: Final = tuple(unsigned_varint(value) for value in range(128))
"""Lengths of nearly all strings and arrays, ready made."""


def read_uuid(raw: bytes | memoryview) -> UUID:
    """The UUID of sixteen bytes."""
    key = bytes(raw)
    found = _uuids.get(key)
    if found is None:
        if len(_uuids) >= UUID_CACHE_ENTRIES:
            _uuids.clear()
        found = _uuids[key] = UUID(bytes=key)
    return found


def add_payload(chunks: list[Payload], out: bytearray, payload: Payload) -> bytearray:
    """Append a payload after what is in `out`; returns the buffer to go on with."""
    size = len(payload)
    if size <= COPIED_PAYLOAD_BYTES and isinstance(payload, (bytes, memoryview, bytearray)):
        out += payload
        return out
    chunks.append(out)
    chunks.append(payload)
    return bytearray()
