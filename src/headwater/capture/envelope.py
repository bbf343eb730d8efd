"""Change events in the form that Debezium's consumers read, as bytes.

The envelope is written by filling a template, never by building an object: everything that is the same for all rows
of a table in a transaction is in the template already, so a row costs one `%`.

    {"before": row|null, "after": row|null, "source": {...}, "transaction": {...}|null,
     "op": "c"|"u"|"d"|"r"|"t"|"m", "ts_ms": n, "ts_us": n, "ts_ns": n}

Three forms: `debezium` (above), `debezium-schema` ({"schema": ..., "payload": above}, Connect's JSON with schemas) and
`flat`: the row itself, a delete being a null value; keys have sorted names there, as all our changelogs do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.capture.schema import TableVersion
from headwater.capture.settings import Form

__all__ = ["EVERY_PARTITION", "NULL", "Envelope", "Headers", "Record", "quoted", "row_template"]

Headers = list[tuple[str, str | bytes | None]]

# topic, key, value, headers: one record on its way to the log
Record = tuple[str, bytes | None, bytes | None, Headers | None]

NULL = b"null"

# In place of headers: the record goes to every partition of its topic, because it concerns all keys (truncate)
EVERY_PARTITION: Headers = []

_SOURCE_FIELDS: Sequence[tuple[str, str, bool]] = (
    ("version", "string", False),
    ("connector", "string", False),
    ("name", "string", False),
    ("ts_ms", "int64", False),
    ("snapshot", "string", True),
    ("db", "string", False),
    ("sequence", "string", True),
    ("ts_us", "int64", True),
    ("ts_ns", "int64", True),
    ("schema", "string", False),
    ("table", "string", False),
    ("txId", "int64", True),
    ("lsn", "int64", True),
    ("xmin", "int64", True),
    ("origin", "string", True),
    ("origin_lsn", "int64", True),
)


def quoted(text: str) -> bytes:
    """A JSON string that is safe inside a template."""
    return json.dumps(text, ensure_ascii=False).encode().replace(b"%", b"%%")


def row_template(names: Sequence[str | None]) -> bytes:
    """One slot for every column; a column of no name is left out (its slot prints nothing)."""
    members, hidden = [], b""
    for name in names:
        if name is None:
            hidden += b"%.0b"
        else:
            members.append(hidden + quoted(name) + b":%b")
            hidden = b""
    return b"{" + b",".join(members) + hidden + b"}"


class Envelope:
    """The records of one version of one table, in the form that was asked for."""

    def __init__(self, form: Form, prefix: str, table: TableVersion) -> None:
        self.flat = form == "flat"
        self.with_schema = form == "debezium-schema"
        self._start, self._end = b"", b""
        self.key_start, self.key_end = b"", b""
        if self.with_schema:
            self._start = _schema_start(_envelope_schema(prefix, table))
            self.key_start = _schema_start(_key_schema(prefix, table))
            self._end = self.key_end = b"}"

    def template(self, source: bytes, now_ns: int) -> bytes:
        """Slots: before, after, then those of `source`, transaction, op."""
        return (
            b'%b{"before":%%b,"after":%%b,"source":%b,"transaction":%%b,"op":"%%b",'
            b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d}%b'
            % (self._start, source, now_ns // 1_000_000, now_ns // 1_000, now_ns, self._end)
        )


def _schema_start(schema: Mapping[str, Any]) -> bytes:
    text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False).encode()
    return b'{"schema":' + text.replace(b"%", b"%%") + b',"payload":'


def _key_schema(prefix: str, table: TableVersion) -> dict[str, Any]:
    fields = [{**c.connect(), "optional": False} for c in table.columns if c.name in table.key]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{prefix}.{table.name}.Key"}


def _envelope_schema(prefix: str, table: TableVersion) -> dict[str, Any]:
    base = f"{prefix}.{table.name}"
    row = {"type": "struct", "fields": [c.connect() for c in table.columns], "optional": True, "name": f"{base}.Value"}
    source = [{"type": kind, "optional": optional, "field": name} for name, kind, optional in _SOURCE_FIELDS]
    transaction = [
        {"type": "string", "optional": False, "field": "id"},
        {"type": "int64", "optional": False, "field": "total_order"},
        {"type": "int64", "optional": False, "field": "data_collection_order"},
    ]
    return {
        "type": "struct",
        "fields": [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {
                "type": "struct",
                "fields": source,
                "optional": False,
                "name": "io.debezium.connector.postgresql.Source",
                "version": 1,
                "field": "source",
            },
            {
                "type": "struct",
                "fields": transaction,
                "optional": True,
                "name": "event.block",
                "version": 1,
                "field": "transaction",
            },
            {"type": "string", "optional": False, "field": "op"},
            *({"type": "int64", "optional": True, "field": f"ts_{unit}"} for unit in ("ms", "us", "ns")),
        ],
        "optional": False,
        "name": f"{base}.Envelope",
        "version": 2,
    }
