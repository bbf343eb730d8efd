"""Queries that bars compare: the same running aggregate as ours, Spark's own, and by its Python state API."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.broker.servers import headwater
from headwater.client import Connection, ensure_topics
from headwater.pipeline import Json, session, topic
from headwater.pipeline.aggregates import count, running, sum

__all__ = ["Batches", "filled_topic", "native", "ours", "run", "spark_of", "transform_with_state"]

FIELDS = "user string, amount bigint"
RUN_TIMEOUT_S = 280
WARM_BATCHES = 2  # the first ones start workers, compile code and fill caches: they are left out
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS_BACKED = (
    "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"  # Spark's default, its fastest
)


@dataclass(frozen=True)
class Batches:
    """What a query's batches took, without the first ones."""

    rows: int
    ms: tuple[float, ...]

    @property
    def rows_per_second(self) -> float:
        return self.rows * 1000 / float(np.sum(self.ms))

    @property
    def median_ms(self) -> float:
        return float(median(self.ms))


def spark_of(master: str = "local[2]", partitions: int = 2, **settings: str) -> SparkSession:
    return session("headwater-bench", master=master, shuffle_partitions=partitions, settings=settings)


@contextmanager
def filled_topic(rows: int, keys: int) -> Iterator[tuple[str, str]]:
    """A broker with a topic of `rows` JSON records over `keys` users in two partitions: (bootstrap, topic)."""
    with headwater() as server:
        ensure_topics(Connection(server.bootstrap), ["orders"], partitions=2)
        producer = Producer(
            {"bootstrap.servers": server.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
        )
        users = np.random.default_rng(1).integers(0, keys, rows).tolist()
        for number, user in enumerate(users):
            value = b'{"user":"user-%d","amount":%d}' % (user, number % 100)
            producer.produce("orders", value, partition=number % 2)
            if number % 50_000 == 0:
                producer.poll(0.2)
        producer.flush(60)
        yield server.bootstrap, "orders"


def read(spark: SparkSession, bootstrap: str, name: str, rows_per_batch: int) -> DataFrame:
    return topic(spark, name, connection=bootstrap, value=Json(FIELDS), records_per_batch=rows_per_batch)


def ours(rows: DataFrame, checkpoint: str) -> Any:
    totals = running(rows, ["user"], {"n": count(), "total": sum("amount")}, checkpoint=checkpoint)
    return totals.writeStream.format("noop")


def native(rows: DataFrame, checkpoint: str) -> Any:
    rows.sparkSession.conf.set("spark.sql.streaming.stateStore.providerClass", HDFS_BACKED)
    totals = rows.groupBy("user").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
    return totals.writeStream.format("noop").outputMode("update")


def transform_with_state(rows: DataFrame, checkpoint: str) -> Any:
    from bench.pipeline.totals_processor import Totals

    rows.sparkSession.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)  # it runs on no other
    totals = (
        rows.select("user", "amount")
        .groupBy("user")
        .transformWithStateInPandas(Totals(), "user string, n bigint, total bigint", "Update", "None")
    )
    return totals.writeStream.format("noop").outputMode("update")


def run(rows: DataFrame, query_of: Callable[[DataFrame, str], Any], warm: int = WARM_BATCHES) -> Batches:
    """The query over everything that is there."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-", ignore_cleanup_errors=True) as folder:
        writer = query_of(rows, folder).option("checkpointLocation", folder).trigger(availableNow=True)
        query = writer.start()
        try:
            if not query.awaitTermination(RUN_TIMEOUT_S):
                raise TimeoutError(f"the query did not end within {RUN_TIMEOUT_S} s")
            reports = [one for one in query.recentProgress if one.numInputRows > 0][warm:]
        finally:
            query.stop()
    return Batches(
        int(np.sum([one.numInputRows for one in reports])), tuple(one.durationMs["triggerExecution"] for one in reports)
    )
