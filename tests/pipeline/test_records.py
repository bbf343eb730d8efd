"""Rows as records: keys are the same bytes whoever writes them, retractions become tombstones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from headwater.pipeline.errors import BadOption, DefinitionError, UnknownColumn, WrongType
from headwater.pipeline.records import to_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_keys_have_sorted_names_and_values_say_their_nulls(spark: SparkSession) -> None:
    df = spark.sql("select 'x' as b, 1 as a, cast(null as int) as n, timestamp'2026-01-01 00:00:00.123456' as at, 5 _w")
    [row] = to_records(df, key=["b", "a"]).collect()
    assert row["key"] == '{"a":1,"b":"x"}'
    assert json.loads(row["value"]) == {"b": "x", "a": 1, "n": None, "at": "2026-01-01T00:00:00.123456Z"}


def test_a_retraction_is_a_tombstone_or_a_row_with_its_weight(spark: SparkSession) -> None:
    df = spark.sql("select * from values ('u', 1, -1), ('u', 2, 1) as t(user, n, _weight)")
    assert [tuple(r) for r in to_records(df, key=["user"]).select("key", "value").collect()] == [
        ('{"user":"u"}', None),
        ('{"user":"u"}', '{"user":"u","n":2}'),
    ]
    assert [r["value"] for r in to_records(df, key=["user"], changes="changelog").collect()] == [
        '{"user":"u","n":1,"_weight":-1}',
        '{"user":"u","n":2,"_weight":1}',
    ]


def test_a_definition_that_cannot_work_is_refused_at_once(spark: SparkSession) -> None:
    df = spark.sql("select 1 as a, 1 as _weight")
    with pytest.raises(UnknownColumn, match="there is no column 'z'; the DataFrame has a, _weight"):
        to_records(df, key=["z"])
    with pytest.raises(DefinitionError, match=r"a changelog becomes upserts by its key: say key=\[...\]"):
        to_records(df)
    with pytest.raises(DefinitionError, match="has no columns to write"):
        to_records(df.select("_weight"), key=[])
    with pytest.raises(WrongType, match="column '_weight' is string"):
        to_records(spark.sql("select 1 as a, 'x' as _weight"), key=["a"])
    with pytest.raises(BadOption, match="value is 'xml'"):
        to_records(df, value="xml")  # type: ignore[arg-type]
