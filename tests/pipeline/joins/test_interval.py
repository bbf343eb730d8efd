"""Searches and clicks: whichever comes first, late, or never."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from headwater.pipeline import joins
from headwater.pipeline.errors import DefinitionError
from headwater.pipeline.time import event_time
from headwater.testing.streams import Stream, StreamTest

START = datetime(2026, 1, 1, tzinfo=UTC)


def searches_and_clicks(**words: Any) -> tuple[StreamTest, Stream, Stream, Stream]:
    test = StreamTest()
    searches = test.stream("searched timestamp, session string, words string")
    clicks = test.stream("clicked timestamp, session string, url string")
    joined = joins.interval(
        event_time(searches, "searched", delay="1 minute"),
        event_time(clicks, "clicked", delay="1 minute"),
        ["session"],
        lower="0 seconds",
        upper="1 hour",
        how="left",
        **words,
    )
    return test, searches, clicks, joined


def test_a_search_meets_the_clicks_of_its_session_within_an_hour() -> None:
    test, searches, clicks, joined = searches_and_clicks()
    test.feed(searches, [{"searched": "10:00", "session": "a", "words": "flats"}])
    test.feed(
        clicks,
        """
        clicked | session | url
        10:10   | a       | /1
        10:59   | a       | /2
        11:01   | a       | /too-late
        10:10   | b       | /another-session
        """,
    )
    joined.assert_new("""
        session | words | url | _time
        a       | flats | /1  | 10:10
        a       | flats | /2  | 10:59
    """)
    joined.assert_same_in_every_replay()


def test_the_click_may_come_before_the_search() -> None:
    test, searches, clicks, joined = searches_and_clicks()
    test.feed(clicks, [{"clicked": "10:10", "session": "a", "url": "/1"}])
    joined.assert_new("session | url")
    test.feed(searches, [{"searched": "10:05", "session": "a", "words": "flats"}])
    joined.assert_new("""
        session | words | url
        a       | flats | /1
    """)


def test_a_search_without_a_click_is_not_clicked_when_its_hour_is_over() -> None:
    test, searches, clicks, joined = searches_and_clicks()
    test.feed(searches, [{"searched": "10:00", "session": "a", "words": "flats"}])
    test.feed(clicks, [{"clicked": "11:00", "session": "b", "url": "/1"}])
    joined.assert_new("session | url")
    test.feed(searches, [{"searched": "11:05", "session": "b", "words": "houses"}])
    test.feed(clicks, [{"clicked": "11:05", "session": "c", "url": "/1"}])
    joined.assert_new("""
        session | words | url  | _time
        a       | flats | null | 10:00
    """)


def test_a_click_that_comes_too_late_is_left_out_and_counted_or_given_out_on_the_side() -> None:
    test, searches, clicks, joined = searches_and_clicks(late="side")
    test.feed(searches, [{"searched": "10:00", "session": "a", "words": "flats"}])
    test.feed(clicks, [{"clicked": "12:00", "session": "b", "url": "/1"}])
    test.feed(clicks, [{"clicked": "10:30", "session": "a", "url": "/late"}])
    joined.assert_rows("""
        session | words | url   | _late
        a       | null  | /late | true
    """)


def test_a_late_click_corrects_what_was_said() -> None:
    test, searches, clicks, joined = searches_and_clicks(late="correct", keep_closed="2 hours", output="changelog")
    test.feed(searches, [{"searched": "10:00", "session": "a", "words": "flats"}])
    test.feed(searches, [{"searched": "12:00", "session": "b", "words": "houses"}])
    test.feed(clicks, [{"clicked": "12:00", "session": "c", "url": "/1"}])
    joined.assert_new("""
        session | words | url  | _weight
        a       | flats | null | 1
    """)
    test.feed(clicks, [{"clicked": "10:30", "session": "a", "url": "/late"}])
    joined.assert_new("""
        session | words | url   | _weight
        a       | flats | null  | -1
        a       | flats | /late | 1
    """)


def test_an_input_that_has_not_spoken_yet_holds_time_back() -> None:
    test, searches, clicks, joined = searches_and_clicks()
    test.feed(searches, [{"searched": "10:00", "session": "a", "words": "flats"}])
    test.feed(searches, [{"searched": "15:00", "session": "b", "words": "houses"}])
    joined.assert_new("session | words | url")
    test.feed(clicks, [{"clicked": "10:30", "session": "a", "url": "/1"}])
    joined.assert_new("session | words | url\na | flats | /1")


def test_what_expired_leaves_no_state_behind() -> None:
    test, searches, clicks, joined = searches_and_clicks(late="correct", keep_closed="1 hour", output="changelog")
    for hour in range(10, 16):
        test.feed(searches, [{"searched": f"{hour}:00", "session": "a", "words": "flats"}])
        test.feed(clicks, [{"clicked": f"{hour}:10", "session": "a", "url": "/1"}])
        assert len(joined.state("left")) <= 3
        assert len(joined.state("right")) <= 3
        assert len(joined.state("due")) == len(joined.state("left")) + len(joined.state("right"))


def test_a_stream_meets_itself() -> None:
    test = StreamTest()
    payments = test.stream("at timestamp, card string, place string")
    left = event_time(payments, "at")
    other = test.stream("at2 timestamp, card string, other string")
    joined = joins.interval(left, event_time(other, "at2"), ["card"], lower="1 second", upper="10 minutes")
    for at, place in (("10:00", "Ulm"), ("10:05", "Rome"), ("10:30", "Bonn")):
        with test.batch():
            test.feed(payments, [{"at": at, "card": "1", "place": place}])
            test.feed(other, [{"at2": at, "card": "1", "other": place}])
    joined.assert_table("""
        card | place | other
        1    | Ulm   | Rome
    """)


def test_emitted_at_close_the_rows_and_their_order_are_the_same_whatever_the_interleaving() -> None:
    found = set()
    for seed in range(4):
        test, joined = _random_test(Random(7), "full", "close", None, partitions=1)
        for replay in joined.replays(3, seed=seed):
            found.add(repr([sorted(row.items()) for row in replay.rows]))
        found.add(repr([sorted(row.items()) for row in joined.rows()]))
        assert len(test.script) > 1
    assert len(found) == 1


@pytest.mark.parametrize("keep", [None, "40 seconds"])
@pytest.mark.parametrize("emit", ["change", "close"])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_any_rows_in_any_batches_give_the_pairs_and_the_lonely_ones(how: str, emit: str, keep: str | None) -> None:
    test, joined = _random_test(Random(f"{how}{emit}{keep}"), how, emit, keep)
    found: Counter[tuple[Any, ...]] = Counter()
    for row in joined.rows():
        if row["k"] is None or row["k"] >= 0:
            found[row["k"], row["q"], row["u"]] += row.get("_weight", 1)
    assert {row: n for row, n in found.items() if n} == dict(_expected(test, how, 40 if keep else 0))
    joined.assert_same_in_every_replay(2)


def _random_test(
    random: Random, how: str, emit: str, keep: str | None, partitions: int = 2
) -> tuple[StreamTest, Stream]:
    test = StreamTest(partitions=partitions)
    lefts = test.stream("at timestamp, k long, q long, who string")
    rights = test.stream("at2 timestamp, k long, u long, who2 string")
    joined = joins.interval(
        event_time(lefts, "at", delay="5 seconds", producer="who", expect=["a", "b"]),
        event_time(rights, "at2", delay="5 seconds", producer="who2", expect=["a", "b"]),
        ["k"],
        lower="-3 seconds",
        upper="8 seconds",
        how=how,
        emit=emit,
        output="append" if keep is None else "changelog",
        late="drop" if keep is None else "correct",
        keep_closed=keep,
    )
    now = 0
    for _ in range(12):
        with test.batch():
            for _ in range(random.randrange(6)):
                now += random.randrange(4)
                at, k = START + timedelta(seconds=now - random.randrange(12)), random.choice([None, 1, 2])
                who, value = random.choice("ab"), random.randrange(3)
                if random.random() < 0.5:
                    test.feed(lefts, [{"at": at, "k": k, "q": value, "who": who}])
                else:
                    test.feed(rights, [{"at2": at, "k": k, "u": value, "who2": who}])
    with test.batch():  # everything expires
        for who in "ab":
            test.feed(lefts, [{"at": START + timedelta(seconds=9_999), "k": -1, "q": 0, "who": who}])
            test.feed(rights, [{"at2": START + timedelta(seconds=99_999), "k": -2, "u": 0, "who2": who}])
    return test, joined


def _expected(test: StreamTest, how: str, kept: int) -> Counter[tuple[Any, ...]]:
    """What the definition says of the rows that were not too late for their own producer."""
    taken: dict[bool, list[tuple[int, Any, int]]] = {True: [], False: []}
    lows: dict[tuple[bool, str], int] = {}
    for step in (step for batch in test.script for step in batch.steps):
        row = step.row  # type: ignore[union-attr]
        left = "at" in row
        at = int((row["at" if left else "at2"] - START).total_seconds())
        lane = (left, row["who" if left else "who2"])
        low = lows.get(lane, -9_999)
        if at >= low - kept and row["k"] not in (-1, -2):
            taken[left].append((at, row["k"], row["q" if left else "u"]))
        lows[lane] = max(low, at - 5)
    result: Counter[tuple[Any, ...]] = Counter()
    for side, kept_by in ((True, ("left", "full")), (False, ("right", "full"))):
        for at, k, value in taken[side]:
            met = [
                other
                for then, other_k, other in taken[not side]
                if k is not None and k == other_k and -3 <= (then - at if side else at - then) <= 8
            ]
            if side:
                result.update((k, value, other) for other in met)
            if not met and how in kept_by:
                result[(k, value, None) if side else (k, None, value)] += 1
    return result


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"on": ["nobody"]}, "nobody"),
        ({"on": []}, "names no column"),
        ({"on": "session"}, "give a list"),
        ({"lower": "2 hours"}, "must not be the later one"),
        ({"upper": "soon"}, "write it like"),
        ({"how": "outer"}, "say 'inner'"),
        ({"emit": "now"}, "say 'change' or 'close'"),
        ({"output": "upsert"}, "to_upserts"),
        ({"late": "correct"}, "keep_closed"),
        ({"late": "correct", "keep_closed": "1 hour", "how": "left"}, "'append' never revises"),
    ],
)
def test_mistakes_are_named_while_the_join_is_written_down(words: dict[str, Any], message: str) -> None:
    test = StreamTest()
    left = event_time(test.stream("at timestamp, session string, words string"), "at")
    right = event_time(test.stream("at2 timestamp, session string, url string"), "at2")
    given = {"on": ["session"], "lower": "0 seconds", "upper": "1 hour", **words}
    with pytest.raises(DefinitionError, match=message):
        joins.interval(left, right, **given)


def test_inputs_without_time_with_weights_or_with_equal_columns_are_refused() -> None:
    test = StreamTest()
    plain = test.stream("at timestamp, session string")
    timed = event_time(plain, "at")
    weighted = event_time(test.stream("at2 timestamp, session string, _weight int"), "at2")
    with pytest.raises(DefinitionError, match="event_time"):
        joins.interval(timed, test.stream("session string"), ["session"], lower=0, upper=1)
    with pytest.raises(DefinitionError, match="changelog"):
        joins.interval(timed, weighted, ["session"], lower=0, upper=1)
    with pytest.raises(DefinitionError, match="both sides have the column 'at'"):
        joins.interval(timed, event_time(plain, "at"), ["session"], lower=0, upper=1)
