"""Topics as typed rows: where they start, what they carry, and what is refused when it is written down."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.logs import fill

from headwater.client import Connection, Writer, ensure_topics
from headwater.pipeline.columns import METADATA
from headwater.pipeline.errors import BadOption
from headwater.pipeline.formats import Json
from headwater.pipeline.topics import topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

USER = Json("id bigint, name string")


def test_a_row_has_the_records_columns_and_where_it_came_from(spark: SparkSession, bootstrap: str, unique: str) -> None:
    name, sent = f"users-{unique}", datetime.now(UTC).replace(microsecond=123_000)
    with Writer(Connection(bootstrap)) as writer:
        written_ms = round(sent.timestamp() * 1_000)
        writer.write(name, b'{"id": 1, "name": "ann"}', key=b"1", headers=[("h", b"x")], timestamp=written_ms)
        writer.flush()
    df = topic(spark, name, connection=bootstrap, value=USER, key="text", streaming=False)
    assert df.columns == ["id", "name", "key", *METADATA]
    [row] = df.collect()
    assert (row["id"], row["name"], row["key"], bytes(row["_key"])) == (1, "ann", "1", b"1")
    assert (row["_topic"], row["_offset"], row["_error"], row["_raw"]) == (name, 0, None, None)
    assert row["_received"].astimezone(UTC) == sent
    assert [(h["key"], bytes(h["value"])) for h in row["_headers"]] == [("h", b"x")]


def test_a_table_of_upserts_gives_deleted_keys_their_columns(spark: SparkSession, bootstrap: str, unique: str) -> None:
    name = f"users-{unique}"
    with Writer(Connection(bootstrap)) as writer:
        writer.write(name, b'{"id": 1, "name": "ann"}', key=b'{"id":1}')
        writer.write(name, None, key=b'{"id":1}')
        writer.flush()
    df = topic(spark, name, connection=bootstrap, value=USER, key=Json("id bigint"), upserts=True, streaming=False)
    rows = df.orderBy("_offset").select("id", "name", "_weight").collect()
    assert [tuple(row) for row in rows] == [(1, "ann", 1), (1, None, -1)]


def test_reading_starts_where_it_is_told(spark: SparkSession, bootstrap: str, unique: str) -> None:
    name, log = f"users-{unique}", Connection(bootstrap)
    token = fill(log, name, [{"id": i} for i in range(10)])
    between = datetime.now(UTC)
    fill(log, name, [{"id": i} for i in range(10, 15)])
    for start in (token, between):
        found = topic(spark, name, connection=log, value=USER, start=start, streaming=False).collect()
        assert sorted(row["id"] for row in found) == [10, 11, 12, 13, 14], start


def test_many_topics_are_read_by_list_and_by_pattern(spark: SparkSession, bootstrap: str, unique: str) -> None:
    log = Connection(bootstrap)
    for number in range(3):
        fill(log, f"many-{unique}-{number}", [{"id": number}])
    listed = topic(spark, [f"many-{unique}-0", f"many-{unique}-2"], connection=log, value=USER, streaming=False)
    matched = topic(spark, re.compile(f"many-{unique}-[12]"), connection=log, value=USER, streaming=False)
    assert sorted(row["id"] for row in listed.collect()) == [0, 2]
    assert sorted(row["id"] for row in matched.collect()) == [1, 2]


def test_a_bad_key_makes_a_bad_record(spark: SparkSession, bootstrap: str, unique: str) -> None:
    name = f"users-{unique}"
    with Writer(Connection(bootstrap)) as writer:
        writer.write(name, b'{"id": 1}', key=b"\xff")
        writer.flush()
    [row] = topic(spark, name, connection=bootstrap, value=USER, key="text", streaming=False).collect()
    assert row["_error"] == "the key is not UTF-8"
    assert bytes(row["_raw"]) == b'{"id": 1}'


def test_a_definition_that_cannot_work_is_refused_at_once(spark: SparkSession, bootstrap: str, unique: str) -> None:
    ensure_topics(Connection(bootstrap), [f"users-{unique}"])

    def define(name: str = f"users-{unique}", **options: object) -> None:
        topic(spark, name, connection=bootstrap, **{"value": USER, **options})  # type: ignore[arg-type]

    with pytest.raises(BadOption, match=r"'json' is not a format; .*JSON needs its columns"):
        define(value="json")
    with pytest.raises(BadOption, match="records_per_batch is 0"):
        define(records_per_batch=0)
    with pytest.raises(BadOption, match="start is a time without a zone"):
        define(start=datetime(2026, 1, 1))
    with pytest.raises(BadOption, match="upserts needs the key's columns"):
        define(upserts=True)
    with pytest.raises(BadOption, match="the record has a field '_offset'"):
        define(value=Json("_offset int"))
    with pytest.raises(BadOption, match="the record has a field 'key' already"):
        define(value=Json("key int"), key="text")
    with pytest.raises(BadOption, match="a topic has a name"):
        define(name="")
    with pytest.raises(BadOption, match=rf"there is no topic 'user-{unique}' at .*; did you mean 'users-{unique}'\?"):
        define(name=f"user-{unique}")
    with pytest.raises(BadOption, match="a position says where topics start"):
        topic(spark, re.compile("x.*"), connection=bootstrap, start="hw1.e30")
