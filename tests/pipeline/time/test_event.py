"""Event time per producer: low watermarks, stragglers, producers that join, leave, pause and return."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.pipeline.errors import BadOption, DefinitionError, UnknownColumn, WrongType
from headwater.pipeline.stateful import stateful
from headwater.pipeline.time import event_time, processing_time
from headwater.testing.streams import Stream, StreamTest

from .observers import Lateness, Lows

ROWS = "at timestamp, id long, who string, until timestamp"


def timed(test: StreamTest, **options: Any) -> Stream:
    return event_time(test.stream(ROWS), "at", **{"delay": "10 seconds", "producer": "who", **options})


def lows(stream: Stream) -> Stream:
    return stateful(stream, Lows(), partitions=1)


def low(watched: Stream) -> str:
    """The newest low watermark."""
    rows = watched.rows()
    return rows[-1]["low"] if rows else "never"


def say(test: StreamTest, stream: Stream, who: str, *at: str) -> None:
    test.feed(stream, [{"at": one, "id": 1, "who": who} for one in at])


def test_the_low_watermark_is_the_least_of_all_producers() -> None:
    test = StreamTest()
    stream = timed(test)
    watched = lows(stream)
    say(test, stream, "a", "10:00:30")
    assert low(watched) == "10:00:20"
    say(test, stream, "b", "10:00:40")
    say(test, stream, "a", "10:00:35")
    assert low(watched) == "10:00:25"


def test_a_fast_clock_makes_nobody_elses_rows_late_and_closes_nothing() -> None:
    test = StreamTest()
    stream = timed(test)
    watched, late = lows(stream), stateful(stream, Lateness())
    say(test, stream, "a", "10:00:30")
    say(test, stream, "fast", "23:59:00")
    say(test, stream, "a", "10:00:31", "10:00:32")
    assert low(watched) == "10:00:22"
    assert not any(row["late"] for row in late.rows())


def test_a_straggler_is_late_by_its_own_producers_word_only() -> None:
    test = StreamTest()
    stream = timed(test)
    late = stateful(stream, Lateness())
    test.feed(
        stream,
        """
        at       | id | who
        10:01:00 | 1  | a
        10:00:20 | 2  | b
        10:00:49 | 3  | a
        10:00:50 | 4  | a
        10:00:11 | 5  | b
        """,
    )
    late.assert_rows(
        """
        id | late
        1  | false
        2  | false
        3  | true
        4  | false
        5  | false
        """
    )
    late.assert_same_in_every_replay(rows=True)


def test_a_producer_may_say_that_nothing_earlier_will_follow() -> None:
    test = StreamTest()
    stream = timed(test, no_before="until")
    watched, late = lows(stream), stateful(stream, Lateness())
    say(test, stream, "a", "10:00:30")
    test.no_before(stream, "10:05:00", who="a")
    assert low(watched) == "10:05:00"
    test.feed(stream, [{"at": "10:04:59", "id": 7, "who": "a"}])
    assert late.rows()[-1] == {"id": 7, "late": True}
    assert len(late.rows()) == 2  # the message itself is no row


def test_a_producer_that_says_good_bye_is_not_waited_for() -> None:
    test = StreamTest()
    stream = timed(test, no_before="until")
    watched = lows(stream)
    say(test, stream, "a", "10:00:30")
    say(test, stream, "b", "10:10:00")
    assert low(watched) == "10:00:20"
    test.no_before(stream, "9999-01-01T00:00:00", who="a")
    assert low(watched) == "10:09:50"


def test_producers_that_are_expected_hold_time_back_before_they_have_spoken() -> None:
    test = StreamTest()
    stream = timed(test, expect=["a", "b"])
    watched = lows(stream)
    say(test, stream, "a", "10:00:30")
    assert low(watched) == "never"
    say(test, stream, "b", "10:00:15")
    assert low(watched) == "10:00:05"


def test_a_silent_producer_is_given_up_after_a_while_and_counts_again_when_it_returns() -> None:
    test = StreamTest()
    stream = timed(test, idle_after="30 seconds", ticks=True)
    watched = lows(stream)
    test.tick("10:00:00")
    say(test, stream, "a", "10:00:00")
    say(test, stream, "b", "10:00:00")
    for second in ("10", "20", "30", "40"):
        test.tick(f"10:00:{second}")
        say(test, stream, "b", f"10:00:{second}")
    assert low(watched) == "10:00:30"  # a is idle since 10:00:30 of running time
    say(test, stream, "a", "10:00:38")
    test.tick("10:01:00")
    say(test, stream, "b", "10:00:59")
    assert low(watched) == "10:00:30"  # a is back and is waited for: 10:00:28, but time never goes back
    say(test, stream, "a", "10:00:52")
    assert low(watched) == "10:00:42"


def test_a_pause_of_the_query_makes_nobody_idle() -> None:
    test = StreamTest()
    stream = timed(test, idle_after="30 seconds", ticks=True)
    watched = lows(stream)
    test.tick("10:00:00")
    say(test, stream, "a", "10:00:00")
    say(test, stream, "b", "10:00:00")
    test.tick("14:00:00")  # it was down for four hours; the backlog comes now
    say(test, stream, "b", "13:00:00")
    assert low(watched) == "09:59:50"


def test_when_all_are_silent_time_goes_on_by_the_ticks() -> None:
    test = StreamTest()
    stream = timed(test, idle_after="30 seconds", ticks=True)
    watched = lows(stream)
    test.tick("10:00:00")
    say(test, stream, "a", "10:00:00")
    for minute in range(1, 6):
        test.tick(f"10:{minute:02}:00")
    assert low(watched) == "10:04:20"  # the tick, less the delay and the patience with the idle


def test_a_clock_that_is_ahead_of_the_ticks_does_not_carry_time_with_it() -> None:
    test = StreamTest()
    stream = timed(test, ticks=True)
    watched = lows(stream)
    test.tick("10:00:00")
    say(test, stream, "only", "18:00:00")
    assert low(watched) == "09:59:50"


def test_processing_time_is_never_late_and_follows_the_ticks() -> None:
    test = StreamTest()
    stream = processing_time(test.stream(ROWS))
    watched, late = lows(stream), stateful(stream, Lateness())
    test.tick("10:00:00")
    say(test, stream, "a", "09:00:00")
    test.tick("10:00:30")
    say(test, stream, "a", "08:00:00")
    assert low(watched) == "10:00:30"
    assert [row["late"] for row in late.rows()] == [False, False]


PRODUCERS = st.sampled_from(["a", "b", "c"])
SECONDS = st.integers(0, 59)


@given(rows=st.lists(st.tuples(PRODUCERS, SECONDS), min_size=1, max_size=30), seed=st.integers(0, 1 << 30))
@settings(max_examples=12, deadline=None)
def test_lateness_and_the_last_low_watermark_do_not_depend_on_batches_or_interleaving(
    rows: list[tuple[str, int]], seed: int
) -> None:
    test = StreamTest()
    source = test.stream(ROWS)
    who = sorted({who for who, _ in rows})
    stream = event_time(source, "at", delay="5 seconds", producer="who", expect=who)
    late, watched = stateful(stream, Lateness(), partitions=2), lows(stream)
    with test.batch():
        test.feed(source, [{"id": n, "who": who, "at": f"10:00:{s:02}"} for n, (who, s) in enumerate(rows)])
    late.assert_same_in_every_replay(4, seed=seed, rows=True)
    assert {replay.rows[-1]["low"] for replay in watched.replays(4, seed=seed)} == {low(watched)}


def test_mistakes_are_named_when_the_pipeline_is_written_down() -> None:
    test = StreamTest()
    rows = test.stream(ROWS)
    with pytest.raises(UnknownColumn, match="no column 'when'; the DataFrame has at, id, who, until"):
        event_time(rows, "when")
    with pytest.raises(WrongType, match="column 'id' is int64, but it must be a timestamp"):
        event_time(rows, "id")
    with pytest.raises(UnknownColumn, match="no column 'device'"):
        event_time(rows, "at", producer="device")
    with pytest.raises(BadOption, match="delay is '-1 second': it must be zero or more"):
        event_time(rows, "at", delay="-1 second")
    with pytest.raises(BadOption, match="write it like '10 seconds'"):
        event_time(rows, "at", delay="ten seconds")
    with pytest.raises(BadOption, match="say ticks=True"):
        event_time(rows, "at", idle_after="1 minute")
    with pytest.raises(BadOption, match="expect names producers"):
        event_time(rows, "at", expect=["a"])
    with pytest.raises(DefinitionError, match="the input has no _time"):
        stateful(rows, Lateness())
    with pytest.raises(BadOption, match="'_low' is headwater's own"):
        event_time(test.stream("at timestamp, _low long"), "at")
