"""Change events in Debezium's envelope: as they are, or as what they do to a table.

    rows="changelog"   every change: the row as it was with `_weight` -1, as it is now with +1; needs `before`
                       (PostgreSQL: REPLICA IDENTITY FULL)
    rows="upsert"      the newest row with `_weight` 1; a delete is the row of its key with -1
    rows="envelope"    columns before, after, op, ts_ms, source (JSON text)

JSON with and without Connect's schemas is understood, or any other format that yields `before`, `after` and `op`.
Numbers for times and bytes for decimals are turned into what the row's columns say: days, milliseconds or
microseconds since 1970 (`times`), and base64 of the unscaled value (`decimals="precise"`, Debezium's default).
Tombstones after deletes and logical messages (op "m") say nothing about rows: they give none. A truncate cannot be
said in rows: it is a bad record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headwater.pipeline.columns import ERROR, METADATA, WEIGHT
from headwater.pipeline.errors import BadOption, UnknownColumn
from headwater.pipeline.formats.base import DECODED, REASON, Format, struct_of
from headwater.pipeline.formats.json import parsed_json

__all__ = ["Debezium", "as_changes"]

_MICROS_PER_SECOND = 1_000_000
_PER_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
_HEX_DIGITS_OF_LONG = 16
_DECIMAL_DIGITS = 38  # the longest decimal Spark has
_DECIMAL_BYTES_MAX = 16  # its unscaled value
_TEMPORAL = (DateType, TimestampType, TimestampNTZType)


@dataclass(frozen=True, slots=True)
class Debezium(Format):
    """Envelopes whose `before` and `after` are rows of `row`: Spark's DDL, a StructType, or a format for envelopes."""

    row: StructType | str | Format
    rows: Literal["changelog", "upsert", "envelope"] = "changelog"
    times: Literal["millis", "micros", "nanos"] = "micros"
    decimals: Literal["precise", "string"] = "precise"

    def __post_init__(self) -> None:
        for name, given, known in (
            ("rows", self.rows, ("changelog", "upsert", "envelope")),
            ("times", self.times, tuple(_PER_SECOND)),
            ("decimals", self.decimals, ("precise", "string")),
        ):
            if given not in known:
                raise BadOption(f"Debezium: {name} is {given!r}; say {', '.join(map(repr, known))}")

    def schema(self, topics: Sequence[str], part: str) -> StructType:
        if isinstance(self.row, Format):
            return _envelope_of(self.row.schema(topics, part))
        row = struct_of(self.row, "Debezium")
        return _envelope(StructType([StructField(f.name, f.dataType) for f in row.fields]))

    def decoded(self, df: DataFrame, column: str, topics: Sequence[str]) -> DataFrame:
        if isinstance(self.row, Format):
            return self.row.decoded(df, column, topics)
        row = struct_of(self.row, "Debezium")
        envelope = _envelope(StructType([StructField(f.name, _on_the_wire(f.dataType)) for f in row.fields]))
        both_forms = StructType([*envelope.fields, StructField("payload", envelope)])
        read = parsed_json(df, column, both_forms, F.col(column))
        found = F.col(column + DECODED)
        wire = {name: F.coalesce(found[name], found["payload"][name]) for name in envelope.fieldNames()}
        parts = {**wire, **{side: self._converted(wire[side], row) for side in ("before", "after")}}
        whole = F.when(found.isNotNull(), F.struct(*(part.alias(name) for name, part in parts.items())))
        lacks_op = found.isNotNull() & wire["op"].isNull()
        reason = F.coalesce(
            F.col(column + REASON),
            F.when(lacks_op, F.lit("not a Debezium envelope: there is no `op`")),
            *(_misfit(wire[side], parts[side], row, side) for side in ("before", "after")),
        )
        return read.withColumns({column + DECODED: whole, column + REASON: reason})

    def _converted(self, row: Column, schema: StructType) -> Column:
        fields = [self._value(row[f.name], f.dataType).alias(f.name) for f in schema.fields]
        return F.when(row.isNotNull(), F.struct(*fields))

    def _value(self, found: Column, wanted: DataType) -> Column:
        """Null where it does not fit: which makes the record bad, never the query fail."""
        number = F.when(found.rlike(r"^-?\d+$"), found.try_cast("long"))
        if isinstance(wanted, DateType):
            return F.coalesce(F.date_from_unix_date(number.try_cast("int")), found.try_cast(wanted))
        if isinstance(wanted, TimestampType | TimestampNTZType):
            return F.coalesce(F.timestamp_micros(self._micros(number)).cast(wanted), found.try_cast(wanted))
        if isinstance(wanted, DecimalType):
            return _unscaled(_bytes(found), wanted) if self.decimals == "precise" else found.try_cast(wanted)
        return found

    def _micros(self, number: Column) -> Column:
        if self.times == "nanos":
            return F.floor(number / 1_000).try_cast("long")
        return F.try_multiply(number, F.lit(_MICROS_PER_SECOND // _PER_SECOND[self.times]))


def as_changes(records: DataFrame, debezium: Debezium, metadata: dict[str, Column], topics: Sequence[str]) -> DataFrame:
    """The changes that decoded envelopes stand for, one row each; bad records as they are, in one row."""
    envelope = F.col("value" + DECODED)
    weighted = _changelog(envelope) if debezium.rows == "changelog" else _upserts(envelope)
    error = F.coalesce(metadata[ERROR], _inexpressible(envelope, debezium.rows))
    metadata = {**metadata, ERROR: error, "_raw": F.when(error.isNotNull(), F.col("value"))}
    exploded = records.select(
        F.explode_outer(F.when(error.isNull(), F.array_compact(weighted))).alias("_change"),
        *(column.alias(name) for name, column in metadata.items()),
    )
    names = _row_of(debezium.schema(topics, "value")).fieldNames()
    taken = sorted({*names} & {*METADATA, WEIGHT})
    if taken:
        raise BadOption(f"Debezium: the row has a column {taken[0]!r}, a name that headwater uses")
    return exploded.where(F.col("_change").isNotNull() | F.col(ERROR).isNotNull()).select(
        *(F.col("_change.row")[name].alias(name) for name in names), F.col("_change.weight").alias(WEIGHT), *METADATA
    )


def _changelog(envelope: Column) -> Column:
    return F.array(_change(envelope["before"], -1, envelope, "ud"), _change(envelope["after"], 1, envelope, "cru"))


def _upserts(envelope: Column) -> Column:
    return F.array(_change(envelope["before"], -1, envelope, "d"), _change(envelope["after"], 1, envelope, "cru"))


def _change(row: Column, weight: int, envelope: Column, ops: str) -> Column:
    change = F.struct(F.lit(weight).alias("weight"), row.alias("row"))
    return F.when(envelope["op"].isin(*ops) & row.isNotNull(), change)


def _inexpressible(envelope: Column, rows: str) -> Column:
    op = envelope["op"]
    reason = F.when(op == "t", F.lit("a truncate deletes rows that it does not name"))
    reason = reason.when(~op.isin(*"crudtm"), F.concat(F.lit("unknown operation "), op))
    reason = reason.when(op.isin(*"cru") & envelope["after"].isNull(), F.lit("the change has no `after`"))
    needs_before = "ud" if rows == "changelog" else "d"
    hint = F.lit("the change has no `before` (PostgreSQL: ALTER TABLE ... REPLICA IDENTITY FULL)")
    return reason.when(op.isin(*needs_before) & envelope["before"].isNull(), hint)


def _envelope(row: StructType) -> StructType:
    return StructType(
        [
            StructField("before", row),
            StructField("after", row),
            StructField("op", StringType()),
            StructField("ts_ms", LongType()),
            StructField("source", StringType()),
        ]
    )


def _envelope_of(schema: DataType) -> StructType:
    names = schema.fieldNames() if isinstance(schema, StructType) else []
    for name in ("before", "after", "op"):
        if name not in names:
            raise UnknownColumn(name, names, "Debezium: envelopes")
    assert isinstance(schema, StructType)
    return schema


def _row_of(envelope: StructType) -> StructType:
    row = envelope["after"].dataType
    if not isinstance(row, StructType):
        raise BadOption(f"Debezium: `after` is {row.simpleString()}, but it must be a row")
    return row


def _on_the_wire(wanted: DataType) -> DataType:
    """Times and decimals come as numbers or text, and are converted afterwards."""
    return StringType() if isinstance(wanted, (*_TEMPORAL, DecimalType)) else wanted


def _misfit(wire: Column, converted: Column, schema: StructType, side: str) -> Column:
    """The first field that is there and was not what its column says."""
    reason = F.lit(None).cast("string")
    for field in reversed(schema.fields):
        if isinstance(field.dataType, (*_TEMPORAL, DecimalType)):
            said = F.concat(
                F.lit(f"{side}: field {field.name!r} is not {field.dataType.simpleString()}: "), wire[field.name]
            )
            reason = F.when(wire[field.name].isNotNull() & converted[field.name].isNull(), said).otherwise(reason)
    return reason


def _bytes(text: Column) -> Column:
    return F.try_to_binary(text, F.lit("base64"))


def _unscaled(number: Column, wanted: DecimalType) -> Column:
    """Big-endian two's complement of up to 16 bytes, the scale being the column's."""
    negative = F.substring(F.hex(number), 1, 1) >= "8"
    filled = F.when(negative, F.lit("F" * 32)).otherwise(F.lit("0" * 32))
    digits = F.substring(F.concat(filled, F.hex(number)), -2 * _DECIMAL_BYTES_MAX, 2 * _DECIMAL_BYTES_MAX)
    high = F.conv(F.substring(digits, 1, _HEX_DIGITS_OF_LONG), 16, -10).cast("decimal(20,0)")
    low = F.conv(F.substring(digits, _HEX_DIGITS_OF_LONG + 1, _HEX_DIGITS_OF_LONG), 16, 10).cast("decimal(20,0)")
    shifted = F.try_multiply(high, F.lit(str(1 << 64)).cast("decimal(20,0)")).try_cast("decimal(38,0)")
    whole = F.try_add(shifted, low).try_cast("decimal(38,0)")
    text = F.lpad(F.abs(whole).cast("string"), _DECIMAL_DIGITS, "0")
    split = _DECIMAL_DIGITS - wanted.scale
    placed = F.concat(F.substring(text, 1, split), F.lit("."), F.substring(text, split + 1, max(wanted.scale, 1)))
    signed = F.concat(F.when(whole < 0, "-").otherwise(""), placed).try_cast(wanted)
    return F.when(F.length(number).between(1, _DECIMAL_BYTES_MAX), signed)
