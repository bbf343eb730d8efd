"""Avro as columns: a schema that is given, or the writer's own from a registry."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from tests.pipeline.formats.registries import Schemas, framed, serving

from headwater.pipeline.errors import BadOption
from headwater.pipeline.formats import Avro, Format, Registry
from headwater.pipeline.formats.base import DECODED, REASON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

USER = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}],
}
EVERYTHING = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "k", "type": "Kind"}]}},
        {"name": "number", "type": ["null", "int", "double"]},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}


@pytest.fixture
def schemas() -> Iterator[Schemas]:
    with serving() as schemas:
        yield schemas


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def decode(spark: SparkSession, format_: Format, *raw: bytes | None) -> list[tuple[Any, str | None]]:
    df = spark.createDataFrame([(None if r is None else bytearray(r),) for r in raw], "value binary").coalesce(1)
    rows = format_.decoded(df, "value", ["users"]).collect()
    return [(row["value" + DECODED], row["value" + REASON]) for row in rows]


def test_every_type_has_its_column(spark: SparkSession) -> None:
    moment = datetime(2026, 1, 1, 0, 0, 0, 123456, UTC)
    value = {
        "day": date(2026, 1, 1),
        "at": moment,
        "price": Decimal("12.34"),
        "kind": "B",
        "hash": b"xy",
        "tags": ["a", "b"],
        "counts": {"x": 1, "y": 2},
        "inner": {"k": "A"},
        "number": 1.5,
        "uuid": "0b8c9c9e-0000-4000-8000-000000000000",
    }
    [(row, reason)] = decode(spark, Avro(json.dumps(EVERYTHING)), encoded(EVERYTHING, value))
    assert reason is None
    found = row.asDict(recursive=True)
    assert found.pop("at").astimezone(UTC) == moment
    assert found == {**{k: v for k, v in value.items() if k != "at"}, "hash": bytearray(b"xy")}


def test_bytes_that_are_something_else_make_a_bad_record(spark: SparkSession) -> None:
    good = encoded(USER, {"id": 7, "name": "ann"})
    found = decode(spark, Avro(USER), good, good + b"!", good[:-1], None)
    assert found[0][0].asDict() == {"id": 7, "name": "ann"}
    assert found[1][1] == "not Avro of this schema: 1 of 7 bytes are left over"
    assert str(found[2][1]).startswith("not Avro of this schema: ")
    assert found[3] == (None, None)


def test_what_was_written_under_an_older_schema_is_read_into_the_latest(spark: SparkSession, schemas: Schemas) -> None:
    old = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}, {"name": "x", "type": "string"}]}
    first, latest = schemas.add("users-value", old), schemas.add("users-value", USER)
    found = decode(
        spark,
        Avro(registry=schemas.registry),
        framed(first, encoded(old, {"id": 1, "x": "gone"})),
        framed(latest, encoded(USER, {"id": 2, "name": "bob"})),
        framed(99, b""),
        b"{}",
    )
    assert [row and row.asDict() for row, _ in found[:2]] == [{"id": 1, "name": None}, {"id": 2, "name": "bob"}]
    assert found[2][1] == "schema 99 is not in the registry"
    assert str(found[3][1]).startswith("not written with a schema registry")


def test_a_schema_may_refer_to_another_subjects(spark: SparkSession, schemas: Schemas) -> None:
    schemas.add("user", USER)
    order = {"type": "record", "name": "Order", "fields": [{"name": "by", "type": "User"}]}
    reference = {"name": "User", "subject": "user", "version": 1}
    number = schemas.add("users-value", order, references=(reference,))
    whole = {"type": "record", "name": "Order", "fields": [{"name": "by", "type": USER}]}
    body = encoded(whole, {"by": {"id": 3, "name": None}})
    [(row, reason)] = decode(spark, Avro(registry=schemas.registry), framed(number, body))
    assert (row.by.id, reason) == (3, None)


def test_a_registry_asks_for_a_login(schemas: Schemas) -> None:
    schemas.add("users-value", USER)
    registry = Registry(schemas.url, user="ann", password="secret")
    Avro(registry=registry).schema(["users"], "value")
    assert schemas.authorization == "Basic YW5uOnNlY3JldA=="
    assert "secret" not in repr(registry)


def test_a_schema_that_cannot_be_columns_is_refused_at_once(schemas: Schemas) -> None:
    def define(*types: Any) -> None:
        fields = [{"name": f"f{i}", "type": t} for i, t in enumerate(types)]
        Avro({"type": "record", "name": "R", "fields": fields}).schema(["t"], "value")

    with pytest.raises(BadOption, match="record 'R' contains itself"):
        define(["null", "R"])
    with pytest.raises(BadOption, match=r'a union of \["string", "long"\] is not one column'):
        define(["string", "long"])
    with pytest.raises(BadOption, match="the schema cannot be read"):
        define("strang")
    with pytest.raises(BadOption, match="one of the two"):
        Avro()
    with pytest.raises(BadOption, match="has no schema for the subject 'users-value'"):
        Avro(registry=schemas.registry).schema(["users"], "value")
    with pytest.raises(BadOption, match="2 topics have no one subject"):
        Avro(registry=schemas.registry).schema(["a", "b"], "value")
