"""The marketplace's pipelines: one Spark session, a query for each question.

    python -m headwater.demo.pipelines --bootstrap HOST:PORT --checkpoints DIR

    topic                          key                    what it says
    market.requests_per_window     window_start           requests per ten seconds, corrected when stragglers come
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.client import Connection
from headwater.pipeline import Json, session, to_records, topic, write_topic
from headwater.pipeline.aggregates import count
from headwater.pipeline.time import device_time, event_time
from headwater.pipeline.windows import tumbling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["main"]

PARTITIONS = 2  # of every operator's state: as many as the demo has cores
TRIGGER = {"processingTime": "2 seconds"}
WATCH_INTERVAL_S = 0.5


@dataclass(frozen=True)
class Market:
    """What every query needs: the session, the log, and where checkpoints are."""

    spark: SparkSession
    log: Connection
    checkpoints: str

    def checkpoint(self, query: str) -> str:
        return f"{self.checkpoints}/{query}"

    def write(self, rows: DataFrame, query: str, key: list[str]) -> StreamingQuery:
        return write_topic(
            to_records(rows, key=key),
            f"market.{query}",
            connection=self.log,
            query=query,
            checkpoint=self.checkpoint(query),
            trigger=TRIGGER,
        )


def requests_per_window(market: Market) -> StreamingQuery:
    """By the time at which they happened: devices with wrong clocks and devices that were offline change no rate."""
    from pyspark.sql import functions as F

    query = "requests_per_window"
    rows = topic(
        market.spark,
        "market.requests",
        connection=market.log,
        value=Json("device_id string, sequence bigint, path string, occurred bigint, sent bigint"),
    )
    rows = rows.withColumns({name: F.timestamp_millis(name) for name in ("occurred", "sent")})
    timed = event_time(
        device_time(rows, "occurred", "sent", "_received"),
        "_occurred",
        delay="2 seconds",
        producer="device_id",
        idle_after="5 seconds",
        ticks=True,
    )
    windows = tumbling(
        timed,
        "10 seconds",
        aggregates={"requests": count()},
        emit="close",
        output="upsert",
        late="correct",
        keep_closed="10 minutes",
        checkpoint=market.checkpoint(query),
        name="windows",
        partitions=1,
    )
    return market.write(windows, query, ["window_start"])


QUERIES: tuple[Callable[[Market], StreamingQuery], ...] = (requests_per_window,)


def main() -> None:
    parser = argparse.ArgumentParser(description="the demo's pipelines")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--checkpoints", required=True)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    ended = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: ended.set())
    spark = session("headwater-demo", master=arguments.master)
    market = Market(spark, Connection(arguments.bootstrap), arguments.checkpoints)
    running = [query(market) for query in QUERIES]
    while not ended.wait(WATCH_INTERVAL_S):
        for query in running:
            if query.exception() is not None:
                raise SystemExit(f"query {query.name} failed: {query.exception()}")
    for query in running:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
