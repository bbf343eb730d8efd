"""JSON objects, parsed by Spark's `from_json` with a schema.

A record is bad if it is not UTF-8, not a JSON object, if a field does not fit its type, or if a field that the schema
says is not nullable is missing. Fields that the schema does not name are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from headwater.pipeline.errors import BadOption
from headwater.pipeline.formats.base import DECODED, EXCERPT_CHARACTERS, REASON, Format, struct_of
from headwater.pipeline.formats.jsonschema import struct_of_json_schema
from headwater.pipeline.formats.registry import FRAME_BYTES, Registry

__all__ = ["Json", "parsed_json"]

_CORRUPT = "_headwater_corrupt"  # from_json's column for the text it could not parse


@dataclass(frozen=True, slots=True)
class Json(Format):
    """Objects with the columns of `fields`: a StructType, or Spark's DDL ("id bigint not null, name string").

    Or with those of a JSON Schema: `Json(registry=Registry(...))`.
    """

    fields: StructType | str | None = None
    registry: Registry | None = None
    subject: str | None = None

    def __post_init__(self) -> None:
        if (self.fields is None) == (self.registry is None):
            raise BadOption("Json: give the columns, or registry=Registry(...), one of the two")

    def schema(self, topics: Sequence[str], part: str) -> StructType:
        if self.registry is None:
            return struct_of(self.fields or "", "Json")
        found = self.registry.of_topics(topics, part, self.subject)
        if found.kind != "JSON":
            raise BadOption(f"Json: schema {found.number} of {', '.join(topics)} is {found.kind}")
        return struct_of_json_schema(found.text)

    def decoded(self, df: DataFrame, column: str, topics: Sequence[str]) -> DataFrame:
        schema, raw = self.schema(topics, column), F.col(column)
        if self.registry is None:
            return parsed_json(df, column, schema, raw)
        framed = F.substring(raw, 1, 1) == F.lit(b"\0")
        body = F.when(framed, F.expr(f"substring({column}, {FRAME_BYTES + 1})")).otherwise(F.lit(b""))
        return parsed_json(df, column, schema, F.when(raw.isNotNull(), body))


def parsed_json(df: DataFrame, column: str, schema: StructType, content: Column) -> DataFrame:
    """`content` (binary) as JSON, in the columns that a format leaves."""
    if not schema.fields:
        raise BadOption("Json: the schema has no fields")
    text = content.cast("string")
    nullable = StructType([StructField(f.name, f.dataType) for f in schema.fields])
    parsed = F.from_json(
        text,
        StructType([*nullable.fields, StructField(_CORRUPT, StringType())]),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )
    read = df.withColumn(column + DECODED, parsed)
    return read.withColumn(column + REASON, _reason(F.col(column + DECODED), column, schema, text))


def _reason(parsed: Column, column: str, schema: StructType, text: Column) -> Column:
    required = [field.name for field in schema.fields if not field.nullable]
    broken = parsed.isNull() | parsed[_CORRUPT].isNotNull()
    reason = F.when(~F.is_valid_utf8(text), F.lit(f"the {column} is not UTF-8"))
    reason = reason.when(broken, _what_is_broken(parsed, column, schema, text))
    for name in required:
        reason = reason.when(parsed[name].isNull(), F.lit(f"the {column} has no field {name!r}, which is required"))
    return F.when(text.isNotNull(), reason)


def _what_is_broken(parsed: Column, column: str, schema: StructType, text: Column) -> Column:
    """Computed for bad records only: the fields that are there and do not fit, or that nothing is there at all."""
    misfits = []
    for field in schema.fields:
        found = F.get_json_object(text, f"$['{field.name}']")
        is_there = found.isNotNull() & parsed.isNotNull() & parsed[field.name].isNull()
        said = F.concat(
            F.lit(f"field {field.name!r} is not {field.dataType.simpleString()}: "),
            F.substring(found, 1, EXCERPT_CHARACTERS),
        )
        misfits.append(F.when(is_there, said))
    named = F.concat_ws("; ", *misfits)
    otherwise = F.concat(F.lit(f"the {column} is not a JSON object: "), F.substring(text, 1, EXCERPT_CHARACTERS))
    return F.when(named != "", named).otherwise(otherwise)
