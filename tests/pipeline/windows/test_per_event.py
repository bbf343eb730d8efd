"""Sliding windows: one for every row."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.windows.feeding import (
    COLUMNS,
    LAST,
    Feed,
    Row,
    accumulated,
    clock,
    event,
    events,
    interleaved,
    rows_of,
    sizes,
)

from headwater.pipeline import aggregates as agg
from headwater.pipeline.errors import BadOption, DefinitionError
from headwater.pipeline.windows.definition import Words
from headwater.pipeline.windows.per_event import Sliding

SUMS = {"n": agg.count(), "total": agg.sum("amount"), "highest": agg.max("amount")}


def sliding(size: str = "5 minutes", key: Any = ("user",), **words: Any) -> Sliding:
    return Sliding(size, key=key, aggregates=SUMS, words=Words(**words))


CHANGE = {"emit": "change", "output": "changelog"}
CORRECT = {"output": "changelog", "late": "correct", "keep_closed": "1 hour"}


def shown(table: pa.Table) -> list[tuple[Any, ...]]:
    names = ["user", "_time", "n", "total", *(["_weight"] if "_weight" in table.column_names else [])]
    return [
        tuple(value.strftime("%H:%M:%S") if isinstance(value, datetime) else value for value in row)
        for row in zip(*(table[name].to_pylist() for name in names), strict=True)
    ]


def test_10_03_39_and_10_08_12_belong_together_within_five_minutes() -> None:
    feed = Feed(sliding(), COLUMNS)
    out = feed.batches([event("10:03:39"), event("10:08:12"), event("10:08:40"), event(LAST)], [1, 1, 1])
    assert shown(out) == [
        ("ann", "10:03:39", 1, 1.0),
        ("ann", "10:08:12", 2, 2.0),
        ("ann", "10:08:40", 2, 2.0),
    ]


def test_a_row_exactly_the_interval_before_is_seen() -> None:
    feed = Feed(sliding(), COLUMNS)
    out = feed.batches([event("10:00:00"), event("10:05:00"), event("10:10:00.000001"), event(LAST)], [1, 1, 1])
    assert [row[2] for row in shown(out)] == [1, 2, 1]


def test_rows_at_the_same_time_see_each_other() -> None:
    feed = Feed(sliding(), COLUMNS)
    out = feed.batches([event("10:00"), event("10:00"), event("10:01"), event(LAST)], [1, 1])
    assert [row[2] for row in shown(out)] == [2, 2, 3]


def test_other_keys_are_not_seen_but_without_a_key_everybody_is() -> None:
    rows = [event("10:00"), event("10:01", "bob"), event(LAST)]
    assert [row[2] for row in shown(Feed(sliding(), COLUMNS).batches(rows, [2]))] == [1, 1]
    assert [row[2] for row in shown(Feed(sliding(key=()), COLUMNS).batches(rows, [2]))] == [1, 2]


def test_a_row_out_of_order_corrects_the_rows_behind_it_and_no_others() -> None:
    feed = Feed(sliding(**CHANGE), COLUMNS, delay="1 hour")
    feed.batch([event("10:00"), event("10:03"), event("10:09")])
    assert shown(feed.batch([event("10:02", amount=5.0)])) == [
        ("ann", "10:02:00", 2, 6.0, 1),
        ("ann", "10:03:00", 2, 2.0, -1),
        ("ann", "10:03:00", 3, 7.0, 1),
    ]


def test_a_straggler_corrects_what_was_published_at_close() -> None:
    feed = Feed(sliding(**CORRECT), COLUMNS)
    feed.batches([event("10:00"), event("10:03"), event("10:30")], [1, 1])
    assert shown(feed.batch([event("10:02")])) == [
        ("ann", "10:02:00", 2, 2.0, 1),
        ("ann", "10:03:00", 2, 2.0, -1),
        ("ann", "10:03:00", 3, 3.0, 1),
    ]


def test_a_straggler_is_dropped_and_counted_without_corrections() -> None:
    feed = Feed(sliding(), COLUMNS)
    feed.batch([event("10:30")])
    assert shown(feed.batch([event("10:02")])) == []
    assert feed.counts["late"]["late"] == 1


def test_late_rows_go_out_on_the_side() -> None:
    feed = Feed(sliding(late="side"), COLUMNS)
    feed.batch([event("10:30")])
    (row,) = feed.batch([event("10:02", amount=8.0)]).to_pylist()
    assert (row["_late"], row["n"], row["amount"], row["_row"]["amount"]) == (True, None, 8.0, 8.0)


def test_state_is_forgotten_with_the_interval() -> None:
    feed = Feed(sliding(), COLUMNS)
    for minute in range(60):
        feed.batch([event(clock("10:00") + timedelta(minutes=minute))])
    assert len(feed.state["rows"].range()) == len(feed.state["by_time"].range()) == 6


def test_at_intervals_a_row_comes_out_as_it_has_become() -> None:
    feed = Feed(sliding(emit="10 seconds", output="changelog"), COLUMNS, delay="1 hour")
    feed.batch([], tick=clock("11:00:01"))
    assert shown(feed.batch([event("10:03")], tick=clock("11:00:02"))) == []
    assert shown(feed.batch([event("10:02")], tick=clock("11:00:03"))) == []
    out = feed.batch([], tick=clock("11:00:10"))
    assert shown(out) == [("ann", "10:02:00", 1, 1.0, 1), ("ann", "10:03:00", 2, 2.0, 1)]


def expected(rows: list[Row], size: timedelta) -> list[tuple[Any, ...]]:
    found = []
    for row in rows:
        own = [
            one["amount"]
            for one in rows
            if one["user"] == row["user"] and row["_time"] - size <= one["_time"] <= row["_time"]
        ]
        found.append((row["user"], row["_time"], row["amount"], len(own), round(sum(own), 6), max(own)))
    return sorted(found)


@settings(max_examples=80, deadline=None)
@given(drawn=events, sizes=sizes, size=st.sampled_from([1, 7, 60]), emit=st.sampled_from(["close", "change"]))
def test_the_accumulated_changelog_is_the_batch_result_whatever_the_batches(
    drawn: list[tuple[int, str, int, str]], sizes: list[int], size: int, emit: str
) -> None:
    rows = rows_of(drawn)
    feed = Feed(sliding(f"{size} seconds", emit=emit, **CORRECT), COLUMNS, delay="5 seconds")
    end = [event(LAST, "end", producer=p) for p in ("p1", "p2")]
    out = pa.concat_tables([feed.batches(rows, sizes), feed.batch(end)])
    found = [
        (row["user"], row["_time"], row["amount"], row["n"], round(row["total"], 6), row["highest"])
        for row in accumulated(out)
        if row["user"] != "end"
    ]
    assert sorted(found) == expected(rows, timedelta(seconds=size))


@settings(max_examples=60, deadline=None)
@given(drawn=events, sizes=sizes, other=sizes, seed=st.integers(0, 1000))
def test_any_batches_and_interleavings_give_the_same_bytes(
    drawn: list[tuple[int, str, int, str]], sizes: list[int], other: list[int], seed: int
) -> None:
    rows = [event("09:50:00", producer="p1"), event("09:50:00", producer="p2"), *rows_of(drawn)]
    results = []
    for given_rows, boundaries in ((rows, [2, *sizes]), (interleaved(rows, seed), [2, *other])):
        feed = Feed(sliding("6 seconds"), COLUMNS, delay="3 seconds")
        results.append(feed.batches([*given_rows, *(event(LAST, producer=p) for p in ("p1", "p2"))], boundaries))
    assert results[0].equals(results[1])


def test_mistakes_are_told_while_the_window_is_written_down() -> None:
    with pytest.raises(BadOption, match="size is 0"):
        Sliding(0, key=["user"], aggregates=SUMS, words=Words())
    with pytest.raises(BadOption, match="column of that name"):
        Feed(Sliding("1 hour", aggregates={"amount": agg.count()}, words=Words()), COLUMNS)
    with pytest.raises(DefinitionError, match="changelog"):
        Feed(sliding(), {**COLUMNS, "_weight": pa.int32()})
