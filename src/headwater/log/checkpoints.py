"""Small text files of a data directory: offset checkpoints, `meta.properties`, `partition.metadata`.

An offset checkpoint has the version 0, the number of lines, and lines of topic, partition and offset, separated by
spaces.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from uuid import UUID

from headwater.errors import Corrupted

__all__ = [
    "decode_checkpoint",
    "decode_metadata",
    "decode_properties",
    "encode_checkpoint",
    "encode_metadata",
    "encode_properties",
]

Offsets = dict[tuple[str, int], int]


def encode_checkpoint(offsets: Mapping[tuple[str, int], int]) -> bytes:
    lines = "".join(f"{topic} {partition} {offset}\n" for (topic, partition), offset in sorted(offsets.items()))
    return f"0\n{len(offsets)}\n{lines}".encode()


def decode_checkpoint(content: bytes, path: str) -> Offsets:
    """Nothing from an empty file: Kafka makes those before it has something to write."""
    if not content:
        return {}
    try:
        version, count, *lines = content.decode().split("\n")
        found = {
            (topic, int(number)): int(offset) for topic, number, offset in (line.split(" ") for line in lines if line)
        }
        if version != "0" or int(count) != len(found):
            raise ValueError(f"version {version}, {count} lines announced, {len(found)} there")
    except ValueError as error:
        raise Corrupted(path, 0, f"not an offset checkpoint: {error}") from None
    return found


def encode_metadata(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode()


def decode_metadata(content: bytes, path: str) -> UUID:
    fields = dict(line.split(": ", 1) for line in content.decode("utf-8", "replace").splitlines() if ": " in line)
    try:
        return decode_uuid(fields["topic_id"])
    except (KeyError, ValueError) as error:
        raise Corrupted(path, 0, f"no topic id in it: {error}") from None


def encode_uuid(value: UUID) -> str:
    """As Kafka writes ids: base64 for URLs without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> UUID:
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def encode_properties(properties: Mapping[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in properties.items()).encode()


def decode_properties(content: bytes) -> dict[str, str]:
    lines: Iterable[str] = (line.strip() for line in content.decode("utf-8", "replace").splitlines())
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
