"""Avro: with a schema that is given, or one from a registry and the writer's own for every record.

Unions are columns that may be null: of null and one type, or of null and number types, which become the widest.
Records are structs, maps have strings for keys, enums are strings; uuid and time of day stay what they are stored as.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType

from headwater.pipeline.errors import BadOption
from headwater.pipeline.formats.avro_types import LOGICAL, shaper, spark_type
from headwater.pipeline.formats.base import Format
from headwater.pipeline.formats.python import BadRecord, Decoder, decoded_in_python
from headwater.pipeline.formats.registry import SCHEMAS_KEPT_MAX, Registered, Registry, unframed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Avro"]


@dataclass(frozen=True, slots=True)
class Avro(Format):
    """`Avro(schema)` with the schema as JSON text or parsed, or `Avro(registry=Registry(...))`."""

    fields: str | Mapping[str, Any] | None = None
    registry: Registry | None = None
    subject: str | None = None

    def __post_init__(self) -> None:
        if (self.fields is None) == (self.registry is None):
            raise BadOption("Avro: give the schema, or registry=Registry(...), one of the two")

    def schema(self, topics: Sequence[str], part: str) -> DataType:
        return spark_type(self._reader(topics, part))

    def decoded(self, df: DataFrame, column: str, topics: Sequence[str]) -> DataFrame:
        reader, registry = self._reader(topics, column), self.registry
        wanted = spark_type(reader)

        def open_decoder() -> Decoder:
            shaped = shaper(wanted)
            read = _plain(reader) if registry is None else _by_number(registry, reader)
            return lambda raw: shaped(read(raw))

        return decoded_in_python(df, column, wanted, open_decoder)

    def _reader(self, topics: Sequence[str], part: str) -> Any:
        if self.registry is None:
            return _parsed(self.fields if isinstance(self.fields, str) else json.dumps(self.fields))
        found = self.registry.of_topics(topics, part, self.subject)
        if found.kind != "AVRO":
            raise BadOption(f"Avro: schema {found.number} of {', '.join(topics)} is {found.kind}")
        return _with_references(self.registry, found)


def _parsed(text: str) -> Any:
    import fastavro

    try:
        return fastavro.parse_schema(_stripped(json.loads(text)))
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise BadOption(f"Avro: the schema cannot be read: {error}: {text[:200]}") from error


def _stripped(schema: Any) -> Any:
    """Without the logical types that Spark has no column for."""
    if isinstance(schema, list):
        return [_stripped(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _stripped(part) if name in ("type", "items", "values") else part for name, part in schema.items()}
    if "fields" in schema:
        kept["fields"] = [{**field, "type": _stripped(field["type"])} for field in schema["fields"]]
    if kept.get("logicalType") not in (*LOGICAL, "decimal"):
        kept.pop("logicalType", None)
    return kept


def _with_references(registry: Registry, found: Registered) -> Any:
    """The schema with the ones it names put in their places."""
    import fastavro

    named: dict[str, Any] = {}
    _load(registry, found, named)
    try:
        return fastavro.parse_schema(_stripped(json.loads(found.text)), named_schemas=named, expand=True)
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        raise BadOption(f"Avro: schema {found.number} of the registry cannot be read: {error}") from error


def _load(registry: Registry, found: Registered, named: dict[str, Any]) -> None:
    import fastavro

    for _, subject, version in found.references:
        other = registry.version(subject, version)
        _load(registry, other, named)
        fastavro.parse_schema(_stripped(json.loads(other.text)), named_schemas=named)


def _plain(schema: Any) -> Decoder:
    import fastavro

    def decode(raw: bytes) -> Any:
        stream = io.BytesIO(raw)
        value = _read(lambda: fastavro.schemaless_reader(stream, schema, None))
        if stream.tell() != len(raw):
            raise BadRecord(f"not Avro of this schema: {len(raw) - stream.tell()} of {len(raw)} bytes are left over")
        return value

    return decode


def _by_number(registry: Registry, reader: Any) -> Decoder:
    """The writer's schema is the one whose number the record carries."""
    import fastavro

    @lru_cache(maxsize=SCHEMAS_KEPT_MAX)
    def writer_of(number: int) -> Any:
        found = registry.number(number)
        return None if found is None else _with_references(registry, found)

    def decode(raw: bytes) -> Any:
        number, body = unframed(raw)
        writer = writer_of(number)
        if writer is None:
            raise BadRecord(f"schema {number} is not in the registry")
        same = writer == reader
        return _read(lambda: fastavro.schemaless_reader(io.BytesIO(body), writer, None if same else reader))

    return decode


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception as error:  # fastavro raises whatever its damaged input leads to
        raise BadRecord(f"not Avro of this schema: {type(error).__name__}: {error}") from error
