"""The marketplace's pipelines: one Spark session, a query for each question.

python -m headwater.demo.pipelines --bootstrap HOST:PORT --checkpoints DIR

topic                       key                     what it says
market.requests_per_window  window_start            requests per ten seconds, corrected when stragglers come
market.search_outcomes      search_id               every search with its click, or not clicked
market.click_through        window_start            searches and clicks per half minute
market.visitors             click_id                clicks with the profile as it was at the click
market.taxed_orders         order_id                orders with the tax rate that held at the sale
market.timelines            follower_id, place      the newest ten posts of those whom one follows
"""

from __future__ import annotations

import argparse
import logging
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from headwater.client import Connection, ensure_topics, partitions_of
from headwater.demo.story import DATABASE_TABLES, TOPICS
from headwater.pipeline import Debezium, Json, changelogs, joins, session, to_records, topic, write_topic
from headwater.pipeline.aggregates import count
from headwater.pipeline.aggregates import sum as total
from headwater.pipeline.reporting import reporting
from headwater.pipeline.time import device_time, event_time
from headwater.pipeline.windows import tumbling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["QUERIES", "main"]

TRIGGER = {"processingTime": "2 seconds"}
WATCH_INTERVAL_S = 0.5
TIMELINE_POSTS = 10
READ_TOPICS = (*TOPICS, *(f"shop.{table}" for table in DATABASE_TABLES))
TOPICS_DEADLINE_S = 120.0
STARTED_AT_ONCE = 3  # queries: planning one takes a core for a second
# Every query of the demo waits for a lane that says nothing no longer than this.
PATIENCE: dict[str, Any] = {"idle_after": "5 seconds", "ticks": True}


@dataclass(frozen=True)
class Market:
    """What every query needs: the session, the log, and where checkpoints are."""

    spark: SparkSession
    log: Connection
    checkpoints: str

    def read(self, name: str, value: Json | Debezium, **more: Any) -> DataFrame:
        return topic(self.spark, name, connection=self.log, value=value, **more)

    def state(self, query: str, name: str) -> dict[str, Any]:
        return {"checkpoint": f"{self.checkpoints}/{query}", "name": name, "partitions": 1}

    def write(self, rows: DataFrame, query: str, key: list[str]) -> StreamingQuery:
        return write_topic(
            to_records(rows, key=key),
            f"market.{query}",
            connection=self.log,
            query=query,
            checkpoint=f"{self.checkpoints}/{query}",
            trigger=TRIGGER,
        )


def requests_per_window(market: Market) -> StreamingQuery:
    """By the time at which they happened: devices with wrong clocks and devices that were offline change no rate."""
    query = "requests_per_window"
    rows = market.read("market.requests", Json("device_id string, path string, occurred bigint, sent bigint"))
    rows = rows.withColumns({name: F.timestamp_millis(name) for name in ("occurred", "sent")})
    happened = device_time(rows, "occurred", "sent", "_received")
    timed = event_time(happened, "_occurred", delay="2 seconds", producer="device_id", **PATIENCE)
    windows = tumbling(
        timed,
        "10 seconds",
        aggregates={"requests": count()},
        output="upsert",
        late="correct",
        keep_closed="10 minutes",
        **market.state(query, "windows"),
    )
    return market.write(windows, query, ["window_start"])


def search_outcomes(market: Market) -> StreamingQuery:
    """Searches and clicks within half a minute; a search that nobody clicks comes out when no click can follow."""
    query = "search_outcomes"
    searches = market.read("market.searches", Json("search_id string, user_id bigint, text string, occurred bigint"))
    clicks = market.read("market.clicks", Json("click_id string, search_id string, item_id bigint, occurred bigint"))
    searches = searches.select("search_id", "user_id", "text", F.timestamp_millis("occurred").alias("searched"))
    clicks = clicks.select("search_id", "click_id", "item_id", F.timestamp_millis("occurred").alias("clicked"))
    found = joins.interval(
        event_time(searches, "searched", delay="2 seconds", **PATIENCE),
        event_time(clicks, "clicked", delay="2 seconds", **PATIENCE),
        ["search_id"],
        lower="0 seconds",
        upper="30 seconds",
        how="left",
        late="correct",
        keep_closed="10 minutes",
        output="changelog",
        **market.state(query, "pairs"),
    )
    return market.write(found, query, ["search_id"])


def click_through(market: Market) -> StreamingQuery:
    """A second stage: what the first one found, per half minute of searching, and corrected with it."""
    query = "click_through"
    outcomes = market.read(
        "market.search_outcomes",
        Json("search_id string, searched timestamp, click_id string"),
        key=Json("search_id string"),
        upserts=True,
    )
    table = changelogs.from_upserts(
        outcomes.select("search_id", "searched", "click_id", "_weight"),
        ["search_id"],
        **market.state(query, "outcomes"),
    )
    counted = changelogs.aggregate(
        table.select(
            F.window("searched", "30 seconds").start.alias("window_start"),
            F.col("click_id").isNotNull().cast("bigint").alias("is_clicked"),
            "_weight",
        ),
        ["window_start"],
        {"searches": count(), "clicks": total("is_clicked")},
        output="upsert",
        **market.state(query, "windows"),
    )
    return market.write(counted, query, ["window_start"])


def visitors(market: Market) -> StreamingQuery:
    """Clicks, each with its user's profile as it was: profiles change while activity flows."""
    query = "visitors"
    clicks = market.read("market.clicks", Json("click_id string, user_id bigint, item_id bigint, occurred bigint"))
    clicks = clicks.select("click_id", "user_id", "item_id", F.timestamp_millis("occurred").alias("clicked"))
    profiles = market.read("shop.public.profiles", Debezium("user_id bigint, name string, region string", "upsert"))
    profiles = profiles.select("user_id", "name", "region", "_weight", F.col("_received").alias("changed"))
    enriched = joins.stream_table(
        event_time(clicks, "clicked", delay="2 seconds", **PATIENCE),
        event_time(profiles, "changed", **PATIENCE),
        ["user_id"],
        how="left",
        **market.state(query, "profiles"),
    )
    return market.write(enriched, query, ["click_id"])


def taxed_orders(market: Market) -> StreamingQuery:
    """The tax rate as of the sale, also when a rate becomes known late: then the order's tax is corrected."""
    query = "taxed_orders"
    order = "order_id bigint, region string, amount_cents bigint, sold_at bigint"
    orders = market.read("shop.public.orders", Debezium(order, "envelope")).where("op IN ('c', 'r')")
    orders = orders.select("after.order_id", "after.region", "after.amount_cents", "after.sold_at")
    orders = orders.withColumn("sold_at", F.timestamp_millis("sold_at"))
    taxes = market.read("market.taxes", Json("region string, version bigint, rate double, valid_from bigint"))
    taxes = taxes.select("region", "version", "rate", F.timestamp_millis("valid_from").alias("valid_from"))
    taxed = joins.as_of(
        event_time(orders, "sold_at", delay="5 seconds", **PATIENCE),
        event_time(taxes, "valid_from", delay="2 seconds", **PATIENCE),
        ["region"],
        how="left",
        late="correct",
        keep_closed="1 hour",
        output="changelog",
        **market.state(query, "rates"),
    )
    taxed = taxed.withColumn("tax_cents", F.round(F.col("amount_cents") * F.col("rate")).cast("bigint"))
    return market.write(taxed, query, ["order_id"])


def timelines(market: Market) -> StreamingQuery:
    """Posts and follows as tables: a post, a deletion, a follow and an unfollow each change what followers see."""
    query = "timelines"
    posts = market.read(
        "market.posts",
        Json("post_id string, sender_id bigint, text string, occurred bigint"),
        key=Json("post_id string"),
        upserts=True,
    )
    follows = market.read(
        "market.follows",
        Json("follower_id bigint, followee_id bigint"),
        key=Json("follower_id bigint, followee_id bigint"),
        upserts=True,
    )
    posts = posts.select("post_id", "sender_id", "text", "occurred", "_weight")
    follows = follows.select("follower_id", "followee_id", "_weight")
    delivered = joins.tables(
        changelogs.from_upserts(posts, ["post_id"], **market.state(query, "posts")),
        changelogs.from_upserts(follows, ["follower_id", "followee_id"], **market.state(query, "follows")),
        {"sender_id": "followee_id"},
        **market.state(query, "delivered"),
    )
    newest = changelogs.top_n(
        delivered,
        ["follower_id"],
        ["occurred desc", "post_id desc"],
        TIMELINE_POSTS,
        rank="place",
        output="upsert",
        **market.state(query, "newest"),
    )
    return market.write(newest, query, ["follower_id", "place"])


QUERIES: tuple[Callable[[Market], StreamingQuery], ...] = (
    requests_per_window,
    search_outcomes,
    click_through,
    visitors,
    taxed_orders,
    timelines,
)


def main() -> None:
    parser = argparse.ArgumentParser(description="the demo's pipelines")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--checkpoints", required=True)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--only", nargs="*", choices=[query.__name__ for query in QUERIES], help="some of the queries")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    ended = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: ended.set())
    log = Connection(arguments.bootstrap)
    spark = session("headwater-demo", master=arguments.master)
    market = Market(spark, log, arguments.checkpoints)
    ensure_topics(log, ["market.search_outcomes"])  # what the second stage reads
    _await_topics(log, ended)
    chosen = [query for query in QUERIES if not arguments.only or query.__name__ in arguments.only]
    with reporting(spark, log), ThreadPoolExecutor(STARTED_AT_ONCE) as pool:
        _watch(list(pool.map(lambda query: query(market), chosen)), ended)
    spark.stop()


def _await_topics(log: Connection, ended: threading.Event) -> None:
    """People, devices and the capture start beside this process and make the topics that are read here."""
    deadline = time.monotonic() + TOPICS_DEADLINE_S
    while not all(partitions_of(log, name) for name in READ_TOPICS):
        if ended.wait(WATCH_INTERVAL_S) or time.monotonic() > deadline:
            raise SystemExit(f"there is not each of the topics {', '.join(READ_TOPICS)}: do people and capture run?")


def _watch(running: list[StreamingQuery], ended: threading.Event) -> None:
    while not ended.wait(WATCH_INTERVAL_S):
        for query in running:
            failure = query.exception()
            if failure is not None:
                raise SystemExit(f"query {query.name} failed: {failure}")
    for query in running:
        query.stop()


if __name__ == "__main__":
    main()
