"""Rows in the text format of PostgreSQL's COPY."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["copy_text"]

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def copy_text(rows: Sequence[tuple[Any, ...]]) -> str:
    """Rows in COPY's text format, built by column: what needs no escaping is not looked at twice."""
    columns = [_copy_column(column) for column in zip(*rows, strict=True)]
    return "\n".join(map("\t".join, zip(*columns, strict=True))) + "\n"


def _copy_column(values: Sequence[Any]) -> Sequence[str]:
    kinds = set(map(type, values))
    if kinds == {str}:
        texts = values
        joined = "".join(texts)
        if "\\" in joined or "\t" in joined or "\n" in joined or "\r" in joined:
            return [text.translate(_ESCAPES) for text in texts]
        return texts
    if kinds <= {int, float}:
        return list(map(repr, values))
    return [_copy_value(value) for value in values]


def _copy_value(value: Any) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, str):
        return value.translate(_ESCAPES)
    if isinstance(value, bool):
        return "t" if value else "f"
    return repr(value)
