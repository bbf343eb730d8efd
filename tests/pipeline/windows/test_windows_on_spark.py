"""Windows on real Spark: a streaming query of each kind, and what it leaves against Spark's own batch SQL."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.windows.feeding import accumulated, clock

from headwater.pipeline import aggregates as agg
from headwater.pipeline.errors import BadOption, DefinitionError, UnknownColumn
from headwater.pipeline.time import event_time
from headwater.pipeline.windows import hopping, session, sliding, tumbling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FILES = 4
SCHEMA = "at timestamp, user string, amount double"
SUMS = {"n": agg.count(), "total": agg.sum("amount")}
WORDS: dict[str, Any] = {"output": "changelog", "late": "correct", "keep_closed": "1 day"}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Files of events, some of them far out of order, and a last one that closes every window."""
    folder = tmp_path_factory.mktemp("events")
    chance = random.Random(5)
    for file in range(FILES):
        rows = [_event(chance, file) for _ in range(60)] if file < FILES - 1 else [_last()]
        pq.write_table(pa.Table.from_pylist(rows, _arrow()), folder / f"{file}.parquet")
    return str(folder)


def _arrow() -> pa.Schema:
    return pa.schema([("at", pa.timestamp("us", tz="UTC")), ("user", pa.string()), ("amount", pa.float64())])


def _event(chance: random.Random, file: int) -> dict[str, Any]:
    late = chance.random() < 0.2
    at = clock("10:00") + timedelta(
        seconds=file * 60 - (chance.randint(60, 300) if late else 0) + chance.randint(0, 59)
    )
    return {"at": at, "user": chance.choice(["ann", "bob", "eve"]), "amount": chance.randint(1, 99) / 10}


def _last() -> dict[str, Any]:
    return {"at": clock("23:00"), "user": "end", "amount": 0.0}


def streamed(spark: SparkSession, folder: str, made: Callable[[DataFrame], DataFrame], tmp_path: Path) -> list[Any]:
    """What a streaming query over the files gave, a file a batch."""
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).option("latestFirst", False).parquet(folder)
    found: list[dict[str, Any]] = []

    def keep(batch: DataFrame, number: int) -> None:
        found.extend(row.asDict(recursive=True) for row in batch.collect())

    query = made(rows).writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    return [row for row in found if row["user"] != "end"]


def batch(spark: SparkSession, folder: str, sql: str) -> list[dict[str, Any]]:
    spark.read.schema(SCHEMA).parquet(folder).where("user <> 'end'").createOrReplaceTempView("events")
    return [row.asDict(recursive=True) for row in spark.sql(sql).collect()]


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(found) == len(wanted) > 0

    def by(row: dict[str, Any]) -> list[str]:
        return [str(row[name]) for name in sorted(row) if name != "total"]

    for one, other in zip(sorted(found, key=by), sorted(wanted, key=by), strict=True):
        total = pytest.approx(other["total"], abs=1e-6)
        assert {**one, "total": total} == {**other, "total": total}
        assert one["total"] == total


@pytest.mark.parametrize("emit", ["close", "change"])
def test_a_hopping_window_with_corrections_adds_up_to_sparks_batch_result(
    spark: SparkSession, events: str, tmp_path: Path, emit: str
) -> None:
    def made(df: DataFrame) -> DataFrame:
        where = {"checkpoint": str(tmp_path), "name": "hops"}
        timed = event_time(df, "at", delay="10 seconds")
        return hopping(timed, "60 s", "20 s", key=["user"], aggregates=SUMS, emit=emit, **WORDS, **where)

    wanted = batch(
        spark,
        events,
        "select user, window.start as window_start, window.end as window_end, count(*) as n, sum(amount) as total "
        "from events group by window(at, '60 seconds', '20 seconds'), user",
    )
    same(accumulated(streamed(spark, events, made, tmp_path)), wanted)


def test_sessions_with_corrections_are_sparks_session_windows(spark: SparkSession, events: str, tmp_path: Path) -> None:
    def made(df: DataFrame) -> DataFrame:
        timed = event_time(df, "at", delay="10 seconds")
        return session(timed, "8 s", key=["user"], aggregates=SUMS, **WORDS, checkpoint=str(tmp_path))

    wanted = batch(
        spark,
        events,
        "select user, session_window.start as window_start, session_window.end as window_end, count(*) as n, "
        "sum(amount) as total from events group by session_window(at, '8 seconds'), user",
    )
    same(accumulated(streamed(spark, events, made, tmp_path)), wanted)


def test_sliding_windows_with_corrections_are_sqls_range_between(
    spark: SparkSession, events: str, tmp_path: Path
) -> None:
    def made(df: DataFrame) -> DataFrame:
        timed = event_time(df, "at", delay="10 seconds")
        slid = sliding(timed, "30 s", key=["user"], aggregates=SUMS, **WORDS, checkpoint=str(tmp_path))
        return slid.drop("_time")

    wanted = batch(
        spark,
        events,
        "select *, count(*) over w as n, sum(amount) over w as total from events window w as "
        "(partition by user order by at range between interval 30 seconds preceding and current row)",
    )
    same(accumulated(streamed(spark, events, made, tmp_path)), wanted)


def test_late_rows_are_a_dataframe_of_their_own(spark: SparkSession, events: str, tmp_path: Path) -> None:
    def made(df: DataFrame) -> DataFrame:
        timed = event_time(df, "at", delay="10 seconds")
        return tumbling(timed, "60 s", key=["user"], aggregates=SUMS, late="side", checkpoint=str(tmp_path))

    rows = streamed(spark, events, made, tmp_path)
    late = [row["_row"] for row in rows if row["_late"]]
    in_time = sum(row["n"] for row in rows if not row["_late"])
    assert late
    assert in_time + len(late) == (FILES - 1) * 60
    assert all(row["at"] is not None and row["amount"] > 0 for row in late)


def test_without_a_key_a_window_has_the_rows_of_every_partition(
    spark: SparkSession, events: str, tmp_path: Path
) -> None:
    def made(df: DataFrame) -> DataFrame:
        timed = event_time(df.where("user <> 'end'"), "at", delay="1 second")
        words = {"emit": "change", "output": "upsert", "late": "correct", "keep_closed": "1 day"}
        totals = tumbling(timed, "1 hour", aggregates=SUMS, **words, checkpoint=str(tmp_path))
        return totals.selectExpr("'all' as user", "*")

    newest = accumulated(streamed(spark, events, made, tmp_path), key=["window_start"])
    assert len(newest) == 2
    assert sum(row["n"] for row in newest) == (FILES - 1) * 60


def test_definition_errors_come_before_anything_runs(spark: SparkSession, events: str) -> None:
    df = spark.read.schema(SCHEMA).parquet(events)
    with pytest.raises(DefinitionError, match="event_time"):
        tumbling(df, "1 minute", key=["user"], aggregates=SUMS)
    timed = event_time(df, "at")
    with pytest.raises(UnknownColumn, match="the DataFrame has at, user, amount"):
        tumbling(timed, "1 minute", key=["users"], aggregates=SUMS)
    with pytest.raises(BadOption, match="size is '-1 minute'"):
        tumbling(timed, "-1 minute", key=["user"], aggregates=SUMS)


def test_over_a_dataframe_that_is_all_there_nothing_is_late_and_everything_closes(
    spark: SparkSession, events: str
) -> None:
    timed = event_time(spark.read.schema(SCHEMA).parquet(events).where("user <> 'end'"), "at")
    made = tumbling(timed, "60 s", key=["user"], aggregates=SUMS)
    wanted = batch(
        spark,
        events,
        "select user, window.start as window_start, window.end as window_end, count(*) as n, sum(amount) as total "
        "from events group by window(at, '60 seconds'), user",
    )
    same([row.asDict(recursive=True) for row in made.collect()], wanted)
