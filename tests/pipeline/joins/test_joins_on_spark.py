"""The same queries on real Spark give what they give without: routing, unions of inputs and state are Spark's there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from headwater.pipeline import changelogs, joins
from headwater.pipeline.time import event_time
from headwater.testing.streams import Stream, StreamTest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)


def timeline(test: StreamTest) -> Stream:
    posts = test.stream("at long, sender long, text string, _weight int", name="posts")
    follows = test.stream("follower long, followee long, _weight int", name="follows")
    random = Random(4)
    there: list[tuple[Stream, dict[str, Any]]] = []
    for _ in range(3):
        with test.batch():
            for number in range(12):
                if there and random.random() < 0.3:
                    stream, row = there.pop(random.randrange(len(there)))
                    test.feed(stream, [{**row, "_weight": -1}])
                    continue
                post = {"at": random.randrange(99), "sender": random.randrange(3), "text": f"text {number}"}
                follow = {"follower": random.randrange(3), "followee": random.randrange(3)}
                stream, row = random.choice([(posts, post), (follows, follow)])
                there.append((stream, row))
                test.feed(stream, [{**row, "_weight": 1}])
    delivered = joins.tables(posts, follows, {"sender": "followee"}, how="left")
    return changelogs.top_n(delivered, ["follower"], ["at desc", "text desc"], 3, rank="place")


def sessions(test: StreamTest) -> Stream:
    searches = test.stream("searched timestamp, session string, words long", name="searches")
    clicks = test.stream("clicked timestamp, session string, url long", name="clicks")
    for batch in range(3):
        with test.batch():
            for second in range(8):
                at = START + timedelta(seconds=10 * batch + second)
                test.feed(searches, [{"searched": at, "session": f"s{second % 3}", "words": second}])
                test.feed(clicks, [{"clicked": at, "session": f"s{second % 4}", "url": second}])
    left, right = event_time(searches, "searched"), event_time(clicks, "clicked")
    return joins.interval(left, right, ["session"], lower="-1 second", upper="2 seconds", how="full")


@pytest.mark.parametrize("query", [timeline, sessions])
def test_on_spark_it_gives_the_same(query: Any, spark: SparkSession) -> None:
    here, there = query(StreamTest()), query(StreamTest(spark=spark))
    assert here.table()
    assert sorted(map(repr, there.table())) == sorted(map(repr, here.table()))
