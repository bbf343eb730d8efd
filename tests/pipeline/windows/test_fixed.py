"""Tumbling and hopping windows."""

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
from headwater.pipeline.errors import BadOption, DefinitionError, UnknownColumn, WrongType
from headwater.pipeline.stateful.task import run_in_memory
from headwater.pipeline.time import event_time, processing_time
from headwater.pipeline.time.marks import Marker
from headwater.pipeline.windows import tumbling as tumble
from headwater.pipeline.windows.definition import Words
from headwater.pipeline.windows.fixed import FixedWindows
from headwater.testing.streams import StreamTest

SUMS = {"n": agg.count(), "total": agg.sum("amount")}
MINUTE = timedelta(minutes=1)


def tumbling(size: str = "1 minute", key: Any = ("user",), aggregates: Any = None, **words: Any) -> FixedWindows:
    return FixedWindows("tumbling", size, size, key=key, aggregates=aggregates or SUMS, words=Words(**words))


def hopping(size: str, hop: str, **words: Any) -> FixedWindows:
    return FixedWindows("hopping", size, hop, key=("user",), aggregates=SUMS, words=Words(**words))


def shown(table: pa.Table) -> list[tuple[Any, ...]]:
    """user, start as minutes and seconds, n, total, and the weight where there is one."""
    names = ["user", "window_start", "n", "total", *(["_weight"] if "_weight" in table.column_names else [])]
    return [
        tuple(value.strftime("%H:%M:%S") if isinstance(value, datetime) else value for value in row)
        for row in zip(*(table[name].to_pylist() for name in names), strict=True)
    ]


def test_a_window_comes_out_once_when_the_low_watermark_passes_its_end() -> None:
    feed = Feed(tumbling(), COLUMNS)
    assert shown(feed.batch([event("10:03:00"), event("10:03:59"), event("10:03:30", "bob", 5.0)])) == []
    out = feed.batch([event("10:04:00", amount=7.0)])
    assert shown(out) == [("ann", "10:03:00", 2, 2.0), ("bob", "10:03:00", 1, 5.0)]
    assert out["window_end"].to_pylist() == [clock("10:04:00")] * 2
    assert shown(feed.batch([event("10:05:00")])) == [("ann", "10:04:00", 1, 7.0)]


def test_state_is_forgotten_with_the_window() -> None:
    feed = Feed(tumbling(), COLUMNS)
    for minute in range(50):
        feed.batch([event(clock("10:00") + minute * MINUTE)])
    assert len(feed.state["windows"].range()) == 1


def test_a_hopping_window_has_every_row_it_covers() -> None:
    feed = Feed(hopping("10 seconds", "2 seconds"), COLUMNS, delay="1 minute")
    feed.batch([event("10:00:09"), event("10:00:10", amount=3.0)])
    out = feed.batch([event(LAST)])
    assert shown(out) == [
        ("ann", "10:00:00", 1, 1.0),
        ("ann", "10:00:02", 2, 4.0),
        ("ann", "10:00:04", 2, 4.0),
        ("ann", "10:00:06", 2, 4.0),
        ("ann", "10:00:08", 2, 4.0),
        ("ann", "10:00:10", 1, 3.0),
    ]


def test_hops_longer_than_the_window_leave_rows_out() -> None:
    feed = Feed(hopping("1 second", "10 seconds"), COLUMNS, delay="1 minute")
    feed.batch([event("10:00:00.5"), event("10:00:05"), event("10:00:10")])
    assert shown(feed.batch([event(LAST)])) == [("ann", "10:00:00", 1, 1.0), ("ann", "10:00:10", 1, 1.0)]


def test_a_size_that_is_no_multiple_of_the_hop_is_taken_exactly() -> None:
    feed = Feed(hopping("5 seconds", "2 seconds"), COLUMNS, delay="1 minute")
    feed.batch([event("10:00:04"), event("10:00:05")])
    starts = [(start, n) for _, start, n, _ in shown(feed.batch([event(LAST)]))]
    assert starts == [("10:00:00", 1), ("10:00:02", 2), ("10:00:04", 2)]


def test_without_a_key_all_rows_are_in_one_window() -> None:
    feed = Feed(tumbling(key=()), COLUMNS)
    feed.batch([event("10:03:00"), event("10:03:30", "bob")])
    out = feed.batch([event(LAST)])
    assert out["n"].to_pylist() == [2]
    assert out.column_names == ["window_start", "window_end", "n", "total"]


def test_an_offset_moves_the_boundaries() -> None:
    operator = FixedWindows(
        "tumbling", "1 day", "1 day", offset="5 hours", key=("user",), aggregates=SUMS, words=Words()
    )
    feed = Feed(operator, COLUMNS, delay="1 minute")
    feed.batch([event("04:59"), event("05:00")])
    assert [row[1:3] for row in shown(feed.batch([event(LAST)]))] == [("05:00:00", 1), ("05:00:00", 1)]


def test_a_straggler_is_dropped_and_counted_by_producer_and_window() -> None:
    feed = Feed(tumbling(), COLUMNS)
    feed.batch([event("10:05:00", producer="p1"), event("10:03:10", producer="p2")])
    feed.batch([event("10:04:59", producer="p1"), event("10:03:20", producer="p2")])
    assert feed.counts["late"]["windows"] == [
        {"producer": "p1", "window_start": "2026-11-19T10:04:00+00:00", "rows": 1}
    ]
    assert feed.counts["late"]["late"] == 1
    out = feed.batch([event("10:06:00", producer="p1"), event("10:06:00", producer="p2")])
    assert shown(out) == [("ann", "10:03:00", 2, 2.0), ("ann", "10:05:00", 1, 1.0)]


def test_too_many_late_rows_raise_an_alert(caplog: pytest.LogCaptureFixture) -> None:
    feed = Feed(tumbling(alert_above=0.1), COLUMNS)
    feed.batch([event("10:05:00")])
    with caplog.at_level("WARNING", logger="headwater.pipeline"):
        feed.batch([event("10:05:01")] * 95 + [event("10:01:00")] * 5)
        assert not feed.counts["late"]["alert"]
        assert not caplog.records
        feed.batch([event("10:05:01")] * 80 + [event("10:01:00")] * 20)
    assert feed.counts["late"]["alert"]
    assert "20 of 100 rows came too late" in caplog.text


def test_a_row_late_for_some_of_its_windows_counts_in_the_others() -> None:
    feed = Feed(hopping("10 seconds", "5 seconds"), COLUMNS)
    feed.batch([event("10:00:16")])
    out = feed.batch([event("10:00:08")])  # [0, 10) and [5, 15) are closed for its producer
    assert shown(out) == []
    assert feed.counts["late"] | {"windows": len(feed.counts["late"]["windows"])} == {
        "rows": 1, "late": 1, "rate": 1.0, "alert": False, "windows": 2,
    }  # fmt: skip
    feed.batch([event("10:00:12")])  # [5, 15) is closed, [10, 20) is not
    out = feed.batch([event(LAST)])
    assert shown(out) == [("ann", "10:00:10", 2, 2.0), ("ann", "10:00:15", 1, 1.0)]


def test_late_rows_go_out_on_the_side_as_they_came() -> None:
    feed = Feed(tumbling(late="side"), COLUMNS)
    feed.batch([event("10:05:00")])
    (row,) = feed.batch([event("10:03:30", "bob", 9.0)]).to_pylist()
    assert row["_late"]
    assert (row["user"], row["window_start"], row["n"]) == ("bob", clock("10:03:00"), None)
    assert row["_row"] == event("10:03:30", "bob", 9.0)
    (result,) = feed.batch([event(LAST)]).to_pylist()
    assert (result["n"], result["_late"], result["_row"]) == (1, False, None)


def test_a_straggler_retracts_what_was_published_and_replaces_it() -> None:
    feed = Feed(tumbling(output="changelog", late="correct", keep_closed="10 minutes"), COLUMNS)
    feed.batch([event("10:03:10")])
    assert shown(feed.batch([event("10:05:00")])) == [("ann", "10:03:00", 1, 1.0, 1)]
    out = feed.batch([event("10:03:50", amount=4.0), event("10:03:50", "bob")])
    assert shown(out) == [
        ("ann", "10:03:00", 1, 1.0, -1),
        ("ann", "10:03:00", 2, 5.0, 1),
        ("bob", "10:03:00", 1, 1.0, 1),
    ]


def test_corrections_end_with_keep_closed() -> None:
    feed = Feed(tumbling(output="changelog", late="correct", keep_closed="10 minutes"), COLUMNS)
    feed.batch([event("10:03:10")])
    feed.batch([event("10:13:59")])
    assert len(feed.batch([event("10:03:20")])) == 2
    feed.batch([event("10:14:00")])
    assert len(feed.batch([event("10:03:30")])) == 0
    assert feed.counts["late"]["late"] == 1


def test_as_upserts_a_correction_is_one_row() -> None:
    feed = Feed(tumbling(output="upsert", late="correct", keep_closed="10 minutes"), COLUMNS)
    feed.batch([event("10:03:10"), event("10:05:00")])
    assert shown(feed.batch([event("10:03:50", amount=4.0)])) == [("ann", "10:03:00", 2, 5.0, 1)]


def test_every_change_comes_out_when_asked_for() -> None:
    feed = Feed(tumbling(emit="change", output="changelog"), COLUMNS)
    assert shown(feed.batch([event("10:03:10")])) == [("ann", "10:03:00", 1, 1.0, 1)]
    out = feed.batch([event("10:03:20"), event("10:04:00")])
    assert shown(out) == [
        ("ann", "10:03:00", 1, 1.0, -1),
        ("ann", "10:03:00", 2, 2.0, 1),
        ("ann", "10:04:00", 1, 1.0, 1),
    ]
    assert shown(feed.batch([])) == []


def test_at_intervals_what_changed_comes_out_once_for_all_changes() -> None:
    feed = Feed(tumbling(emit="10 seconds", output="changelog"), COLUMNS)
    assert shown(feed.batch([event("10:03:01")], tick=clock("10:03:02"))) == [("ann", "10:03:00", 1, 1.0, 1)]
    assert shown(feed.batch([event("10:03:03")], tick=clock("10:03:04"))) == []
    assert shown(feed.batch([event("10:03:05", amount=5.0)], tick=clock("10:03:09"))) == []
    out = feed.batch([], tick=clock("10:03:10"))
    assert shown(out) == [("ann", "10:03:00", 1, 1.0, -1), ("ann", "10:03:00", 3, 7.0, 1)]
    assert shown(feed.batch([], tick=clock("10:03:20"))) == []


def test_rows_without_a_time_are_counted_and_harm_nothing() -> None:
    feed = Feed(tumbling(), COLUMNS)
    feed.batch([event("10:03:10"), {**event("10:03:10"), "_time": None}])
    assert feed.counts["untimed"] == 1
    assert shown(feed.batch([event(LAST)])) == [("ann", "10:03:00", 1, 1.0)]


def test_a_changelog_as_input_takes_rows_back() -> None:
    feed = Feed(tumbling(emit="change", output="changelog"), {**COLUMNS, "_weight": pa.int32()})
    feed.batch([event("10:03:10") | {"_weight": 1}, event("10:03:20", amount=5.0) | {"_weight": 1}])
    out = feed.batch([event("10:03:20", amount=5.0) | {"_weight": -1}])
    assert shown(out) == [("ann", "10:03:00", 2, 6.0, -1), ("ann", "10:03:00", 1, 1.0, 1)]
    assert shown(feed.batch([event("10:03:10") | {"_weight": -1}])) == [("ann", "10:03:00", 1, 1.0, -1)]


def test_over_rows_that_are_all_there_nothing_is_late_and_everything_closes() -> None:
    feed = Feed(tumbling(), COLUMNS)
    marker = Marker(feed.settings, feed.schema)
    rows = feed.table([event("10:05:00"), event("10:03:10"), event("10:03:20")])
    marked = pa.concat_tables([marker.rows(rows), marker.punctuation(1)])
    out = pa.concat_tables(run_in_memory(feed.program, [marked]))
    assert shown(out) == [("ann", "10:03:00", 2, 2.0), ("ann", "10:05:00", 1, 1.0)]


def test_the_false_spike_of_a_backlog_is_there_by_processing_time_and_not_by_event_time() -> None:
    """One request a second, read every ten; the consumer is down from 10:01 to 10:03 and then works off the backlog."""
    test = StreamTest()
    requests = test.stream("at timestamp, user string")
    by_processing = tumble(processing_time(requests), "1 minute", aggregates={"n": agg.count()})
    by_event = tumble(event_time(requests, "at"), "1 minute", aggregates={"n": agg.count()})
    start = clock("10:00")
    for second in range(0, 300, 10):
        reads_at = second + 9 if not 60 <= second < 180 else 180
        with test.batch():
            test.tick(start + timedelta(seconds=reads_at))
            test.feed(requests, [{"at": start + timedelta(seconds=one)} for one in range(second, second + 10)])
    test.tick(clock("10:10"))
    test.feed(requests, [{"at": clock("11:00")}])
    per_minute = [(row["window_start"].minute, row["n"]) for row in by_event.rows()]
    assert per_minute == [(0, 60), (1, 60), (2, 60), (3, 60), (4, 60)]
    per_minute = [(row["window_start"].minute, row["n"]) for row in by_processing.rows()]
    assert per_minute == [(0, 60), (3, 180), (4, 60)]  # nothing for two minutes, then three times the rate


def expected(rows: list[Row], size: timedelta, hop: timedelta) -> dict[tuple[str, datetime], tuple[int, float]]:
    """The windows of all rows, found one row at a time in plain Python."""
    windows: dict[tuple[str, datetime], tuple[int, float]] = {}
    for row in rows:
        at = row["_time"]
        start = clock("00:00") + ((at - clock("00:00")) // hop) * hop
        while start > at - size:
            if start <= at:
                n, total = windows.get((row["user"], start), (0, 0.0))
                windows[row["user"], start] = (n + 1, total + row["amount"])
            start -= hop
    return windows


@settings(max_examples=60, deadline=None)
@given(drawn=events, sizes=sizes, hop=st.sampled_from([4, 10, 15]), emit=st.sampled_from(["close", "change"]))
def test_the_accumulated_changelog_is_the_batch_result_whatever_the_batches(
    drawn: list[tuple[int, str, int, str]], sizes: list[int], hop: int, emit: str
) -> None:
    rows = rows_of(drawn)
    words = {"emit": emit, "output": "changelog", "late": "correct", "keep_closed": "1 hour"}
    feed = Feed(hopping("10 seconds", f"{hop} seconds", **words), COLUMNS, delay="5 seconds")
    out = pa.concat_tables([feed.batches(rows, sizes), feed.batch([event(LAST, producer=p) for p in ("p1", "p2")])])
    found = [row for row in accumulated(out) if row["window_start"] < clock("11:00")]
    wanted = expected(rows, timedelta(seconds=10), timedelta(seconds=hop))
    assert {(row["user"], row["window_start"]) for row in found} == set(wanted)
    for row in found:
        n, total = wanted[row["user"], row["window_start"]]
        assert (row["n"], row["total"]) == (n, pytest.approx(total, abs=1e-9))


@settings(max_examples=60, deadline=None)
@given(drawn=events, sizes=sizes, other=sizes, seed=st.integers(0, 1000), late=st.sampled_from(["drop", "side"]))
def test_any_batches_and_interleavings_give_the_same_bytes(
    drawn: list[tuple[int, str, int, str]], sizes: list[int], other: list[int], seed: int, late: str
) -> None:
    rows = [event("09:59:00", producer="p1"), event("09:59:00", producer="p2"), *rows_of(drawn)]
    shuffled = interleaved(rows, seed)
    results = []
    for given_rows, boundaries in ((rows, [2, *sizes]), (shuffled, [2, *other])):
        feed = Feed(hopping("10 seconds", "5 seconds", late=late), COLUMNS, delay="3 seconds")
        out = pa.concat_tables(
            [feed.batches(given_rows, boundaries), feed.batch([event(LAST, producer=p) for p in ("p1", "p2")])]
        ).combine_chunks()
        if late == "side":  # side rows come with the batch they are in, results when they are complete
            out = out.filter(pa.compute.invert(out["_late"]))
        results.append(out)
    assert results[0].equals(results[1])


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: tumbling(size="-1 minute"), BadOption, "size is '-1 minute'"),
        (lambda: tumbling(size="1 fortnight"), BadOption, "write it like"),
        (lambda: tumbling(emit="closed"), BadOption, "emit"),
        (lambda: tumbling(emit="change", output="append"), BadOption, "never revises"),
        (lambda: tumbling(output="append", late="correct", keep_closed="1 hour"), BadOption, "never revises"),
        (lambda: tumbling(output="changelog", late="correct"), BadOption, "keep_closed"),
        (lambda: tumbling(keep_closed="1 hour"), BadOption, "late='correct'"),
        (lambda: tumbling(late="ignore"), BadOption, "late is 'ignore'"),
        (lambda: tumbling(alert_above=2), BadOption, "alert_above"),
        (lambda: tumbling(key=("user", "user")), BadOption, "twice"),
        (lambda: tumbling(key=("nobody",)), UnknownColumn, "no column 'nobody'"),
        (lambda: tumbling(aggregates={"n": agg.sum("price")}), UnknownColumn, "aggregate 'n'"),
        (lambda: tumbling(aggregates={"n": agg.sum("user")}), WrongType, "column 'user' is string"),
        (lambda: tumbling(aggregates={"n": "count"}), DefinitionError, "not an aggregate"),
        (lambda: tumbling(aggregates={"window_end": agg.count()}), BadOption, "window_end"),
        (lambda: hopping("1 hour", "1 second"), BadOption, "3600 windows"),
    ],
)
def test_mistakes_are_told_while_the_window_is_written_down(make: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Feed(make(), COLUMNS)


def test_without_event_time_the_definition_says_what_to_do() -> None:
    with pytest.raises(DefinitionError, match="event_time"):
        tumbling().output({"rows": pa.schema(list(COLUMNS.items()))})
