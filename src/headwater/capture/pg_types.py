"""PostgreSQL's types as Debezium encodes them in JSON: from the server's text to a JSON fragment.

The session that sends the text has DateStyle ISO, IntervalStyle postgres, TimeZone UTC, bytea_output hex and
lc_monetary C, so that every type has one text form. Types that Debezium leaves out (boxes, paths, composites ...)
are the server's own text, as strings: nothing is dropped.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from headwater.capture.pg_arrays import array_of
from headwater.capture.pg_times import (
    date_days,
    interval_us,
    time_us,
    timestamp_ms,
    timestamp_us,
    to_milliseconds,
    zoned_time,
    zoned_timestamp,
)
from headwater.capture.schema import STRING, UNAVAILABLE, Codec, base64_string, json_string
from headwater.capture.settings import Binary, Decimals

__all__ = ["TypeInfo", "codec_of"]

DOMAIN_DEPTH_MAX = 32  # domains over domains: deeper is a damaged catalog
MONEY_DIGITS = 2  # of lc_monetary C


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """A row of pg_type: kind is its typtype (b base, c composite, d domain, e enum, r range, m multirange)."""

    name: str
    kind: str = "b"
    element: int = 0  # of an array; 0: not an array
    base: int = 0  # of a domain
    base_modifier: int = -1
    labels: tuple[str, ...] = ()  # of an enum


def codec_of(
    oid: int,
    modifier: int,
    types: Mapping[int, TypeInfo],
    decimals: Decimals = "precise",
    binary: Binary = "base64",
) -> Codec:
    """How a column of this type is encoded; unknown types are strings."""
    for _ in range(DOMAIN_DEPTH_MAX):
        info = types.get(oid)
        if info is None or info.kind != "d":
            break
        oid, modifier = info.base, info.base_modifier if modifier < 0 else modifier
    if info is None:
        return STRING
    if info.element and info.name.startswith("_") and info.name != "_box":  # boxes are apart by semicolons
        return array_of(codec_of(info.element, modifier, types, decimals, binary))
    if info.kind == "e":
        return Codec(json_string, _named("string", "io.debezium.data.Enum", {"allowed": ",".join(info.labels)}))
    return _base_type(info.name, modifier, decimals, binary) if info.kind == "b" else STRING


def _base_type(name: str, modifier: int, decimals: Decimals, binary: Binary) -> Codec:
    if name in _BY_MODIFIER:
        return _BY_MODIFIER[name](modifier)
    if name in ("numeric", "money"):
        return _decimal(name, modifier, decimals)
    if name == "bytea":
        return _bytea(binary)
    return _PLAIN.get(name, STRING)


def _named(kind: str, name: str, parameters: Mapping[str, str] | None = None) -> dict[str, object]:
    about: dict[str, object] = {"type": kind, "name": name, "version": 1}
    if parameters:
        about["parameters"] = dict(parameters)
    return about


def _bool(text: bytes) -> bytes:
    return b"true" if text == b"t" else b"false"


def _float(text: bytes) -> bytes:
    """JSON has no NaN and no infinities: as strings, as Connect's converter writes them."""
    return b'"%b"' % text if text[-1] in b"Ny" else text


def _hex(text: bytes) -> bytes:
    return b'"' + text[2:] + b'"'


def _bytea(binary: Binary) -> Codec:
    if binary == "hex":
        return Codec(_hex, {"type": "string"}, b'""', b'"' + UNAVAILABLE.hex().encode() + b'"')
    return Codec(
        lambda text: base64_string(bytes.fromhex(text[2:].decode())),
        {"type": "bytes"},
        b'""',
        base64_string(UNAVAILABLE),
    )


def two_complement(number: int) -> bytes:
    """The shortest big-endian two's complement, as Java's BigInteger gives it."""
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def _special(text: bytes) -> bool:
    return text[-1] in b"Ny"  # NaN, Infinity, -Infinity


def _fixed_decimal(scale: int, text: bytes) -> bytes:
    try:
        number = int(text.replace(b".", b""))
    except ValueError:
        return b"null"  # infinite or no number: this encoding has no place for them, `decimals="string"` keeps them
    return base64_string(two_complement(number if scale >= 0 else number // 10**-scale))


def _free_decimal(text: bytes) -> bytes:
    if _special(text):
        return b"null"
    whole, _, fraction = text.partition(b".")
    return b'{"scale":%d,"value":%b}' % (len(fraction), base64_string(two_complement(int(whole + fraction))))


def _decimal(name: str, modifier: int, decimals: Decimals) -> Codec:
    prepare = _money_text if name == "money" else None
    if decimals == "string":
        return Codec(_after(prepare, json_string), {"type": "string"})
    if decimals == "double":
        return Codec(_after(prepare, _float), {"type": "double"}, b"0.0")
    if name == "numeric" and modifier < 0:
        fields = [
            {"type": "int32", "optional": False, "field": "scale"},
            {"type": "bytes", "optional": False, "field": "value"},
        ]
        about = {**_named("struct", "io.debezium.data.VariableScaleDecimal"), "fields": fields}
        return Codec(_free_decimal, about, b'{"scale":0,"value":"AA=="}')
    scale = MONEY_DIGITS if name == "money" else (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400  # 11 bits, signed
    parameters = {"scale": str(scale)}
    if name == "numeric":
        parameters["connect.decimal.precision"] = str((modifier - 4) >> 16)
    about = _named("bytes", "org.apache.kafka.connect.data.Decimal", parameters)
    return Codec(_after(prepare, partial(_fixed_decimal, scale)), about, b'"AA=="')


def _money_text(text: bytes) -> bytes:
    return text.replace(b"$", b"").replace(b",", b"")


def _after(prepare: Callable[[bytes], bytes] | None, convert: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    if prepare is None:
        return convert
    return lambda text: convert(prepare(text))


def _bits(modifier: int) -> Codec:
    if modifier == 1:
        return Codec(lambda text: b"true" if text == b"1" else b"false", {"type": "boolean"}, b"false")
    return _bit_string(modifier)


def _bit_string(modifier: int) -> Codec:
    length = modifier if modifier > 0 else 2**31 - 1  # as Debezium says "any length"

    def convert(text: bytes) -> bytes:
        size = (len(text) + 7) // 8
        return base64_string(int(text or b"0", 2).to_bytes(size, "little"))

    return Codec(convert, _named("bytes", "io.debezium.data.Bits", {"length": str(length)}))


def _milliseconds_or_micro(modifier: int, milli: Codec, micro: Codec) -> Codec:
    return milli if 0 <= modifier <= 3 else micro


_POINT = re.compile(rb"\(([^,]+),([^)]+)\)")


def _point(text: bytes) -> bytes:
    """A struct of coordinates and their well-known binary (little-endian, type 1)."""
    found = _POINT.fullmatch(text)
    if found is None:
        return b"null"
    x, y = found.groups()
    wkb = struct.pack("<BIdd", 1, 1, float(x), float(y))
    return b'{"x":%b,"y":%b,"wkb":%b,"srid":null}' % (_float(x), _float(y), base64_string(wkb))


_HSTORE = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)')


def _hstore(text: bytes) -> bytes:
    """A JSON object, as a string."""
    members = []
    for name, value in (match.groups() for match in _HSTORE.finditer(text.decode())):
        shown = b"null" if value is None else json_string(_unescaped(value))
        members.append(json_string(_unescaped(name)) + b":" + shown)
    return json_string(b"{" + b",".join(members) + b"}")


@lru_cache(maxsize=1024)
def _unescaped(text: str) -> bytes:
    return re.sub(r"\\(.)", r"\1", text).encode()


_NUMBER = {"int2": "int16", "int4": "int32", "int8": "int64", "oid": "int64"}

_PLAIN: dict[str, Codec] = {
    **{name: Codec(None, {"type": kind}, b"0") for name, kind in _NUMBER.items()},
    "bool": Codec(_bool, {"type": "boolean"}, b"false"),
    "float4": Codec(_float, {"type": "float"}, b"0.0"),
    "float8": Codec(_float, {"type": "double"}, b"0.0"),
    "date": Codec(date_days, _named("int32", "io.debezium.time.Date"), b"0"),
    "timestamptz": Codec(
        zoned_timestamp, _named("string", "io.debezium.time.ZonedTimestamp"), b'"1970-01-01T00:00:00.000000Z"'
    ),
    "timetz": Codec(zoned_time, _named("string", "io.debezium.time.ZonedTime"), b'"00:00:00Z"'),
    "interval": Codec(interval_us, _named("int64", "io.debezium.time.MicroDuration"), b"0"),
    "json": Codec(json_string, _named("string", "io.debezium.data.Json")),
    "jsonb": Codec(json_string, _named("string", "io.debezium.data.Json")),
    "xml": Codec(json_string, _named("string", "io.debezium.data.Xml")),
    "uuid": Codec(json_string, _named("string", "io.debezium.data.Uuid")),
    "ltree": Codec(json_string, _named("string", "io.debezium.data.Ltree")),
    "hstore": Codec(_hstore, _named("string", "io.debezium.data.Json"), b'"{}"'),
    "point": Codec(
        _point,
        {
            **_named("struct", "io.debezium.data.geometry.Point"),
            "fields": [
                {"type": "double", "optional": False, "field": "x"},
                {"type": "double", "optional": False, "field": "y"},
                {"type": "bytes", "optional": True, "field": "wkb"},
                {"type": "int32", "optional": True, "field": "srid"},
            ],
        },
        b'{"x":0.0,"y":0.0,"wkb":"AQEAAAAAAAAAAAAAAAAAAAAAAAAA","srid":null}',
    ),
}

_TIMESTAMP_MS = Codec(timestamp_ms, _named("int64", "io.debezium.time.Timestamp"), b"0")
_TIMESTAMP_US = Codec(timestamp_us, _named("int64", "io.debezium.time.MicroTimestamp"), b"0")
_TIME_MS = Codec(to_milliseconds(time_us), _named("int32", "io.debezium.time.Time"), b"0")
_TIME_US = Codec(time_us, _named("int64", "io.debezium.time.MicroTime"), b"0")

_BY_MODIFIER: dict[str, Callable[[int], Codec]] = {
    "bit": _bits,
    "varbit": _bit_string,
    "timestamp": lambda modifier: _milliseconds_or_micro(modifier, _TIMESTAMP_MS, _TIMESTAMP_US),
    "time": lambda modifier: _milliseconds_or_micro(modifier, _TIME_MS, _TIME_US),
}
