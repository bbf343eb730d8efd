"""Rows of COPY's text format: columns apart by tabs, `\\N` for null, backslash escapes. Pure.

\\b \\f \\n \\r \\t \\v \\\\ are the usual characters; COPY writes no other escapes.
"""

from __future__ import annotations

import re

from headwater.capture.pgoutput import Tuple

__all__ = ["copy_values"]

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_MEANING = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v", b"\\": b"\\"}


def copy_values(line: bytes) -> Tuple:
    """The columns of one row, without its line end."""
    if b"\\" not in line:  # most rows: nothing to unescape, no nulls
        return line.split(b"\t")  # type: ignore[return-value]  # a list of bytes is a list of bytes or nulls
    return [
        None if value == b"\\N" else _ESCAPE.sub(_plain, value) if b"\\" in value else value
        for value in line.split(b"\t")
    ]


def _plain(match: re.Match[bytes]) -> bytes:
    return _MEANING.get(match[1], match[1])
