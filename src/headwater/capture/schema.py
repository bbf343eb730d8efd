"""What a captured table looks like, whatever the database: columns, key, version.

A `Codec` says how one column's value becomes JSON. Converters take what the database sent (bytes, as text) and return
a JSON fragment; `None` as converter means that the text is JSON already (integers).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headwater.capture.settings import ColumnRule, Hash, Mask, Truncate

__all__ = ["UNAVAILABLE", "Codec", "Column", "Convert", "TableVersion", "json_string", "with_rule"]

# What Debezium's consumers look for in place of a large value that an update did not touch
UNAVAILABLE = b"__debezium_unavailable_value"

Convert = Callable[[bytes], bytes]

_encode = msgspec.json.Encoder().encode


def json_string(text: bytes) -> bytes:
    """UTF-8 text as a JSON string."""
    try:
        return _encode(text.decode())
    except UnicodeDecodeError:  # a database without an encoding may hold any bytes
        return _encode(text.decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of a column become JSON, and what Kafka Connect calls such a value."""

    convert: Convert | None
    connect: Mapping[str, Any]
    fallback: bytes = b'""'  # stands for a NOT NULL column whose value the database did not send
    unavailable: bytes = b'"' + UNAVAILABLE + b'"'


STRING = Codec(json_string, {"type": "string"})


@dataclass(frozen=True, slots=True)
class Column:
    """One captured column of one version of a table."""

    name: str
    type_name: str
    optional: bool
    codec: Codec = field(repr=False)
    default: str | None = None  # as the database prints it

    def describe(self) -> dict[str, Any]:
        about: dict[str, Any] = {"name": self.name, "type": self.type_name, "optional": self.optional}
        if self.default is not None:
            about["default"] = self.default
        return about

    def connect(self) -> dict[str, Any]:
        """The field in Kafka Connect's JSON schema."""
        return {**self.codec.connect, "optional": self.optional, "field": self.name}


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table as it was when certain rows were written."""

    schema: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    def describe(self) -> dict[str, Any]:
        return {
            "schema": self.schema,
            "table": self.table,
            "key": list(self.key),
            "columns": [column.describe() for column in self.columns],
        }

    def fingerprint(self) -> str:
        """Equal for equal versions, in every process."""
        return hashlib.sha256(json.dumps(self.describe(), sort_keys=True).encode()).hexdigest()[:16]


def with_rule(codec: Codec, rule: ColumnRule | None) -> Codec:
    """The column's codec with the user's rule applied: the plain value then never reaches a record."""
    if rule is None:
        return codec
    string = {"type": "string"}
    if isinstance(rule, Mask):
        masked = json_string(rule.text.encode())
        return Codec(lambda _: masked, string, masked, masked)
    if isinstance(rule, Hash):
        key = rule.key.encode()
        return Codec(lambda text: b'"%b"' % hmac.new(key, text, hashlib.sha256).hexdigest().encode(), string)
    return Codec(_truncate(rule), string)


def _truncate(rule: Truncate) -> Convert:
    def cut(text: bytes) -> bytes:
        return _encode(text.decode(errors="replace")[: rule.characters])

    return cut


def base64_string(data: bytes) -> bytes:
    return b'"' + b2a_base64(data, newline=False) + b'"'
