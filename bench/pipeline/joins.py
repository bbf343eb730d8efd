"""Joins and top-n: our operators, Flink SQL and plain Spark on the same files.

    interval     searches and clicks of a session within ten seconds, half of the rows each; with lonely searches for
                 us and Flink, without for Spark, whose inner join is its faster one
    stream_table nine events for one change of a table of 10 k keys, as of the event's time (Spark has none)
    tables       three auctions for one person who sells them, everything kept for ever
    top_n        the ten highest bids of each auction (Spark has none)

Two million seeded rows, 10 k/s of event time, Parquet. Flink reads two files of each stream that span all time, Spark
and we the same rows as twenty files in the order of time, eight a micro-batch. Everybody runs twice, the second time
counts, and throws the result away. Watermarks are 4 s behind, no checkpoints for Flink; ours and Spark's are what every
query of theirs has.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.flink_peer import run_flink
from bench.pipeline.windows import CORES, RUNS, bids
from bench.report import Bar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["run"]

ROWS = 2_000_000
PER_SECOND = 10_000
TABLE_KEYS = 10_000
FILES, FILES_PER_BATCH = 20, 8
START = np.datetime64("2026-01-01T00:00:00", "us")

Streams = Mapping[str, "DataFrame"]
Query = Callable[[Streams, str], "DataFrame"]


def data(rows: int = ROWS) -> dict[str, pa.Table]:
    """The streams by name; each column is called differently, so that joins need no renaming."""
    chance = np.random.default_rng(11)
    half, tenth, quarter = np.arange(rows // 2), np.arange(rows // 10), np.arange(rows // 4)
    events, auctions = np.arange(rows - len(tenth)), np.arange(rows - len(quarter))
    clicked = np.maximum(half - chance.integers(0, 5 * PER_SECOND, len(half)), 0)  # up to 10 s before
    return {
        "searches": pa.table({"k": half, "words": half % 1000, "searched": _times(half, rows)}),
        "clicks": pa.table({"ck": clicked, "url": half % 777, "clicked": _times(half, rows)}),
        "views": pa.table(
            {"k": chance.integers(0, TABLE_KEYS, len(events)), "page": events % 100, "at": _times(events, rows)}
        ),
        "profiles": pa.table(
            {"pk": chance.integers(0, TABLE_KEYS, len(tenth)), "city": tenth % 77, "changed": _times(tenth, rows)}
        ),
        "auctions": pa.table(
            {
                "auction": auctions,
                "seller": np.maximum(auctions // 3 - chance.integers(0, 1000, len(auctions)), 0),
                "category": auctions % 5,
            }
        ),
        "people": pa.table({"id": quarter, "region": quarter % 50}),
        "bid": bids(rows),
    }


def _times(numbers: np.ndarray[tuple[int], np.dtype[np.int64]], rows: int) -> pa.Array:
    """Evenly spread over the time that all rows take at the rate, in whole milliseconds: all that Flink knows."""
    step = rows * 1_000_000 // PER_SECOND // len(numbers)
    return pa.array(START + (numbers * step // 1000 * 1000).astype("timedelta64[us]"), pa.timestamp("us"))


def write_files(table: pa.Table, folder: Path) -> None:
    """The same rows for Flink (`spanning`, local times as fine as its watermarks) and for Spark (`in_order`, UTC)."""
    for name, files, kind in (("spanning", CORES, pa.timestamp("ms")), ("in_order", FILES, pa.timestamp("us", "UTC"))):
        (folder / name).mkdir(parents=True)
        schema = pa.schema([f.with_type(kind) if pa.types.is_timestamp(f.type) else f for f in table.schema])
        rows = table.cast(schema)
        for file in range(files):
            start, end = (part * rows.num_rows // files for part in (file, file + 1))
            part = rows.take(pa.array(np.arange(file, rows.num_rows, files))) if name == "spanning" else None
            part = rows.slice(start, end - start) if part is None else part
            pq.write_table(part, folder / name / f"part-{file:03d}.parquet", version="2.6")


def ours() -> dict[str, Query]:
    from headwater.pipeline import changelogs, joins
    from headwater.pipeline.time import event_time

    delay = "4 seconds"
    return {
        "interval_join": lambda s, checkpoint: joins.interval(
            event_time(s["searches"], "searched", delay=delay),
            event_time(s["clicks"], "clicked", delay=delay),
            {"k": "ck"},
            lower="0 seconds",
            upper="10 seconds",
            how="left",
            checkpoint=checkpoint,
        ),
        "stream_table_join": lambda s, checkpoint: joins.stream_table(
            event_time(s["views"], "at", delay=delay),
            event_time(s["profiles"], "changed", delay=delay),
            {"k": "pk"},
            checkpoint=checkpoint,
        ),
        "table_table_join": lambda s, checkpoint: joins.tables(
            s["auctions"], s["people"], {"seller": "id"}, checkpoint=checkpoint
        ),
        "top_n": lambda s, checkpoint: changelogs.top_n(
            s["bid"], ["auction"], ["price desc"], 10, checkpoint=checkpoint
        ),
    }


def sparks() -> dict[str, Query]:
    from pyspark.sql import functions as F

    def interval(s: Streams, _: str) -> DataFrame:
        left = s["searches"].withWatermark("searched", "4 seconds")
        right = s["clicks"].withWatermark("clicked", "4 seconds")
        near = F.expr("clicked >= searched AND clicked <= searched + interval 10 seconds")
        return left.join(right, (F.col("k") == F.col("ck")) & near)

    def tables(s: Streams, _: str) -> DataFrame:
        return s["auctions"].join(s["people"], F.col("seller") == F.col("id"))

    return {"interval_join": interval, "table_table_join": tables}


FLINK = {
    "interval_join": (
        "k BIGINT, words BIGINT, url BIGINT",
        "SELECT k, words, url FROM searches LEFT JOIN clicks ON k = ck "
        "AND clicked BETWEEN searched AND searched + INTERVAL '10' SECOND",
    ),
    "stream_table_join": (
        "k BIGINT, page BIGINT, city BIGINT",
        "SELECT views.k, page, city FROM views JOIN versions FOR SYSTEM_TIME AS OF views.`at` ON views.k = versions.pk",
    ),
    "table_table_join": (
        "auction BIGINT, seller BIGINT, category BIGINT, region BIGINT",
        "SELECT auction, seller, category, region FROM auctions JOIN people ON seller = id",
    ),
    "top_n": (
        "auction BIGINT, bidder BIGINT, price BIGINT, n BIGINT",
        "SELECT auction, bidder, price, n FROM (SELECT *, ROW_NUMBER() OVER "
        "(PARTITION BY auction ORDER BY price DESC) AS n FROM bid) WHERE n <= 10",
    ),
}
VERSIONS = (
    "CREATE VIEW versions AS SELECT pk, city, changed FROM (SELECT *, ROW_NUMBER() OVER "
    "(PARTITION BY pk ORDER BY changed DESC) AS n FROM profiles) WHERE n = 1"
)
USES = {
    "interval_join": ("searches", "clicks"),
    "stream_table_join": ("views", "profiles"),
    "table_table_join": ("auctions", "people"),
    "top_n": ("bid",),
}


def flink(folder: Path, streams: Mapping[str, pa.Table]) -> dict[str, float]:
    """Seconds by name."""
    ddl = [_flink_table(folder, name, table.schema) for name, table in streams.items()]
    ddl.append(VERSIONS)
    ddl += [f"CREATE TABLE sink_{n} ({columns}) WITH ('connector'='blackhole')" for n, (columns, _) in FLINK.items()]
    inserts = {name: f"INSERT INTO sink_{name} {sql}" for name, (_, sql) in FLINK.items()}
    return run_flink(ddl, inserts, repeat=RUNS)


def _flink_table(folder: Path, name: str, schema: pa.Schema) -> str:
    columns = [f"`{f.name}` {'TIMESTAMP(3)' if pa.types.is_timestamp(f.type) else 'BIGINT'}" for f in schema]
    columns += [
        f"WATERMARK FOR `{f.name}` AS `{f.name}` - INTERVAL '4' SECOND" for f in schema if pa.types.is_timestamp(f.type)
    ]
    path = folder / name / "spanning"
    return (
        f"CREATE TABLE {name} ({', '.join(columns)}) "
        f"WITH ('connector'='filesystem', 'path'='file://{path}', 'format'='parquet')"
    )


def seconds(spark: SparkSession, folder: Path, names: tuple[str, ...], query: Query) -> float:
    """How long the query takes to read everything, the second time."""
    took = 0.0
    for _ in range(RUNS):
        checkpoint = tempfile.mkdtemp(dir=folder)
        result = query({name: _stream(spark, folder / name / "in_order") for name in names}, checkpoint)
        started = time.perf_counter()
        writer = result.writeStream.format("noop").option("checkpointLocation", checkpoint).outputMode("append")
        writer.trigger(availableNow=True).start().awaitTermination()
        took = time.perf_counter() - started
        shutil.rmtree(checkpoint, ignore_errors=True)
    return took


def _stream(spark: SparkSession, files: Path) -> DataFrame:
    schema = spark.read.parquet(str(files)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(str(files))


def run() -> None:
    """A line for each of our operators and peer that has it."""
    from headwater.pipeline import session

    with tempfile.TemporaryDirectory() as made:
        folder, streams = Path(made), data()
        for name, table in streams.items():
            write_files(table, folder / name)
        by_flink = flink(folder, streams)
        spark = session("bench-joins", master=f"local[{CORES}]")
        try:
            found = {name: seconds(spark, folder, USES[name], query) for name, query in ours().items()}
            # Spark's default store, in memory: the faster one for it
            spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
            by_spark = {name: seconds(spark, folder, USES[name], query) for name, query in sparks().items()}
        finally:
            spark.stop()
    for name, took in found.items():
        Bar(f"{name}_over_flink", 0.5, "rows/s").report(ROWS / took, ROWS / by_flink[name])
        if name in by_spark:
            Bar(f"{name}_over_spark", 1.0, "rows/s").report(ROWS / took, ROWS / by_spark[name])
