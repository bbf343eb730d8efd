"""The running aggregate: per key over everything, retractions taken out, results at changes or at intervals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.pipeline.aggregates import count, max, mean, running, sum, top
from headwater.pipeline.errors import BadOption, DefinitionError, UnknownColumn
from headwater.pipeline.time import event_time
from headwater.testing.streams import Stream, StreamTest

CHANGES = "user string, amount double, _weight int"


def totals(test: StreamTest, **options: Any) -> tuple[Stream, Stream]:
    changes = test.stream(CHANGES)
    return changes, running(
        changes, ["user"], {"n": count(), "total": sum("amount"), "mean": mean("amount")}, **options
    )


def test_a_retraction_takes_a_row_out_and_the_last_one_takes_the_key_with_it() -> None:
    test = StreamTest()
    changes, table = totals(test, output="changelog")
    test.feed(changes, "user | amount | _weight\nann | 0.1 | 1\nann | 0.2 | 1\nbob | 1 | 1")
    test.feed(changes, "user | amount | _weight\nann | 0.1 | -1")
    table.assert_table("user | n | total\nann | 1 | 0.2\nbob | 1 | 1.0")
    test.feed(changes, "user | amount | _weight\nann | 0.2 | -1")
    table.assert_table("user | n | total\nbob | 1 | 1.0")
    assert [row["user"] for row in table.state("running")] == ["bob"]


def test_a_retraction_that_comes_before_its_row_waits_for_it() -> None:
    test = StreamTest()
    changes, table = totals(test, output="changelog")
    test.feed(changes, "user | amount | _weight\nann | 0.5 | -1\nann | 0.25 | 1")
    table.assert_rows("")
    test.feed(changes, "user | amount | _weight\nann | 0.5 | 1")
    table.assert_rows("user | n | total | _weight\nann | 1 | 0.25 | 1")


def test_an_upsert_says_that_a_key_is_gone() -> None:
    test = StreamTest()
    changes, table = totals(test)
    test.feed(changes, "user | amount | _weight\nann | 1 | 1")
    test.feed(changes, "user | amount | _weight\nann | 1 | -1")
    table.assert_rows("user | n | _weight\nann | 1 | 1\nann | 1 | -1")
    table.assert_table("", key=["user"])


def test_what_did_not_change_is_not_said_again() -> None:
    test = StreamTest()
    changes = test.stream("user string, amount long")
    top = running(changes, ["user"], {"top": max("amount")}, output="changelog")
    test.feed(changes, "user | amount\nann | 7")
    test.feed(changes, "user | amount\nann | 3")
    top.assert_rows("user | top | _weight\nann | 7 | 1")


def test_results_at_intervals_say_only_what_is_different_since_the_last_time() -> None:
    test = StreamTest()
    rows = test.stream("at timestamp, user string")
    counted = running(
        event_time(rows, "at", ticks=True), ["user"], {"n": count()}, emit="10 seconds", output="changelog"
    )
    test.tick("10:00:00")
    test.feed(rows, [{"at": "10:00:00", "user": user} for user in ("ann", "ann", "bob")])
    counted.assert_new("")
    test.tick("10:00:11")
    counted.assert_new("user | n | _weight\nann | 2 | 1\nbob | 1 | 1")
    test.feed(rows, [{"at": "10:00:12", "user": "ann"}])
    counted.assert_new("")
    test.tick("10:00:20")
    counted.assert_new("user | n | _weight\nann | 2 | -1\nann | 3 | 1")
    test.tick("10:00:30")
    counted.assert_new("")


@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(allow_nan=False, allow_infinity=False, width=32)), max_size=20
    ),
    seed=st.integers(0, 1 << 30),
)
@settings(max_examples=15, deadline=None)
def test_sums_are_the_same_to_the_last_bit_in_any_batches_and_any_interleaving(
    rows: list[tuple[str, float]], seed: int
) -> None:
    test = StreamTest()
    changes, table = totals(test, output="changelog")
    with test.batch():
        test.feed(changes, [{"user": user, "amount": amount, "_weight": 1} for user, amount in rows])
        test.feed(changes, [{"user": user, "amount": amount, "_weight": -1} for user, amount in rows[::2]])
    table.assert_same_in_every_replay(4, seed=seed)


def test_mistakes_are_named_when_the_pipeline_is_written_down() -> None:
    changes = StreamTest().stream(CHANGES)
    with pytest.raises(UnknownColumn, match="there is no column 'usr'"):
        running(changes, ["usr"], {"n": count()})
    with pytest.raises(UnknownColumn, match="aggregate 's': there is no column 'price'"):
        running(changes, ["user"], {"s": sum("price")})
    with pytest.raises(DefinitionError, match="no aggregates"):
        running(changes, ["user"], {})
    with pytest.raises(BadOption, match="emit='close' has no meaning without a window"):
        running(changes, ["user"], {"n": count()}, emit="close")
    with pytest.raises(BadOption, match="output is 'table'; say 'append', 'upsert' or 'changelog'"):
        running(changes, ["user"], {"n": count()}, output="table")
    with pytest.raises(DefinitionError, match="cannot take rows with a negative _weight out again"):
        running(changes, ["user"], {"m": top("amount", 2)})
    with pytest.raises(DefinitionError, match="the input has no _time"):
        running(changes, ["user"], {"n": count()}, emit="10 seconds")
