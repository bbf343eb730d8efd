"""Envelopes as changelogs: -1 before, +1 after; the forms Debezium has for times and decimals."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.logs import fill

from headwater.client import Connection
from headwater.pipeline.errors import BadOption
from headwater.pipeline.formats import Debezium
from headwater.pipeline.topics import topic

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

ROW = "id bigint, name string"
ANN, BOB = {"id": 1, "name": "ann"}, {"id": 1, "name": "bob"}


def envelope(op: str, before: Any = None, after: Any = None) -> bytes:
    return json.dumps({"before": before, "after": after, "op": op, "ts_ms": 5, "source": {"lsn": 1}}).encode()


def rows(spark: SparkSession, bootstrap: str, name: str, format_: Debezium, *raw: bytes | None) -> list[Row]:
    fill(Connection(bootstrap), name, raw)
    return topic(spark, name, connection=bootstrap, value=format_, streaming=False).orderBy("_offset").collect()


def changes(found: list[Row]) -> list[tuple[int | None, int | None, str | None]]:
    return [(row["_weight"], row["id"], row["name"]) for row in found]


def test_every_change_is_what_goes_and_what_comes(spark: SparkSession, bootstrap: str, unique: str) -> None:
    found = rows(
        spark,
        bootstrap,
        f"dbz-{unique}",
        Debezium(ROW),
        envelope("r", None, ANN),
        envelope("u", ANN, BOB),
        envelope("d", BOB, None),
        None,
    )
    assert changes(found) == [(1, 1, "ann"), (-1, 1, "ann"), (1, 1, "bob"), (-1, 1, "bob")]
    assert all(row["_error"] is None for row in found)


def test_upserts_need_no_row_before(spark: SparkSession, bootstrap: str, unique: str) -> None:
    found = rows(
        spark,
        bootstrap,
        f"dbz-{unique}",
        Debezium(ROW, rows="upsert"),
        envelope("c", None, ANN),
        envelope("u", None, BOB),
        envelope("d", {"id": 1}, None),
    )
    assert changes(found) == [(1, 1, "ann"), (1, 1, "bob"), (-1, 1, None)]


def test_what_cannot_be_said_in_rows_is_a_bad_record_with_its_reason(
    spark: SparkSession, bootstrap: str, unique: str
) -> None:
    bad = [envelope("t"), envelope("u", None, BOB), b'{"id": 1}', b"none", envelope("x"), envelope("m")]
    found = rows(spark, bootstrap, f"dbz-{unique}", Debezium(ROW), *bad)
    assert [row["_error"] for row in found] == [
        "a truncate deletes rows that it does not name",
        "the change has no `before` (PostgreSQL: ALTER TABLE ... REPLICA IDENTITY FULL)",
        "not a Debezium envelope: there is no `op`",
        "the value is not a JSON object: none",
        "unknown operation x",
    ]
    assert [bytes(row["_raw"]) for row in found] == bad[:5]


def test_connects_schema_around_the_payload_makes_no_difference(
    spark: SparkSession, bootstrap: str, unique: str
) -> None:
    wrapped = b'{"schema": {"type": "struct"}, "payload": ' + envelope("c", None, ANN) + b"}"
    assert changes(rows(spark, bootstrap, f"dbz-{unique}", Debezium(ROW), wrapped)) == [(1, 1, "ann")]


def precise(unscaled: int) -> str:
    return base64.b64encode(unscaled.to_bytes((unscaled.bit_length() // 8) + 1, "big", signed=True)).decode()


def test_decimals_come_as_base64_of_the_unscaled_value(spark: SparkSession, bootstrap: str, unique: str) -> None:
    numbers = [0, 1, -1, 127, -128, 123456, -123456, 10**30 + 7, -(10**30) - 7, 2**64, -(2**63), 10**38 - 1]
    sent = [envelope("c", None, {"amount": precise(number)}) for number in numbers]
    found = rows(spark, bootstrap, f"dbz-{unique}", Debezium("amount decimal(38,2)"), *sent)
    assert [row["amount"] for row in found] == [Decimal(f"{number}e-2") for number in numbers]


def test_a_field_that_is_not_what_its_column_says_makes_a_bad_record(
    spark: SparkSession, bootstrap: str, unique: str
) -> None:
    schema = "day date, at timestamp, amount decimal(4,2)"
    bad = [{"day": "soon"}, {"at": 10**18}, {"amount": precise(123456)}, {"amount": "?"}, {"day": 10**12}]
    sent = [envelope("c", None, body) for body in bad]
    found = rows(spark, bootstrap, f"dbz-{unique}", Debezium(schema, times="millis"), *sent)
    assert [row["_error"] for row in found] == [
        "after: field 'day' is not date: soon",
        "after: field 'at' is not timestamp: 1000000000000000000",
        "after: field 'amount' is not decimal(4,2): AeJA",
        "after: field 'amount' is not decimal(4,2): ?",
        "after: field 'day' is not date: 1000000000000",
    ]


def test_times_come_as_numbers_or_text(spark: SparkSession, bootstrap: str, unique: str) -> None:
    schema = "day date, at timestamp, zoned timestamp"
    body = {"day": 20_454, "at": 1_767_225_600_123_456, "zoned": "2026-01-01T00:00:00.123456Z"}
    [row] = rows(spark, bootstrap, f"dbz-{unique}", Debezium(schema), envelope("c", None, body))
    moment = datetime(2026, 1, 1, 0, 0, 0, 123456, UTC)
    assert (row["day"], row["at"].astimezone(UTC), row["zoned"].astimezone(UTC)) == (date(2026, 1, 1), moment, moment)


def test_the_envelope_itself_can_be_had(spark: SparkSession, bootstrap: str, unique: str) -> None:
    [row] = rows(spark, bootstrap, f"dbz-{unique}", Debezium(ROW, rows="envelope"), envelope("u", ANN, BOB))
    assert (row["before"]["name"], row["after"]["name"], row["op"], row["ts_ms"]) == ("ann", "bob", "u", 5)
    assert json.loads(row["source"]) == {"lsn": 1}


def test_an_unknown_word_is_refused_when_it_is_written_down() -> None:
    with pytest.raises(BadOption, match="rows is 'everything'; say 'changelog', 'upsert', 'envelope'"):
        Debezium(ROW, rows="everything")  # type: ignore[arg-type]
