"""JSON Schema as Spark's types: what a registry says about JSON values.

Objects, arrays, strings (with `format` date and date-time), integers, numbers and booleans; `["null", ...]` and what is
not `required` may be null. Anything else is refused by name, and can be read with a schema of one's own.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.pipeline.errors import BadOption

__all__ = ["struct_of_json_schema"]

_FORMATS: dict[str, DataType] = {"date": DateType(), "date-time": TimestampType()}
_SCALARS: dict[str, DataType] = {"integer": LongType(), "number": DoubleType(), "boolean": BooleanType()}


def struct_of_json_schema(text: str) -> StructType:
    schema = json.loads(text)
    found = _type(schema, schema, "$")
    if not isinstance(found, StructType):
        raise BadOption("JSON Schema: the value is not an object with properties")
    return found


def _type(schema: Any, root: Any, where: str) -> DataType:
    schema = _resolved(schema, root, where)
    kinds = schema.get("type")
    given = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind != "null"]
    if len(given) != 1 or given[0] is None:
        raise BadOption(f"JSON Schema: {where} has no single type ({kinds!r}); give Json(...) a schema of your own")
    kind = given[0]
    if kind == "object":
        return _object(schema, root, where)
    if kind == "array":
        return ArrayType(_type(schema.get("items", {}), root, f"{where}[]"))
    if kind == "string":
        return _FORMATS.get(schema.get("format", ""), StringType())
    if kind not in _SCALARS:
        raise BadOption(f"JSON Schema: {where} is {kind!r}, which is not a type of JSON")
    return _SCALARS[kind]


def _object(schema: Any, root: Any, where: str) -> DataType:
    properties = schema.get("properties")
    if not properties:
        values = schema.get("additionalProperties")
        return MapType(StringType(), _type(values, root, f"{where}.*") if isinstance(values, dict) else StringType())
    required = set(schema.get("required", ()))
    return StructType(
        [
            StructField(name, _type(part, root, f"{where}.{name}"), nullable=not _must(name, part, required))
            for name, part in properties.items()
        ]
    )


def _must(name: str, schema: Any, required: set[str]) -> bool:
    kinds = schema.get("type")
    return name in required and not (isinstance(kinds, list) and "null" in kinds)


def _resolved(schema: Any, root: Any, where: str) -> Any:
    """What `$ref` points to, within the same document."""
    for _ in range(32):  # a reference to a reference; past this they go in a circle
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if reference is None:
            return schema
        if not reference.startswith("#/"):
            break
        schema = root
        for part in reference[2:].split("/"):
            schema = schema.get(part, {})
    raise BadOption(f"JSON Schema: {where} refers to {schema!r:.100}, which cannot be followed")
