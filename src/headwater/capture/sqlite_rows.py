"""From rows of SQLite's changelog to records: the envelope of `envelope`, each value as the database has it.

SQLite types values, not columns: an integer, a real, a text or a blob may be in any column and comes out as such.
Texts are JSON strings, blobs base64 (or hexadecimal), infinities strings, as JSON has no number for them.
"""

from __future__ import annotations

import importlib.metadata
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from headwater.capture.envelope import NULL, Envelope, Headers, Record, quoted, row_template
from headwater.capture.outbox import outbox_record, refused_record
from headwater.capture.schema import Codec, Column, TableVersion, base64_string, with_rule
from headwater.capture.settings import Settings, matches
from headwater.capture.sqlite_schema import SCHEMA, Table
from headwater.errors import BadInput

__all__ = ["Place", "TablePlan", "plan_for"]

VERSION = importlib.metadata.version("headwater")

_encode = msgspec.json.Encoder().encode

Value = int | float | str | bytes | None
Convert = Callable[[Value], bytes]


class Place(NamedTuple):
    """Where in the changelog, and when."""

    seq: int
    time_ms: int


@dataclass(slots=True)
class TablePlan:
    """How rows of one version of a table become records."""

    table: Table
    version: TableVersion
    topic: str
    is_outbox: bool
    converters: list[Convert]
    row: bytes  # template with one slot per column
    key: bytes
    key_indexes: tuple[int, ...]
    envelope: Envelope
    settings: Settings
    database: str

    def fragments(self, values: Sequence[Value]) -> list[bytes]:
        return [
            NULL if value is None else convert(value) for value, convert in zip(values, self.converters, strict=True)
        ]

    def key_of(self, fragments: Sequence[bytes]) -> bytes | None:
        return self.key % tuple([fragments[i] for i in self.key_indexes]) if self.key_indexes else None

    def row_of(self, fragments: Sequence[bytes]) -> bytes:
        return self.row % tuple(fragments)

    def change(
        self, op: str, place: Place, *, before: Sequence[Value], after: Sequence[Value], template: bytes
    ) -> list[Record]:
        """The records of one row of the log."""
        if self.is_outbox:
            return [self._outbox(place.seq, after)] if op == "c" else []
        old = self.fragments(before) if op != "c" else None
        new = self.fragments(after) if op != "d" else None
        if new is None and old is not None:
            return self._delete(old, place, template, None)
        records: list[Record] = []
        headers: Headers | None = None
        fragments = new or []
        key = self.key_of(fragments)
        if old is not None and (old_key := self.key_of(old)) != key:
            records = self._delete(old, place, template, key)
            headers = [("__debezium.oldkey", old_key)]
        row = self.row_of(fragments)
        if not self.envelope.flat:
            shown = NULL if old is None or headers else self.row_of(old)
            row = self._filled(template, shown, row, b"u" if old is not None and not headers else b"c", place)
        return [*records, (self.topic, key, row, headers)]

    def _delete(self, old: Sequence[bytes], place: Place, template: bytes, new_key: bytes | None) -> list[Record]:
        key = self.key_of(old)
        records: list[Record] = []
        if not self.envelope.flat:
            value = self._filled(template, self.row_of(old), NULL, b"d", place)
            records.append((self.topic, key, value, [("__debezium.newkey", new_key)] if new_key is not None else None))
        if key is not None and (self.envelope.flat or self.settings.tombstones):
            records.append((self.topic, key, None, None))
        return records

    def read(self, values: Sequence[Value], place: Place, template: bytes) -> Record:
        """A row read by a snapshot."""
        fragments = self.fragments(values)
        row = self.row_of(fragments)
        if not self.envelope.flat:
            row = self._filled(template, NULL, row, b"r", place)
        return self.topic, self.key_of(fragments), row, None

    def _filled(self, template: bytes, before: bytes, after: bytes, op: bytes, place: Place) -> bytes:
        seq, time_ms = place
        return template % (before, after, time_ms, seq, time_ms * 1000, time_ms * 1_000_000, seq, NULL, op)

    def template(self, snapshot: bytes) -> bytes:
        """Slots: before, after, time, place, times, place, transaction, op; good for one batch."""
        head = b'{"version":%b,"connector":"sqlite","name":%b,"ts_ms":%%d,"snapshot":"%b","db":%b,' % (
            quoted(VERSION),
            quoted(self.settings.topic_prefix),
            snapshot,
            quoted(self.database),
        )
        rest = (
            b'"sequence":"[null,\\"%%d\\"]","ts_us":%%d,"ts_ns":%%d,"schema":%b,"table":%b,'
            b'"txId":null,"lsn":%%d,"xmin":null,"origin":null,"origin_lsn":null}'
        ) % (quoted(SCHEMA), quoted(self.table.name))
        return self.envelope.template(head + rest, time.time_ns())

    def _outbox(self, seq: int, values: Sequence[Value]) -> Record:
        row = {c.name: _text(value) for c, value in zip(self.table.columns, values, strict=True)}
        try:
            return outbox_record(self.version.name, row)
        except BadInput as error:
            return refused_record(self.settings.name, self.topic, seq, row, str(error))


def plan_for(table: Table, settings: Settings, database: str) -> TablePlan:
    names = [column.name for column in table.columns]
    chosen = settings.key_columns.get(table.full_name)
    key = tuple(n for n in names if n in chosen) if chosen is not None else table.key
    hidden = {n for n in names if matches(f"{table.full_name}.{n}", settings.exclude_columns) and n not in key}
    columns = [_column(table, i, settings) for i in range(len(names))]
    version = TableVersion(SCHEMA, table.name, tuple(c for c in columns if c.name not in hidden), key)
    envelope = Envelope(settings.form, settings.topic_prefix, version)
    indexes = tuple(names.index(n) for n in (sorted(key) if envelope.flat else key))
    return TablePlan(
        table=table,
        version=version,
        topic=settings.topic(SCHEMA, table.name),
        is_outbox=settings.is_outbox(SCHEMA, table.name),
        converters=[_converter(table, n, settings) for n in names],
        row=row_template([None if n in hidden else n for n in names]),
        key=envelope.key_start + row_template([names[i] for i in indexes]) + envelope.key_end,
        key_indexes=indexes,
        envelope=envelope,
        settings=settings,
        database=database,
    )


def _column(table: Table, index: int, settings: Settings) -> Column:
    column = table.columns[index]
    rule = settings.rule(SCHEMA, table.name, column.name)
    codec = with_rule(Codec(None, {"type": _connect_type(column.declared)}), rule)
    return Column(column.name, column.declared, not column.not_null, codec, column.default if rule is None else None)


def _connect_type(declared: str) -> str:
    """By SQLite's rules of affinity; what a column may hold besides is the writer's affair."""
    if "INT" in declared:
        return "int64"
    if any(word in declared for word in ("CHAR", "CLOB", "TEXT")):
        return "string"
    if not declared or "BLOB" in declared:
        return "bytes"
    return "double"


def _converter(table: Table, column: str, settings: Settings) -> Convert:
    rule = settings.rule(SCHEMA, table.name, column)
    if rule is not None:
        ruled = with_rule(Codec(None, {}), rule).convert
        return lambda value: NULL if ruled is None else ruled(_text(value) or b"")
    blob: Convert = _hex if settings.binary == "hex" else _base64

    def convert(value: Value) -> bytes:
        if isinstance(value, bytes):
            return blob(value)
        if isinstance(value, float) and math.isinf(value):
            return b'"Infinity"' if value > 0 else b'"-Infinity"'
        return _encode(value)

    return convert


def _base64(value: Any) -> bytes:
    return base64_string(value)


def _hex(value: Any) -> bytes:
    return b'"%b"' % value.hex().encode()


def _text(value: Value) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()
