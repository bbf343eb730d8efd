"""`kio`, an independent implementation of the protocol, as the judge of ours."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from headwater.wire.fields import ZERO_UUID, Struct
from headwater.wire.layout import layout

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


class Oracle:
    """kio's reader and writer of one message in one version."""

    def __init__(self, api_key: int, version: int, side: str) -> None:
        load = load_request_schema if side == "request" else load_response_schema
        self.entity = load(api_key, version)
        self.read = entity_reader(self.entity)
        self.write = entity_writer(self.entity)

    def decode(self, data: bytes) -> tuple[Any, int]:
        """The message as kio sees it, and how many bytes it took."""
        return self.read(data, 0)

    def encode(self, message: Any) -> bytes:
        """kio's bytes of a message that it decoded."""
        out = bytearray()
        self.write(_Sink(out), message)
        return bytes(out)


class _Sink:
    def __init__(self, out: bytearray) -> None:
        self.out = out

    def write(self, data: bytes) -> None:
        self.out += data


def plain(value: Any) -> Any:
    """A value of kio's as ours are: numbers for times and codes."""
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MILLISECOND
    if isinstance(value, enum.Enum):
        return int(value.value)
    return value


def differences(ours: Struct, theirs: Any, version: int, flexible: bool, path: str = "") -> list[str]:
    """Where the two messages do not say the same, field by field."""
    found = []
    names = {field.name: getattr(theirs, field.name) for field in dataclasses.fields(theirs)}
    shape = layout(type(ours), version, flexible)
    for slot in (*shape.plain, *shape.tagged):
        key = next((k for k in (slot.name, slot.name + "_", slot.name.removesuffix("_ms")) if k in names), None)
        where = f"{path}.{slot.name}"
        if key is None:
            found.append(f"{where}: kio does not have it")
            continue
        found += _different(getattr(ours, slot.name), names.pop(key), version, flexible, where)
    found += [f"{path}.{name}: only kio has it" for name in names]
    return found


def _different(ours: Any, theirs: Any, version: int, flexible: bool, where: str) -> list[str]:
    if isinstance(ours, Struct):
        return differences(ours, theirs, version, flexible, where)
    if isinstance(ours, tuple) and isinstance(theirs, tuple) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [each for i, (a, b) in pairs for each in _different(a, b, version, flexible, f"{where}[{i}]")]
    if theirs is None and ours in (-1, ZERO_UUID):  # kio's absent times and ids
        return []
    return [] if ours == plain(theirs) else [f"{where}: ours {ours!r}, kio's {theirs!r}"]
