"""Records of compacted internal topics: keys start with the record's type, values with their version (int16 each)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from headwater.wire.codec import decode, encode
from headwater.wire.errors import Malformed, UnsupportedVersion
from headwater.wire.fields import Struct

__all__ = ["KeyedRecords", "RecordType"]

_INT16: Final = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class RecordType:
    """A kind of record. Keys are version 0 and never flexible."""

    number: int
    key: type[Struct]
    value: type[Struct]
    newest: int  # value versions from 0 to this one can be read
    first_flexible: int | None
    written: int = 0  # the value version that is written unless asked otherwise


class KeyedRecords:
    """All kinds of records of one internal topic."""

    def __init__(self, *types: RecordType) -> None:
        self.types = {each.number: each for each in types}
        self._by_key = {each.key: each for each in types}
        self._by_value = {each.value: each for each in types}

    def encode_key(self, key: Struct) -> bytes:
        """The key with its type."""
        return _INT16.pack(self._by_key[type(key)].number) + encode(key, version=0, flexible=False)

    def encode_value(self, value: Struct, version: int | None = None) -> bytes:
        """The value with its version, by default the one that this type is written in."""
        kind = self._by_value[type(value)]
        if version is None:
            version = kind.written
        return _INT16.pack(version) + encode(value, version=version, flexible=_flexible(kind, version))

    def decode_key(self, data: bytes | memoryview) -> Struct | None:
        """The key, an instance of one of the key classes; None if it is of a type not known here."""
        kind = self.types.get(_leading(data, "record key"))
        if kind is None:
            return None
        return decode(kind.key, data, version=0, flexible=False, position=_INT16.size)[0]

    def decode_value(self, key: Struct, data: bytes | memoryview) -> Struct:
        """The value that belongs to a key of this type."""
        kind = self._by_key[type(key)]
        version = _leading(data, kind.value.__name__)
        if not 0 <= version <= kind.newest:
            raise UnsupportedVersion(kind.number, kind.value.__name__, version, 0, kind.newest)
        return decode(kind.value, data, version=version, flexible=_flexible(kind, version), position=_INT16.size)[0]


def _flexible(kind: RecordType, version: int) -> bool:
    return kind.first_flexible is not None and version >= kind.first_flexible


def _leading(data: bytes | memoryview, what: str) -> int:
    if len(data) < _INT16.size:
        raise Malformed(what, "version", 0, "ends early")
    number: int = _INT16.unpack_from(data)[0]
    return number
