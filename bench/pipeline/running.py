"""A keyed running aggregate from Kafka topics: our operator, Spark's native aggregation, its Python state API."""

from __future__ import annotations

import os

from bench.pipeline.queries import Batches, filled_topic, native, ours, read, run, spark_of, transform_with_state
from bench.report import Bar

ROWS = int(os.environ.get("BENCH_ROWS", "1600000"))
ROWS_PER_BATCH = 200_000
KEYS = 10_000
ROUNDS = 2  # of ours and native in turn: a disturbance hits both


def throughput() -> None:
    """10 k keys, 200 k-row batches, JSON decoded, two tasks."""
    with filled_topic(ROWS, KEYS) as (bootstrap, name):
        spark = spark_of()
        rows = read(spark, bootstrap, name, ROWS_PER_BATCH)
        found: dict[str, list[Batches]] = {"ours": [], "native": []}
        for _ in range(ROUNDS):
            found["ours"].append(run(rows, ours))
            found["native"].append(run(rows, native))
        best = {who: max(one.rows_per_second for one in rounds) for who, rounds in found.items()}
        Bar("keyed running aggregate from topics against Spark's native aggregation", 1.0, "rows/s").report(
            best["ours"], best["native"]
        )
        state_api = run(rows, transform_with_state, warm=1)
        spark.stop()
    Bar("keyed running aggregate from topics against transformWithStateInPandas", 10.0, "rows/s").report(
        best["ours"], state_api.rows_per_second
    )


def overhead() -> None:
    """Micro-batches of 1,000 rows: what a batch costs whatever is in it."""
    with filled_topic(24_000, 1_000) as (bootstrap, name):
        spark = spark_of()
        rows = read(spark, bootstrap, name, 1_000)
        mine, theirs = [], []
        for _ in range(ROUNDS):
            mine.append(run(rows, ours, warm=5).median_ms)
            theirs.append(run(rows, native, warm=5).median_ms)
        spark.stop()
    Bar("a micro-batch of one operator against Spark's native query", 1.3, "ms", at_least=False).report(
        min(mine), min(theirs)
    )
