"""Session windows."""

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
from headwater.pipeline.windows.sessions import Sessions

SUMS = {"n": agg.count(), "total": agg.sum("amount")}


def sessions(gap: str = "30 minutes", key: Any = ("user",), **words: Any) -> Sessions:
    return Sessions(gap, key=key, aggregates=SUMS, words=Words(**words))


CORRECT = {"output": "changelog", "late": "correct", "keep_closed": "3 hours"}


def shown(table: pa.Table) -> list[tuple[Any, ...]]:
    names = ["user", "window_start", "window_end", "n", *(["_weight"] if "_weight" in table.column_names else [])]
    return [
        tuple(value.strftime("%H:%M") if isinstance(value, datetime) else value for value in row)
        for row in zip(*(table[name].to_pylist() for name in names), strict=True)
    ]


def test_a_session_lasts_until_thirty_minutes_of_silence() -> None:
    feed = Feed(sessions(), COLUMNS)
    out = feed.batches([event("10:00"), event("10:20"), event("10:45"), event("11:20"), event("12:00")], [2, 1])
    assert shown(out) == [("ann", "10:00", "11:15", 3), ("ann", "11:20", "11:50", 1)]


def test_rows_exactly_a_gap_apart_are_in_one_session() -> None:
    feed = Feed(sessions(), COLUMNS)
    out = feed.batches([event("10:00"), event("10:30"), event("11:01"), event(LAST)], [1, 1, 1])
    assert shown(out) == [("ann", "10:00", "11:00", 2), ("ann", "11:01", "11:31", 1)]


def test_every_user_has_sessions_of_their_own() -> None:
    feed = Feed(sessions(), COLUMNS, delay="1 hour")
    feed.batch([event("10:00"), event("10:10", "bob"), event("10:20")])
    assert shown(feed.batch([event(LAST)])) == [("bob", "10:10", "10:40", 1), ("ann", "10:00", "10:50", 2)]


def test_without_a_key_everybody_is_in_one_session() -> None:
    feed = Feed(sessions(key=()), COLUMNS)
    out = feed.batches([event("10:00"), event("10:20", "bob"), event("11:00"), event(LAST)], [1, 1, 1])
    assert out["n"].to_pylist() == [2, 1]


def test_a_row_out_of_order_bridges_two_sessions() -> None:
    feed = Feed(sessions(), COLUMNS, delay="2 hours")
    feed.batch([event("10:00"), event("10:50")])
    feed.batch([event("10:25")])
    assert shown(feed.batch([event(LAST)])) == [("ann", "10:00", "11:20", 3)]


def test_a_straggler_that_bridges_two_published_sessions_retracts_both_and_publishes_one() -> None:
    feed = Feed(sessions(**CORRECT), COLUMNS)
    out = feed.batches([event("10:00"), event("10:50"), event("12:00")], [1, 1])
    assert shown(out) == [("ann", "10:00", "10:30", 1, 1), ("ann", "10:50", "11:20", 1, 1)]
    assert shown(feed.batch([event("10:25")])) == [
        ("ann", "10:00", "10:30", 1, -1),
        ("ann", "10:00", "11:20", 3, 1),
        ("ann", "10:50", "11:20", 1, -1),
    ]


def test_a_straggler_that_opens_a_closed_session_again_takes_its_result_back() -> None:
    feed = Feed(sessions(**CORRECT), COLUMNS)
    assert shown(feed.batches([event("10:00"), event("10:31", "bob")], [1])) == [("ann", "10:00", "10:30", 1, 1)]
    assert shown(feed.batch([event("10:15")])) == [("ann", "10:00", "10:30", 1, -1)]
    assert shown(feed.batch([event("10:50", "bob")])) == [("ann", "10:00", "10:45", 2, 1)]


def test_as_upserts_a_merged_session_is_deleted_by_its_start() -> None:
    feed = Feed(sessions(**{**CORRECT, "output": "upsert"}), COLUMNS)
    feed.batches([event("10:00"), event("10:50"), event("12:00")], [1, 1])
    assert shown(feed.batch([event("10:25")])) == [("ann", "10:00", "11:20", 3, 1), ("ann", "10:50", "11:20", 1, -1)]


def test_every_change_of_a_session_comes_out_when_asked_for() -> None:
    feed = Feed(sessions(emit="change", output="changelog"), COLUMNS)
    assert shown(feed.batch([event("10:00")])) == [("ann", "10:00", "10:30", 1, 1)]
    assert shown(feed.batch([event("10:10")])) == [("ann", "10:00", "10:30", 1, -1), ("ann", "10:00", "10:40", 2, 1)]


def test_late_rows_go_out_on_the_side() -> None:
    feed = Feed(sessions(late="side"), COLUMNS)
    feed.batch([event("10:00"), event("11:00")])
    rows = feed.batch([event("10:10", amount=7.0)]).to_pylist()
    assert [(row["_late"], row["window_start"], (row["_row"] or {}).get("amount")) for row in rows] == [
        (True, clock("10:10"), 7.0)
    ]
    assert feed.counts["late"]["late"] == 1


def test_state_is_forgotten_with_the_session() -> None:
    feed = Feed(sessions(), COLUMNS)
    for hour in range(20):
        feed.batch([event(clock("01:00") + timedelta(hours=hour), f"user{hour}")])
    assert len(feed.state["sessions"].range()) == len(feed.state["due"].range()) == 1


def expected(rows: list[Row], gap: timedelta) -> list[tuple[str, datetime, datetime, int, float]]:
    """The sessions of all rows, found one row at a time in plain Python."""
    found: list[tuple[str, datetime, datetime, int, float]] = []
    for user in sorted({row["user"] for row in rows}):
        own = sorted((row for row in rows if row["user"] == user), key=lambda row: row["_time"])
        current: list[Row] = []
        for row in [*own, None]:
            if current and (row is None or row["_time"] - current[-1]["_time"] > gap):
                total = sum(one["amount"] for one in current)
                found.append((user, current[0]["_time"], current[-1]["_time"] + gap, len(current), round(total, 6)))
                current = []
            if row is not None:
                current.append(row)
    return sorted(found)


@settings(max_examples=80, deadline=None)
@given(drawn=events, sizes=sizes, gap=st.sampled_from([1, 4, 20]), emit=st.sampled_from(["close", "change"]))
def test_the_accumulated_changelog_is_the_batch_result_whatever_the_batches(
    drawn: list[tuple[int, str, int, str]], sizes: list[int], gap: int, emit: str
) -> None:
    rows = rows_of(drawn)
    feed = Feed(sessions(f"{gap} seconds", emit=emit, **CORRECT), COLUMNS, delay="5 seconds")
    end = [event(LAST, "end", producer=p) for p in ("p1", "p2")]
    out = pa.concat_tables([feed.batches(rows, sizes), feed.batch(end)])
    found = [
        (row["user"], row["window_start"], row["window_end"], row["n"], round(row["total"], 6))
        for row in accumulated(out)
        if row["user"] != "end"
    ]
    assert sorted(found) == expected(rows, timedelta(seconds=gap))
    upserts = Feed(sessions(f"{gap} seconds", emit=emit, **{**CORRECT, "output": "upsert"}), COLUMNS, delay="5 seconds")
    out = pa.concat_tables([upserts.batches(rows, sizes), upserts.batch(end)])
    left = accumulated(out, key=["user", "window_start"])
    assert len(left) - (emit == "change") == len(found)


@settings(max_examples=60, deadline=None)
@given(drawn=events, sizes=sizes, other=sizes, seed=st.integers(0, 1000))
def test_any_batches_and_interleavings_give_the_same_bytes(
    drawn: list[tuple[int, str, int, str]], sizes: list[int], other: list[int], seed: int
) -> None:
    rows = [event("09:50:00", producer="p1"), event("09:50:00", producer="p2"), *rows_of(drawn)]
    results = []
    for given_rows, boundaries in ((rows, [2, *sizes]), (interleaved(rows, seed), [2, *other])):
        feed = Feed(sessions("6 seconds"), COLUMNS, delay="3 seconds")
        end = feed.batches([*given_rows, *(event(LAST, producer=p) for p in ("p1", "p2"))], boundaries)
        results.append(end)
    assert results[0].equals(results[1])


def test_mistakes_are_told_while_the_window_is_written_down() -> None:
    with pytest.raises(BadOption, match="gap is '-5 minutes'"):
        sessions("-5 minutes")
    with pytest.raises(BadOption, match="keep_closed"):
        sessions(late="correct", output="changelog")
    with pytest.raises(DefinitionError, match="split a session"):
        Feed(sessions(), {**COLUMNS, "_weight": pa.int32()})
    with pytest.raises(DefinitionError, match="no aggregates"):
        Feed(Sessions("1 hour", key=["user"], aggregates={}, words=Words()), COLUMNS)
