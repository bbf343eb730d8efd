"""A recorded two-hour history, processed again in other batches and interleavings: the same bytes come out."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from headwater.pipeline import changelogs, joins
from headwater.pipeline.time import event_time
from headwater.testing.streams import Stream, StreamTest

START = datetime(2026, 1, 1, tzinfo=UTC)
PRODUCERS = ("phone", "desk", "till")
HOURS = 2
REPLAYS = 10


class History:
    """Two hours of searches, clicks, sales and tax rates, out of order by up to a minute, from three producers."""

    def __init__(self, events: int, seed: int) -> None:
        self.test = StreamTest(partitions=1)
        self.streams = {
            "searched": self.test.stream("searched timestamp, session long, words long, search_from string"),
            "clicked": self.test.stream("clicked timestamp, session long, url long, click_from string"),
            "sold": self.test.stream("sold timestamp, country long, net long, sale_from string"),
            "since": self.test.stream("since timestamp, country long, rate long, rate_from string"),
        }
        random = Random(seed)
        for number in range(0, events, 20):
            with self.test.batch():
                for event in range(number, number + 20):
                    self._feed(random, HOURS * 3600 * event / events)
        with self.test.batch():  # an hour later everything is over
            for column in self.streams:
                for producer in PRODUCERS:
                    self._row(column, START + timedelta(hours=HOURS + 2), (-1, 0, producer))

    def _feed(self, random: Random, second: float) -> None:
        column = random.choice(["searched", "clicked", "clicked", "sold", "sold", "since"])
        at = START + timedelta(seconds=int(second) - random.randrange(60))
        key = random.randrange(4 if column in ("sold", "since") else 40)
        self._row(column, at, (key, random.randrange(1_000), random.choice(PRODUCERS)))

    def _row(self, column: str, at: datetime, rest: tuple[int, int, str]) -> None:
        stream = self.streams[column]
        self.test.feed(stream, [dict(zip(stream.schema.names, (at, *rest), strict=True))])

    def timed(self, column: str) -> Stream:
        stream = self.streams[column]
        return event_time(stream, column, delay="90 seconds", producer=stream.schema.names[-1], expect=PRODUCERS)

    def queries(self) -> dict[str, Stream]:
        searches, clicks, sales, rates = (self.timed(column) for column in self.streams)
        hour: dict[str, Any] = {"lower": "-5 minutes", "upper": "1 hour"}
        return {
            "interval": joins.interval(searches, clicks, ["session"], how="full", emit="close", **hour),
            "as_of": joins.as_of(sales, rates, ["country"], how="left", version="rate_id"),
            "stream_table": joins.stream_table(sales, rates, ["country"]),
        }


def digest(rows: list[dict[str, Any]]) -> str:
    """Of the rows as they came out, in their order."""
    return hashlib.sha256(repr([list(row.items()) for row in rows]).encode()).hexdigest()


def check(events: int, replays: int) -> None:
    history = History(events, seed=5)
    for name, stream in history.queries().items():
        rows = stream.rows()
        assert len(rows) > events // 20, name
        found = {digest(replay.rows) for replay in stream.replays(replays, seed=9)}
        assert found == {digest(rows)}, name


def test_a_recorded_history_in_other_interleavings_gives_the_same_bytes() -> None:
    check(events=200, replays=2)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_two_hours_of_history_in_ten_shuffled_interleavings_give_the_same_bytes() -> None:
    check(events=4_000, replays=REPLAYS)


def test_what_changelogs_add_up_to_is_the_same_in_every_interleaving() -> None:
    history = History(200, seed=6)
    rates = history.streams["since"]
    best = changelogs.top_n(history.streams["sold"], ["country"], ["net desc"], 3, rank="place")
    best.assert_same_in_every_replay(2)
    changelogs.versions(rates, ["country"], "since").assert_same_in_every_replay(2)
