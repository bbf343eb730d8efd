"""Nexmark's q0 to q22 on Spark: plain DataFrame operations where Spark has them, our operators where it has not.

Each query is a function of `Streams` and gives a DataFrame: rows that are never revised, or a changelog (`_weight`).
`bench.nexmark.reference` has the SQL that says what it must give.

Two are not repeatable in Nexmark's definition and are checked for what is: q12 counts by processing time, so only the
bids per bidder are compared; q10 writes files, here its rows are compared.
q6 is the mean of a seller's last ten sales by the time the auction closed, kept up to date.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from bench.nexmark.reference import DAY_PART, LETTERS, RANKS
from headwater.pipeline import aggregates as agg
from headwater.pipeline import changelogs, joins
from headwater.pipeline.time import event_time, processing_time
from headwater.pipeline.windows import hopping, session, tumbling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FLUSH", "QUERIES", "SCHEMAS", "Streams"]

SCHEMAS = {
    "person": "id long, name string, email string, card string, city string, state string, date_time timestamp, "
    "extra string",
    "auction": "id long, item string, description string, initial long, reserve long, date_time timestamp, "
    "expires timestamp, seller long, category long, extra string",
    "bid": "auction long, bidder long, price long, channel string, url string, date_time timestamp, extra string",
}
DELAY = "4 seconds"
FLUSH = -1  # the id of rows that only move time on, at the end of the input: no query's result has them


@dataclass(frozen=True)
class Streams:
    """The three topics as DataFrames, and where a query keeps its state."""

    spark: SparkSession
    topics: dict[str, DataFrame]
    checkpoint: str

    @property
    def person(self) -> DataFrame:
        return self.topics["person"].where(f"id <> {FLUSH}").select(*_columns("person"))

    @property
    def auction(self) -> DataFrame:
        return self.topics["auction"].where(f"id <> {FLUSH}").select(*_columns("auction"))

    @property
    def bid(self) -> DataFrame:
        return self.topics["bid"].where(f"auction <> {FLUSH}").select(*_columns("bid"))

    def timed(self, kind: str) -> DataFrame:
        """The topic with event time; rows that only move time on are in it, in windows of their own."""
        return event_time(self.topics[kind], "date_time", delay=DELAY)

    def state(self, name: str) -> dict[str, Any]:
        return {"checkpoint": self.checkpoint, "name": name}


def _columns(kind: str) -> list[str]:
    return [column.split()[0] for column in SCHEMAS[kind].split(", ")]


def _stateless(*columns: str, where: str = "true") -> Callable[[Streams], DataFrame]:
    return lambda s: s.bid.where(where).selectExpr(*columns)


def q3(s: Streams) -> DataFrame:
    people = s.person.where("state IN ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    sales = s.auction.where("category = 10").selectExpr("id AS auction", "seller")
    return joins.tables(sales, people, {"seller": "id"}, **s.state("q3"))


def _winners(s: Streams, *more: str) -> DataFrame:
    """Every auction with its highest bid so far, the earliest of equal ones."""
    auctions = s.auction.selectExpr("id", "date_time AS opened", "expires", *more)
    bids = s.bid.selectExpr("auction", "bidder", "price", "date_time AS bid_at")
    both = joins.tables(auctions, bids, {"id": "auction"}, **s.state("bids"))
    during = both.where("bid_at BETWEEN opened AND expires")
    return changelogs.top_n(during, ["id"], ["price desc", "bid_at"], 1, **s.state("winners"))


def q4(s: Streams) -> DataFrame:
    return changelogs.aggregate(_winners(s, "category"), ["category"], {"price": agg.mean("price")}, **s.state("q4"))


def q5(s: Streams) -> DataFrame:
    def counted(name: str) -> DataFrame:
        return hopping(
            s.timed("bid"), "10 seconds", "2 seconds", key=["auction"], aggregates={"n": agg.count()}, **s.state(name)
        )

    window = ["window_start", "window_end"]
    most = changelogs.aggregate(counted("most"), window, {"n": agg.max("n")}, **s.state("q5max"))
    best = most.selectExpr("window_start AS start", "n AS most", "_weight")
    hot = joins.tables(counted("counts"), best, {"window_start": "start", "n": "most"}, **s.state("q5"))
    return hot.select("auction", "n", "window_start", "_weight")


def q6(s: Streams) -> DataFrame:
    sales = changelogs.top_n(_winners(s, "seller"), ["seller"], ["expires desc", "id desc"], 10, **s.state("last"))
    return changelogs.aggregate(sales, ["seller"], {"price": agg.mean("price")}, **s.state("q6"))


def q7(s: Streams) -> DataFrame:
    most = tumbling(s.timed("bid"), "10 seconds", aggregates={"most": agg.max("price")}, **s.state("q7max"))
    ended = event_time(most, "window_end")
    met = joins.interval(
        ended, s.timed("bid"), {"most": "price"}, lower="-10 seconds", upper="-1 microsecond", **s.state("q7")
    )
    return met.selectExpr("auction", "bidder", "most AS price", "date_time")


def q8(s: Streams) -> DataFrame:
    people = tumbling(
        s.timed("person"), "10 seconds", key=["id", "name"], aggregates={"n": agg.count()}, **s.state("p")
    )
    sellers = tumbling(s.timed("auction"), "10 seconds", key=["seller"], aggregates={"m": agg.count()}, **s.state("a"))
    came = event_time(people.selectExpr("id", "name", "window_start AS start"), "start")
    sold = event_time(sellers.select("seller", "window_start"), "window_start")
    met = joins.interval(came, sold, {"id": "seller"}, lower=0, upper=0, **s.state("q8"))
    return met.select("id", "name", "start")


def q9(s: Streams) -> DataFrame:
    return _winners(s, "seller", "category").select("id", "seller", "category", "bidder", "price", "bid_at", "_weight")


def q11(s: Streams) -> DataFrame:
    return session(s.timed("bid"), "10 seconds", key=["bidder"], aggregates={"n": agg.count()}, **s.state("q11"))


def q12(s: Streams) -> DataFrame:
    return tumbling(
        processing_time(s.bid, ticks=False),
        "10 seconds",
        key=["bidder"],
        aggregates={"n": agg.count()},
        emit="change",
        output="changelog",
        **s.state("q12"),
    )


def q13(s: Streams) -> DataFrame:
    side = s.spark.range(1_000).selectExpr("id AS k", "concat('side ', id) AS value")
    return s.bid.join(F.broadcast(side), F.expr("auction % 1000 = k")).select("auction", "bidder", "price", "value")


def _stats(s: Streams, key: list[str], name: str) -> DataFrame:
    """q15 and q16: bids, bidders and auctions per day, of all prices and of three ranges of them."""
    columns = ["date_format(date_time, 'yyyy-MM-dd') AS day", "channel", "bidder", "auction", "date_time"]
    for rank, condition in RANKS.items():
        columns += [f"CASE WHEN {condition} THEN {c} END AS {rank}_{c}" for c in ("bidder", "auction")]
    named: dict[str, Any] = {"bids": agg.count()}
    named |= {f"{rank}_bids": agg.count(f"{rank}_bidder") for rank in RANKS}
    for what in ("bidder", "auction"):
        named |= {f"{p}{what}s": agg.count_distinct(f"{p}{what}") for p in ("", *(f"{rank}_" for rank in RANKS))}
    rows = s.bid.selectExpr(*columns)
    return agg.running(rows, key, named, output="changelog", **s.state(name))


def q17(s: Streams) -> DataFrame:
    columns = [f"CASE WHEN {condition} THEN 1 END AS {rank}" for rank, condition in RANKS.items()]
    rows = s.bid.selectExpr("auction", "price", "date_format(date_time, 'yyyy-MM-dd') AS day", *columns)
    named: dict[str, Any] = {"bids": agg.count(), **{f"{rank}_bids": agg.count(rank) for rank in RANKS}}
    named |= {f: getattr(agg, f)("price") for f in ("min", "max", "mean", "sum")}
    return agg.running(rows, ["auction", "day"], named, output="changelog", **s.state("q17"))


def q18(s: Streams) -> DataFrame:
    rows = s.bid.select("auction", "bidder", "price", "date_time")
    return changelogs.top_n(rows, ["bidder", "auction"], ["date_time desc"], 1, **s.state("q18"))


def q19(s: Streams) -> DataFrame:
    rows = s.bid.select("auction", "bidder", "price", "date_time")
    return changelogs.top_n(
        rows, ["auction"], ["price desc", "date_time", "bidder"], 10, rank="place", **s.state("q19")
    )


def q20(s: Streams) -> DataFrame:
    auctions = s.auction.where("category = 10").selectExpr("id", "item", "initial", "seller", "expires")
    bids = s.bid.select("auction", "bidder", "price", "date_time")
    return joins.tables(bids, auctions, {"auction": "id"}, **s.state("q20"))


_CHANNEL_ID = (
    "CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1' "
    "WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3' "
    "ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END"
)
_MINUTE = "date_time, 'yyyy-MM-dd HH:mm'"

QUERIES: dict[str, Callable[[Streams], DataFrame]] = {
    "q0": _stateless("auction", "bidder", "price", "date_time", "extra"),
    "q1": _stateless("auction", "bidder", "price * 908 AS thousandths", "date_time", "extra"),
    "q2": _stateless("auction", "price", where="auction % 123 = 0"),
    "q3": q3,
    "q4": q4,
    "q5": q5,
    "q6": q6,
    "q7": q7,
    "q8": q8,
    "q9": q9,
    "q10": _stateless("auction", "bidder", "price", "date_time", f"date_format({_MINUTE}) AS folder"),
    "q11": q11,
    "q12": q12,
    "q13": q13,
    "q14": _stateless(
        "auction", "price", f"{DAY_PART} AS part", f"{LETTERS} AS cs", where="price BETWEEN 1100000 AND 55000000"
    ),
    "q15": lambda s: _stats(s, ["day"], "q15"),
    "q16": lambda s: _stats(s, ["channel", "day"], "q16"),
    "q17": q17,
    "q18": q18,
    "q19": q19,
    "q20": q20,
    "q21": _stateless("auction", "channel", f"{_CHANNEL_ID} AS channel_id", where=f"{_CHANNEL_ID} <> ''"),
    "q22": _stateless("auction", "channel", *(f"split(url, '/')[{i + 2}] AS dir{i}" for i in (1, 2, 3))),
}
