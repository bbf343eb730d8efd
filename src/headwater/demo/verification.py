"""The demo verifies itself: every view against a recomputation from the log, by code that shares nothing with it.

The log's topics are read from their first record to their end; plain Python computes what each view must hold. Windows
and unclicked searches that are still open are left out on both sides: nobody has claimed anything about them yet.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition

from headwater.client import Connection, partitions_of, watermarks
from headwater.demo.pipelines import TIMELINE_POSTS
from headwater.views import View

__all__ = ["CHECKS", "Check", "Topics", "differences"]

READ_TIMEOUT_S = 30.0
WINDOW_MS, CLICK_WINDOW_MS, CLICK_WITHIN_MS = 10_000, 30_000, 30_000
_ABSENT = "nothing"

Row = dict[str, Any]
Table = dict[Any, Any]  # key -> what is compared


@dataclass(frozen=True, slots=True)
class Record:
    """A record as the recomputation needs it."""

    key: Any
    value: Any
    timestamp_ms: int


class Topics:
    """The log's content, read once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read: dict[str, list[Record]] = {}

    def __getitem__(self, topic: str) -> list[Record]:
        """All records, in the order of their times (and of their offsets within a partition)."""
        if topic not in self._read:
            self._read[topic] = sorted(self._records(topic), key=lambda record: record.timestamp_ms)
        return self._read[topic]

    def table(self, topic: str) -> Table:
        """The last value of every key."""
        rows = {record.key: record.value for record in self[topic]}
        return {key: value for key, value in rows.items() if value is not None}

    def _records(self, topic: str) -> Iterator[Record]:
        consumer = self._connection.consumer("headwater.demo.verification", enable_partition_eof=True)
        try:
            starts = partitions_of(self._connection, topic)
            open_ = {p for p in starts if watermarks(consumer, topic, p)[1] > 0}
            consumer.assign([TopicPartition(topic, p, 0) for p in open_])
            while open_:
                message = consumer.poll(READ_TIMEOUT_S)
                if message is None:
                    raise TimeoutError(f"the log gave no record of {topic} for {READ_TIMEOUT_S} s")
                if message.error() is not None:
                    open_.discard(int(message.partition() or 0))
                    continue
                yield Record(_decoded(message.key()), _json(message.value()), message.timestamp()[1])
        finally:
            consumer.close()


def _json(content: Any) -> Any:
    return None if content is None else json.loads(content)


def _decoded(key: Any) -> str:
    return key.decode() if isinstance(key, bytes) else ""


def captured(topics: Topics, table: str) -> Iterator[Row]:
    """The rows of a captured table, as its last change events leave them."""
    for envelope in topics.table(f"shop.public.{table}").values():
        if envelope.get("after") is not None:
            yield envelope["after"]


def requests(topics: Topics) -> Table:
    """Requests per ten seconds, by the time at which they happened."""
    counts: Table = defaultdict(int)
    for record in topics["market.requests"]:
        occurred = record.value["occurred"] + record.timestamp_ms - record.value["sent"]
        counts[_instant(occurred // WINDOW_MS * WINDOW_MS)] += 1
    return counts


def outcomes(topics: Topics) -> Table:
    """Searches with their clicks within half a minute; None for one that was not clicked."""
    clicks = defaultdict(list)
    for record in topics["market.clicks"]:
        clicks[record.value["search_id"]].append(record.value)
    found: Table = {}
    for record in topics["market.searches"]:
        search = record.value
        near = [c for c in clicks[search["search_id"]] if 0 <= c["occurred"] - search["occurred"] <= CLICK_WITHIN_MS]
        found[search["search_id"]] = near[0]["click_id"] if near else None
    return found


def click_through(topics: Topics) -> Table:
    counts: Table = defaultdict(lambda: (0, 0))
    for row in topics.table("market.search_outcomes").values():
        start = _instant(_ms(row["searched"]) // CLICK_WINDOW_MS * CLICK_WINDOW_MS)
        searches, clicks = counts[start]
        counts[start] = (searches + 1, clicks + (row["click_id"] is not None))
    return counts


def sales(topics: Topics) -> Table:
    """The tax of every order, by the newest rate of its region at the time of the sale."""
    rates = defaultdict(list)
    for record in topics["market.taxes"]:
        tax = record.value
        rates[tax["region"]].append((tax["valid_from"], tax["version"], tax["rate"]))
    taxes: Table = {}
    for envelope in (record.value for record in topics["shop.public.orders"] if record.value is not None):
        if envelope["op"] not in ("c", "r"):
            continue
        order = envelope["after"]
        known = sorted(rate for rate in rates[order["region"]] if rate[0] <= order["sold_at"])
        taxes[order["order_id"]] = _rounded(order["amount_cents"] * known[-1][2]) if known else None
    return taxes


def visitors(topics: Topics) -> Table:
    """The region of every click's user at the time of the click."""
    profiles = defaultdict(list)
    for record in topics["shop.public.profiles"]:
        if record.value is not None and record.value["after"] is not None:
            after = record.value["after"]
            profiles[after["user_id"]].append((record.timestamp_ms, after["region"]))
    regions: Table = {}
    for record in topics["market.clicks"]:
        click = record.value
        known = [region for at, region in profiles[click["user_id"]] if at <= click["occurred"]]
        regions[click["click_id"]] = known[-1] if known else None
    return regions


def timelines(topics: Topics) -> Table:
    """SELECT follower, posts ORDER BY time DESC LIMIT 10, over the posts and follows there are."""
    by_sender = defaultdict(list)
    for post in topics.table("market.posts").values():
        by_sender[post["sender_id"]].append((post["occurred"], post["post_id"]))
    seen: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for follow in topics.table("market.follows").values():
        seen[follow["follower_id"]] += by_sender[follow["followee_id"]]
    places: Table = {}
    for follower, posts in seen.items():
        for place, (_, post) in enumerate(sorted(posts, reverse=True)[:TIMELINE_POSTS], start=1):
            places[follower, place] = post
    return places


@dataclass(frozen=True, slots=True)
class Check:
    """A view, what it must hold, and what of its rows is compared."""

    view: str
    expected: Callable[[Topics], Table]
    key: str | tuple[str, ...]
    value: str | tuple[str, ...]
    whole: bool = True  # whether everything expected must be there; windows and searches may still be open


CHECKS = (
    Check("catalogue", lambda topics: _column(topics, "items", "item_id", "price_cents"), "item_id", "price_cents"),
    Check("profiles", lambda topics: _column(topics, "profiles", "user_id", "region"), "user_id", "region"),
    Check("orders", lambda topics: _column(topics, "orders", "order_id", "status"), "order_id", "status"),
    Check("sales", sales, "order_id", "tax_cents"),
    Check("requests", requests, "window_start", "requests", whole=False),
    Check("outcomes", outcomes, "search_id", "click_id", whole=False),
    Check("visitors", visitors, "click_id", "region", whole=False),
    Check("click_through", click_through, "window_start", ("searches", "clicks")),
    Check("timelines", timelines, ("follower_id", "place"), "post_id"),
)


def _column(topics: Topics, table: str, key: str, value: str) -> Table:
    return {row[key]: row[value] for row in captured(topics, table)}


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _ms(text: str) -> int:
    return (datetime.fromisoformat(text) - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def _rounded(amount: float) -> int:
    """Half up, as SQL rounds."""
    return int(amount + 0.5)


def differences(check: Check, topics: Topics, views: Path, connection: Connection) -> list[str]:
    """What the view has and should not have, or the other way round; empty when it is right."""
    expected = check.expected(topics)
    with View.open(check.view, bootstrap=connection, file=views) as view, view.read() as answer:
        actual = {_picked(row, check.key): _picked(row, check.value) for row in answer.scan()}
    keys = actual.keys() | expected.keys() if check.whole else actual.keys()
    wrong = [key for key in keys if actual.get(key, _ABSENT) != expected.get(key, _ABSENT)]
    return [
        f"{key}: {actual.get(key, _ABSENT)}, but the log says {expected.get(key, _ABSENT)}"
        for key in sorted(wrong, key=str)
    ]


def _picked(row: Mapping[str, Any], columns: str | tuple[str, ...]) -> Any:
    """One column's value or several; times as instants, whatever form the store gives them in."""
    if isinstance(columns, tuple):
        return tuple(_picked(row, column) for column in columns)
    value = row[columns]
    return datetime.fromisoformat(value) if isinstance(value, str) and columns.startswith("window_") else value
