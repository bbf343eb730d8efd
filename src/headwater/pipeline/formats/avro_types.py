"""Avro's types as Spark's, and decoded values as Arrow takes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headwater.pipeline.errors import BadOption

__all__ = ["LOGICAL", "shaper", "spark_type"]

_PRIMITIVES: dict[str, DataType] = {
    "null": NullType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
LOGICAL: dict[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
}
_WIDENING = ("int", "long", "float", "double")


def spark_type(schema: Any) -> DataType:
    """The Spark type of a parsed Avro schema."""
    return _type(schema, {}, ())


def _type(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> DataType:
    if isinstance(schema, list):
        return _union(schema, named, inside)
    if isinstance(schema, str):
        return _PRIMITIVES[schema] if schema in _PRIMITIVES else _type(named[schema], named, inside)
    logical = schema.get("logicalType")
    if logical == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if logical in LOGICAL:
        return LOGICAL[logical]
    if "name" in schema:
        named[schema["name"]] = schema
    compound = _COMPOUND.get(schema["type"])
    return _type(schema["type"], named, inside) if compound is None else compound(schema, named, inside)


def _array(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> DataType:
    return ArrayType(_type(schema["items"], named, inside))


def _map(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> DataType:
    return MapType(StringType(), _type(schema["values"], named, inside))


def _record(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> DataType:
    name = schema["name"]
    if name in inside:
        raise BadOption(f"Avro: record {name!r} contains itself, which columns cannot; read it as binary")
    return StructType([StructField(f["name"], _type(f["type"], named, (*inside, name))) for f in schema["fields"]])


def _union(branches: list[Any], named: dict[str, Any], inside: tuple[str, ...]) -> DataType:
    left = [branch for branch in branches if branch != "null"]
    if len(left) == 1:
        return _type(left[0], named, inside)
    if left and all(branch in _WIDENING for branch in left):
        return _PRIMITIVES[max(left, key=_WIDENING.index)]
    raise BadOption(f"Avro: a union of {json.dumps(left)[:200]} is not one column; read it as binary")


_COMPOUND: dict[str, Callable[[Any, dict[str, Any], tuple[str, ...]], DataType]] = {
    "record": _record,
    "error": _record,
    "array": _array,
    "map": _map,
    "enum": lambda *_: StringType(),
    "fixed": lambda *_: BinaryType(),
}


def shaper(wanted: DataType) -> Callable[[Any], Any]:
    """Maps as the pairs that Arrow wants; anything else is as it should be."""
    if isinstance(wanted, MapType):
        of_value = shaper(wanted.valueType)
        return lambda value: None if value is None else [(k, of_value(v)) for k, v in value.items()]
    if isinstance(wanted, ArrayType) and _has_map(wanted):
        of_element = shaper(wanted.elementType)
        return lambda value: None if value is None else [of_element(element) for element in value]
    if isinstance(wanted, StructType) and _has_map(wanted):
        parts = {field.name: shaper(field.dataType) for field in wanted.fields}
        return lambda value: None if value is None else {name: part(value[name]) for name, part in parts.items()}
    return lambda value: value


def _has_map(wanted: DataType) -> bool:
    if isinstance(wanted, ArrayType):
        return _has_map(wanted.elementType)
    if isinstance(wanted, StructType):
        return any(_has_map(field.dataType) for field in wanted.fields)
    return isinstance(wanted, MapType)
