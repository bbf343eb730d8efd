"""Tables as text: how tests write rows down and how differences are shown.

    at       | user | amount | tags
    10:00:05 | ann  | 3      | ["a", "b"]
    10:00:20 | null | -1.5   | []

Cells follow their column's type. A time without a date is on DAY (and is shown without it); lists, structs and maps
are JSON; `null` is null, and a text that looks otherwise is written as a JSON string.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from headwater.pipeline.errors import BadOption, UnknownColumn

__all__ = ["DAY", "canonical", "difference", "instant", "parse_schema", "parse_table", "shown"]

DAY = date(2026, 1, 1)  # the day of times that are written without one

Row = Mapping[str, Any]

_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def parse_schema(schema: str | pa.Schema) -> pa.Schema:
    """ "user string, amount long, tags array<string>" as an Arrow schema."""
    if isinstance(schema, pa.Schema):
        return schema
    fields = []
    for part in schema.split(","):
        name, _, kind = part.strip().partition(" ")
        fields.append(pa.field(name, _parse_type(kind.strip().lower(), part)))
    return pa.schema(fields)


def _parse_type(kind: str, part: str) -> pa.DataType:
    if kind.startswith("array<") and kind.endswith(">"):
        return pa.list_(_parse_type(kind[6:-1], part))
    if kind not in _TYPES:
        raise BadOption(f"{part.strip()!r} is not 'name type' with a type of {', '.join(_TYPES)} or array<...>")
    return _TYPES[kind]


def instant(text: str | datetime) -> datetime:
    """A time of DAY ("10:00:05.25"), or an ISO date and time, in UTC."""
    if isinstance(text, datetime):
        return text if text.tzinfo else text.replace(tzinfo=UTC)
    whole = text if "-" in text else f"{DAY.isoformat()}T{text}"
    found = datetime.fromisoformat(whole)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def parse_table(text: str, schema: pa.Schema) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns that a text table names, and its rows."""
    lines = [line for line in text.splitlines() if line.strip() and not set(line.strip()) <= set("-+|")]
    if not lines:
        return [], []
    names = _cells(lines[0])
    for name in names:
        if name not in schema.names:
            raise UnknownColumn(name, list(schema.names), "text table")
    rows = []
    for line in lines[1:]:
        cells = _cells(line)
        if len(cells) != len(names):
            raise BadOption(f"the line {line.strip()!r} has {len(cells)} cells, its table {len(names)} columns")
        rows.append({n: parse_cell(c, schema.field(n).type) for n, c in zip(names, cells, strict=True)})
    return names, rows


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def parse_cell(text: str, kind: pa.DataType) -> Any:
    if text == "null":
        return None
    for fits, parse in _PARSERS:
        if fits(kind):
            return parse(text)
    return json.loads(text)


_PARSERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str], Any]], ...] = (
    (pa.types.is_timestamp, instant),
    (pa.types.is_boolean, {"true": True, "false": False}.__getitem__),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_date, date.fromisoformat),
    (pa.types.is_string, lambda text: json.loads(text) if text.startswith('"') else text),
    (pa.types.is_binary, str.encode),
)


def canonical(row: Row, columns: Sequence[str]) -> tuple[str, ...]:
    """The same texts for equal rows: what rows are compared by."""
    return tuple(_shown_cell(row[name]) for name in columns)


def difference(expected: Sequence[Row], found: Sequence[Row], columns: Sequence[str]) -> str:
    """Empty when both have the same rows, in whatever order; else every row with what is wrong with it."""
    wanted = Counter(canonical(row, columns) for row in expected)
    given = Counter(canonical(row, columns) for row in found)
    if wanted == given:
        return ""
    lines = [(row, " ") for row in (wanted & given).elements()]
    lines += [(row, "missing") for row in (wanted - given).elements()]
    lines += [(row, "unexpected") for row in (given - wanted).elements()]
    return _aligned([[*columns, ""], *([*row, mark] for row, mark in sorted(lines))])


def shown(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Rows as a text table, in their order."""
    return _aligned([columns, *(canonical(row, columns) for row in rows)])


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(" | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _shown_cell(value: Any) -> str:
    for kind, show in _SHOWN:
        if isinstance(value, kind):
            return show(value)
    return "null" if value is None else str(value)


def _shown_time(value: datetime) -> str:
    at = value.astimezone(UTC).replace(tzinfo=None)
    text = at.time().isoformat() if at.date() == DAY else at.isoformat(sep="T")
    return text.rstrip("0") if "." in text else text


def _shown_text(value: str) -> str:
    return json.dumps(value) if value == "null" or value.startswith('"') or "|" in value else value


_SHOWN: tuple[tuple[type | tuple[type, ...], Callable[[Any], str]], ...] = (
    (datetime, _shown_time),
    (bool, lambda value: str(value).lower()),
    (bytes, lambda value: value.decode(errors="backslashreplace")),
    (str, _shown_text),
    ((list, dict, tuple), lambda value: json.dumps(value, sort_keys=True, default=_shown_cell)),
    (timedelta, lambda value: f"{value / timedelta(seconds=1):g} s"),
    (float, repr),
)
