"""How rows of one version of one table become records: compiled once per relation message, run for every row."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.capture.envelope import Envelope, row_template
from headwater.capture.pg_catalog import TableDetails
from headwater.capture.pg_copy import copy_values
from headwater.capture.pg_types import TypeInfo, codec_of
from headwater.capture.pgoutput import NULL, TEXT, UNCHANGED, Relation, Tuple, read_tuple
from headwater.capture.schema import Codec, Column, Convert, TableVersion, json_string, with_rule
from headwater.capture.settings import Settings, matches
from headwater.errors import InvariantViolated

__all__ = ["TablePlan", "plan_for"]

_U32 = struct.Struct(">I").unpack_from

_CONSTANT = re.compile(r"(?:'((?:[^']|'')*)'::.*|(-?\d+(?:\.\d+)?)|(true|false))")


@dataclass(slots=True)
class TablePlan:
    """Everything a row needs on its way; `values` are always all columns of the relation, in its order."""

    relation: Relation
    version: TableVersion
    topic: str
    is_outbox: bool
    is_signal: bool
    envelope: Envelope
    converters: list[Convert | None]
    unavailable: list[bytes]
    fallbacks: list[bytes]
    row: bytes  # template with one slot per column
    key: bytes  # template with one slot per key column
    key_indexes: tuple[int, ...]
    shown_key_indexes: tuple[int, ...]  # in the order of the key record

    def inserted(self, data: bytes, at: int) -> list[bytes]:
        """`fragments` of the tuple at this place, read and converted in one pass: most rows come this way."""
        if data[at] << 8 | data[at + 1] != len(self.converters):
            return self.fragments(read_tuple(data, at)[0])  # which says what is wrong
        start = at
        at += 2
        out: list[bytes] = []
        append = out.append
        try:
            for convert in self.converters:
                if data[at] == TEXT:
                    end = at + 5 + _U32(data, at + 1)[0]
                    value = data[at + 5 : end]
                    append(value if convert is None else convert(value))
                    at = end
                elif data[at] == NULL:
                    append(b"null")
                    at += 1
                else:
                    return self.fragments(read_tuple(data, start)[0])
        except (ValueError, IndexError, OverflowError, struct.error):
            return self.fragments(read_tuple(data, start)[0])
        return out

    def copied(self, line: bytes) -> list[bytes]:
        """`fragments` of a line of COPY; most have no nulls and nothing to unescape."""
        if b"\\" not in line:
            try:
                values = line.split(b"\t")
                return [v if c is None else c(v) for v, c in zip(values, self.converters, strict=True)]
            except (ValueError, IndexError, OverflowError):
                pass  # the slower way says what is wrong
        return self.fragments(copy_values(line))

    def fragments(self, values: Tuple) -> list[bytes]:
        """Each value as JSON."""
        if len(values) != len(self.converters):
            raise InvariantViolated(f"{self.version.name}: {len(values)} values for {len(self.converters)} columns")
        out: list[bytes] = []
        append = out.append
        try:
            for value, convert in zip(values, self.converters, strict=True):
                if value is None:
                    append(b"null")
                elif value is UNCHANGED:
                    append(self.unavailable[len(out)])
                elif convert is None:
                    append(value)
                else:
                    append(convert(value))
        except (ValueError, IndexError, OverflowError) as error:
            raise self._not_understood(values, len(out), error) from error
        return out

    def _not_understood(self, values: Tuple, index: int, error: Exception) -> InvariantViolated:
        column = self.relation.columns[index]
        return InvariantViolated(
            f"{self.version.name}.{column.name} (type {column.type_oid}): {str(values[index])[:60]} is not understood: "
            f"{error}. Exclude the column (exclude_columns) to go on without it"
        )

    def key_fragments(self, values: Tuple) -> list[bytes]:
        """The same for a row of which only the replica identity was sent: what is missing gets a stand-in."""
        shown = self.fragments(values)
        for i, column in enumerate(self.relation.columns):
            if not column.in_identity:
                shown[i] = self.fallbacks[i]
        return shown

    def row_of(self, fragments: list[bytes]) -> bytes:
        return self.row % tuple(fragments)

    def key_of(self, fragments: list[bytes]) -> bytes | None:
        """The record's key; None for a table without one."""
        if not self.key_indexes:
            return None
        return self.key % tuple([fragments[i] for i in self.shown_key_indexes])


def plan_for(relation: Relation, details: TableDetails, types: Mapping[int, TypeInfo], settings: Settings) -> TablePlan:
    """The plan for rows written under `relation`; `details` may be of a later time, or empty for a dropped table."""
    columns = [_column(relation, i, details, types, settings) for i in range(len(relation.columns))]
    names = [column.name for column in columns]
    key = _key(relation, details, settings)
    hidden = {name for name in names if matches_column(relation, name, settings) and name not in key}
    version = TableVersion(relation.schema, relation.name, tuple(c for c in columns if c.name not in hidden), key)
    envelope = Envelope(settings.form, settings.topic_prefix, version)
    indexes = tuple(names.index(name) for name in key)
    shown = tuple(sorted(indexes, key=lambda i: names[i])) if envelope.flat else indexes
    return TablePlan(
        relation=relation,
        version=version,
        topic=settings.topic(relation.schema, relation.name),
        is_outbox=settings.is_outbox(relation.schema, relation.name),
        is_signal=False,
        envelope=envelope,
        converters=[None if c.name in hidden else c.codec.convert for c in columns],
        unavailable=[c.codec.unavailable for c in columns],
        fallbacks=[_fallback(c) for c in columns],
        row=row_template([None if name in hidden else name for name in names]),
        key=envelope.key_start + row_template([names[i] for i in shown]) + envelope.key_end,
        key_indexes=indexes,
        shown_key_indexes=shown,
    )


def matches_column(relation: Relation, column: str, settings: Settings) -> bool:
    return matches(f"{relation.schema}.{relation.name}.{column}", settings.exclude_columns)


def _column(
    relation: Relation, index: int, details: TableDetails, types: Mapping[int, TypeInfo], settings: Settings
) -> Column:
    sent = relation.columns[index]
    known = details.columns.get(sent.name)
    codec = codec_of(sent.type_oid, sent.modifier, types, settings.decimals, settings.binary)
    rule = settings.rule(relation.schema, relation.name, sent.name)
    codec = with_rule(codec, rule)
    info = types.get(sent.type_oid)
    type_name = known.type_name if known and known.type_oid == sent.type_oid else info.name if info else "unknown"
    default = known.default if known and rule is None else None  # what is masked is not to be seen here either
    return Column(sent.name, type_name, not (known and known.not_null), codec, default)


def _key(relation: Relation, details: TableDetails, settings: Settings) -> tuple[str, ...]:
    """The stream says the key where an index is the replica identity; where all columns are, the catalog does."""
    names = [column.name for column in relation.columns]
    chosen = settings.key_columns.get(f"{relation.schema}.{relation.name}")
    if chosen is not None:
        return tuple(name for name in names if name in chosen)
    if relation.identity in "di":
        return tuple(column.name for column in relation.columns if column.in_identity)
    return tuple(name for name in names if name in details.key)


def _fallback(column: Column) -> bytes:
    """What stands for a value that a delete did not carry: null, or the default, or an empty value."""
    if column.optional:
        return b"null"
    return _constant(column.default, column.codec) or column.codec.fallback


def _constant(default: str | None, codec: Codec) -> bytes | None:
    found = _CONSTANT.fullmatch(default or "")
    if found is None:
        return None
    text = next(group for group in found.groups() if group is not None).replace("''", "'")
    if codec.connect["type"] == "string":
        return json_string(text.encode())
    if (
        codec.connect["type"] in ("int16", "int32", "int64", "double", "float", "boolean")
        and "name" not in codec.connect
    ):
        return text.encode()
    return None
