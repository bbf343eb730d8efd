"""PostgreSQL's array text as JSON arrays, of any dimensions.

array   [bounds=]{item,item,...}      bounds like [0:2][1:3], left out of the result
item    array | NULL | word | "quoted, with \\ before quotes and backslashes"
"""

from __future__ import annotations

import re

from headwater.capture.schema import UNAVAILABLE, Codec, Convert
from headwater.errors import BadInput

__all__ = ["array_of"]

_TOKEN = re.compile(rb'[{},]|"(?:[^"\\]|\\.)*"|[^{},"]+', re.DOTALL)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)


def array_of(element: Codec) -> Codec:
    about = {"type": "array", "items": {**element.connect, "optional": True}}
    return Codec(_converter(element.convert), about, b"[]", _unavailable(element))


def _converter(convert: Convert | None) -> Convert:
    def encode(text: bytes) -> bytes:
        start = text.index(b"=") + 1 if text[:1] == b"[" else 0
        parts: list[bytes] = []
        for token in _TOKEN.findall(text, start):
            parts.append(_STRUCTURE.get(token) or _item(token, convert))
        return b"".join(parts)

    return encode


_STRUCTURE = {b"{": b"[", b"}": b"]", b",": b",", b"NULL": b"null"}


def _item(token: bytes, convert: Convert | None) -> bytes:
    if token[:1] == b'"':
        token = _ESCAPE.sub(rb"\1", token[1:-1])
    if convert is None:
        if not token.lstrip(b"-").isdigit():
            raise BadInput(f"not an integer in an array: {token[:40]!r}")
        return token
    return convert(token)


def _unavailable(element: Codec) -> bytes:
    """The placeholder as an array of the element's type, as Debezium writes it."""
    if element.connect["type"] in ("int16", "int32", "int64"):
        return b"[" + b",".join(b"%d" % byte for byte in UNAVAILABLE) + b"]"
    if element.connect["type"] in ("string", "bytes"):
        return b"[" + element.unavailable + b"]"
    return b"[]"
