"""Hopping and session windows over Nexmark's bids: our operators, Flink SQL and plain Spark on the same files.

Two million seeded bids, 10 k/s of event time, Parquet. Flink reads two files that each span all time, one a source;
Spark and we read the same rows as ten files in the order of time, two a micro-batch, one a task: so rows come in order
and nobody drops any. Everybody runs twice, the second time counts, and throws the result away. Watermarks are 4 s
behind, no checkpoints for Flink; ours and Spark's are what every query of theirs has.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.flink_peer import run_flink
from bench.report import Bar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["run"]

BIDS = 2_000_000
PER_SECOND = 10_000  # bids of event time
FILES, FILES_PER_BATCH = 10, 2
CORES = 2
RUNS = 2

HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(`at`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
SESSION = "TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`at`), INTERVAL '10' SECOND))"
FLINK = {
    "hopping": f"SELECT auction, count(*), window_start, window_end FROM {HOP} "
    "GROUP BY auction, window_start, window_end",
    "session": f"SELECT bidder, count(*), window_start, window_end FROM {SESSION} "
    "GROUP BY bidder, window_start, window_end",
}

Query = Callable[["DataFrame", str], "DataFrame"]


def bids(count: int = BIDS) -> pa.Table:
    """Nexmark's bids: half of them on the hot auction of each hundred, three quarters by its hot bidder; seeded."""
    chance = np.random.default_rng(7)
    number = np.arange(count)
    auction, person = 1000 + number * 3 // 46, 1000 + number // 46
    hot_auction, hot_bidder = chance.random(count) < 0.5, chance.random(count) < 0.75
    at = np.datetime64("2026-01-01T00:00:00", "ms") + (number * 1_000 // PER_SECOND).astype("timedelta64[ms]")
    return pa.table(
        {
            "auction": np.where(hot_auction, auction // 100 * 100, auction - chance.integers(0, 100, count)),
            "bidder": np.where(hot_bidder, person // 100 * 100 + 1, person - chance.integers(0, 1000, count)),
            "price": np.round(10 ** (chance.random(count) * 6) * 100).astype(np.int64),
            "at": pa.array(at, pa.timestamp("ms")),  # as fine as a watermark of Flink's can be
        }
    )


def write_files(table: pa.Table, folder: Path) -> None:
    """The same rows for Flink (`spanning`) and for Spark (`in_order`)."""
    (folder / "spanning").mkdir()
    for file in range(CORES):
        rows = pa.array(np.arange(file, table.num_rows, CORES))
        pq.write_table(table.take(rows), folder / "spanning" / f"part-{file:03d}.parquet", version="2.6")
    (folder / "in_order").mkdir()
    utc = table.set_column(3, "at", table["at"].cast(pa.timestamp("us", tz="UTC")))
    for file in range(FILES):
        start, end = (part * table.num_rows // FILES for part in (file, file + 1))
        pq.write_table(utc.slice(start, end - start), folder / "in_order" / f"part-{file:03d}.parquet", version="2.6")


def flink(folder: Path) -> dict[str, float]:
    """Seconds by name."""
    source = (
        "CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, `at` TIMESTAMP(3), "
        "WATERMARK FOR `at` AS `at` - INTERVAL '4' SECOND) WITH ('connector'='filesystem', "
        f"'path'='file://{folder / 'spanning'}', 'format'='parquet')"
    )
    sinks = [
        f"CREATE TABLE sink_{name} (k BIGINT, n BIGINT, a TIMESTAMP(3), b TIMESTAMP(3)) WITH ('connector'='blackhole')"
        for name in FLINK
    ]
    return run_flink(
        [source, *sinks], {name: f"INSERT INTO sink_{name} {sql}" for name, sql in FLINK.items()}, repeat=RUNS
    )


def seconds(spark: SparkSession, folder: Path, query: Query) -> float:
    """How long the query takes to read everything, the second time."""
    took = 0.0
    for _ in range(RUNS):
        checkpoint = tempfile.mkdtemp(dir=folder)
        rows = spark.readStream.schema("auction long, bidder long, price long, at timestamp").option(
            "maxFilesPerTrigger", FILES_PER_BATCH
        )
        result = query(rows.parquet(str(folder / "in_order")), checkpoint)
        started = time.perf_counter()
        writer = result.writeStream.format("noop").option("checkpointLocation", checkpoint).outputMode("append")
        running = writer.trigger(availableNow=True).start()
        running.awaitTermination()
        took = time.perf_counter() - started
        shutil.rmtree(checkpoint, ignore_errors=True)
    return took


def ours() -> dict[str, Query]:
    from headwater.pipeline.aggregates import count
    from headwater.pipeline.time import event_time
    from headwater.pipeline.windows import hopping, session

    def timed(df: DataFrame) -> DataFrame:
        return event_time(df, "at", delay="4 seconds")

    aggregates = {"n": count()}
    return {
        "hopping": lambda df, checkpoint: hopping(
            timed(df), "10 seconds", "2 seconds", key=["auction"], aggregates=aggregates, checkpoint=checkpoint
        ),
        "session": lambda df, checkpoint: session(
            timed(df), "10 seconds", key=["bidder"], aggregates=aggregates, checkpoint=checkpoint
        ),
    }


def sparks() -> dict[str, Query]:
    from pyspark.sql import functions as F

    def hop(df: DataFrame, _: str) -> DataFrame:
        window = F.window("at", "10 seconds", "2 seconds")
        return df.withWatermark("at", "4 seconds").groupBy(window, "auction").count()

    def session(df: DataFrame, _: str) -> DataFrame:
        return df.withWatermark("at", "4 seconds").groupBy(F.session_window("at", "10 seconds"), "bidder").count()

    return {"hopping": hop, "session": session}


def run() -> None:
    """Four lines: each window against Flink and against Spark."""
    from headwater.pipeline import session as spark_session

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_files(bids(), folder)
        by_flink = flink(folder)
        spark = spark_session("bench-windows", master=f"local[{CORES}]")
        try:
            found = {name: seconds(spark, folder, query) for name, query in ours().items()}
            # Spark's default store, in memory: the faster one for it
            spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
            by_spark = {name: seconds(spark, folder, query) for name, query in sparks().items()}
        finally:
            spark.stop()
    for name, took in found.items():
        Bar(f"{name}_windows_over_flink", 0.5, "rows/s").report(BIDS / took, BIDS / by_flink[name])
        Bar(f"{name}_windows_over_spark", 1.0, "rows/s").report(BIDS / took, BIDS / by_spark[name])
