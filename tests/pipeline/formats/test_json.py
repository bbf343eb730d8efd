"""JSON, text and bytes as columns; bad records keep their bytes and a reason a person can act on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.formats.registries import framed, serving

from headwater.pipeline.errors import BadOption
from headwater.pipeline.formats import Format, Json, Text
from headwater.pipeline.formats.base import DECODED, REASON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ORDER = Json("id bigint not null, amount int, at timestamp, tags array<string>")


def decode(spark: SparkSession, format_: Format, *raw: bytes | None) -> list[tuple[Any, str | None]]:
    df = spark.createDataFrame([(None if r is None else bytearray(r),) for r in raw], "value binary")
    rows = format_.decoded(df, "value", ["t"]).collect()
    return [(row["value" + DECODED], row["value" + REASON]) for row in rows]


def test_an_object_becomes_columns_of_their_types(spark: SparkSession) -> None:
    [(row, reason)] = decode(
        spark, ORDER, b'{"id": 7, "amount": 3, "at": "2026-01-01T00:00:00.123456Z", "tags": ["a"], "other": {}}'
    )
    assert reason is None
    assert (row.id, row.amount, row.at.microsecond, row.tags) == (7, 3, 123456, ["a"])


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"id": 7, "amount": "three"}', "field 'amount' is not int: three"),
        (b'{"id": 7, "amount": 3000000000}', "field 'amount' is not int: 3000000000"),
        (b'{"id": 7, "tags": "a"}', "field 'tags' is not array<string>: a"),
        (b'{"amount": 3}', "the value has no field 'id', which is required"),
        (b'{"id": 7', 'the value is not a JSON object: {"id": 7'),
        (b"", "the value is not a JSON object: "),
        (b"[1, 2]", "the value is not a JSON object: [1, 2]"),
        (b'{"id": 7, "tags": ["\xff"]}', "the value is not UTF-8"),
    ],
)
def test_a_record_that_does_not_fit_says_which_field_and_why(spark: SparkSession, raw: bytes, reason: str) -> None:
    assert decode(spark, ORDER, raw)[0][1] == reason


def test_a_tombstone_is_no_error(spark: SparkSession) -> None:
    assert decode(spark, ORDER, None)[0][1] is None
    assert decode(spark, Text(), None) == [(None, None)]


def test_text_is_utf8_or_bad(spark: SparkSession) -> None:
    assert decode(spark, Text(), "höchst".encode(), b"\xff") == [("höchst", None), (None, "the value is not UTF-8")]


def test_a_schema_that_spark_cannot_read_is_refused_at_once() -> None:
    with pytest.raises(BadOption, match="the schema 'id bigbang' cannot be read"):
        Json("id bigbang").schema(["t"], "value")


def test_a_json_schema_from_a_registry_gives_the_columns(spark: SparkSession) -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": ["null", "string"], "format": "date-time"},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        },
        "required": ["id", "at"],
        "$defs": {"line": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "number"}}}},
    }
    with serving() as schemas:
        number = schemas.add("t-value", schema, "JSON")
        format_ = Json(registry=schemas.registry)
        found = decode(
            spark,
            format_,
            framed(number, b'{"id": 1, "lines": [{"sku": "a", "n": 1.5}]}'),
            framed(number, b'{"at": null}'),
            b'{"id": 1}',
        )
        columns = format_.schema(["t"], "value").simpleString()
    assert columns == "struct<id:bigint,at:timestamp,lines:array<struct<sku:string,n:double>>>"
    assert (found[0][0].id, found[0][0].lines[0].n) == (1, 1.5)
    assert [reason for _, reason in found] == [
        None,
        "the value has no field 'id', which is required",
        "the value is not a JSON object: ",
    ]
