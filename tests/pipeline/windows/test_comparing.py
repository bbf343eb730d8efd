"""Windows against windows before them, and rates."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.windows.feeding import COLUMNS, LAST, Feed, clock, event

from headwater.pipeline import aggregates as agg
from headwater.pipeline.errors import BadOption, DefinitionError, UnknownColumn, WrongType
from headwater.pipeline.stateful.operator import ONLY, Operator
from headwater.pipeline.stateful.task import Program, Step, empty_state
from headwater.pipeline.windows.comparing import Compared, Deviations
from headwater.pipeline.windows.definition import Words
from headwater.pipeline.windows.fixed import FixedWindows
from headwater.pipeline.windows.sessions import Sessions

RESULT = pa.schema(
    [("user", pa.string()), ("window_start", pa.timestamp("us", tz="UTC")), ("n", pa.int64()), ("_weight", pa.int32())]
)
DAY = timedelta(days=1)


class Windows:
    """Results of windows, fed to an operator that compares them."""

    def __init__(self, operator: Operator, *, weighted: bool) -> None:
        self.schema = RESULT if weighted else RESULT.remove(3)
        program = Program.of(operator, {ONLY: self.schema})
        self.state = empty_state(program)
        self._step = Step(program, self.state)

    def feed(self, *rows: tuple[str | datetime, int] | tuple[str | datetime, int, int]) -> list[tuple[Any, ...]]:
        dicts = [
            {
                "user": "ann",
                "window_start": clock(at) if isinstance(at, str) else at,
                "n": n,
                "_weight": (*weight, 1)[0],
            }
            for at, n, *weight in rows
        ]
        out = self._step.feed(pa.Table.from_pylist(dicts, self.schema))
        return [tuple(v for k, v in row.items() if k not in ("user", "window_start")) for row in out.to_pylist()]


def test_a_window_stands_beside_the_minute_before() -> None:
    windows = Windows(Compared("1 minute", values=["n"], key=["user"]), weighted=False)
    assert windows.feed(("10:00", 5)) == [(5, None, None)]
    assert windows.feed(("10:01", 8), ("10:02", 6)) == [(8, 5, 3), (6, 8, -2)]
    assert windows.feed(("10:05", 1)) == [(1, None, None)]


def test_the_same_time_last_week() -> None:
    windows = Windows(Compared("7 days", values=["n"], key=["user"]), weighted=False)
    for day in range(7):
        windows.feed((clock("10:00") + day * DAY, day))
    assert windows.feed((clock("10:00") + 7 * DAY, 100)) == [(100, 0, 100)]
    assert windows.feed((clock("10:00") + 8 * DAY, 100)) == [(100, 1, 99)]


def test_when_a_window_is_corrected_so_is_what_was_compared_with_it() -> None:
    windows = Windows(Compared("1 minute", values=["n"], key=["user"], keep_closed="1 hour"), weighted=True)
    windows.feed(("10:00", 5, 1), ("10:01", 8, 1))
    assert windows.feed(("10:00", 5, -1), ("10:00", 6, 1)) == [
        (5, None, None, -1),
        (6, None, None, 1),
        (8, 5, 3, -1),
        (8, 6, 2, 1),
    ]
    assert windows.feed(("10:00", 6, -1)) == [(6, None, None, -1), (8, 6, 2, -1), (8, None, None, 1)]


def test_windows_too_old_to_be_looked_back_at_are_forgotten() -> None:
    windows = Windows(Compared("5 minutes", values=["n"], key=["user"]), weighted=False)
    for minute in range(60):
        windows.feed((clock("10:00") + timedelta(minutes=minute), minute))
    assert len(windows.state["past"].range()) == 6


def test_a_value_far_from_the_windows_before_it_is_an_alert() -> None:
    windows = Windows(Deviations("n", "1 minute", 30, 3.0, key=["user"]), weighted=False)
    usual = [100, 104, 96, 102, 98, 100, 103, 97, 101, 99]
    rows = windows.feed(*((clock("10:00") + timedelta(minutes=i), n) for i, n in enumerate(usual)))
    assert [row[3] for row in rows] == [False] * 10
    assert rows[4][1:3] == (None, None)
    assert rows[5][1] == pytest.approx(100.0)
    ((_, expected, deviation, alert),) = windows.feed(("10:10", 160))
    assert (expected, alert) == (100.0, True)
    assert deviation == pytest.approx(60 / 2.582, rel=0.01)
    assert windows.feed(("10:11", 104))[0][3] is False


def test_after_windows_that_were_all_alike_any_other_value_is_an_alert() -> None:
    windows = Windows(Deviations("n", "1 minute", 5, 3.0, key=["user"]), weighted=False)
    windows.feed(*((clock("10:00") + timedelta(minutes=i), 7) for i in range(5)))
    assert windows.feed(("10:05", 7)) == [(7, 7.0, 0.0, False)]
    assert windows.feed(("10:06", 8)) == [(8, 7.0, float("inf"), True)]


def test_a_rate_is_the_count_by_the_size() -> None:
    aggregates = {"rate": agg.rate(per="1 second"), "per_hour": agg.rate("1 hour", "amount")}
    feed = Feed(FixedWindows("tumbling", "1 minute", "1 minute", aggregates=aggregates, words=Words()), COLUMNS)
    feed.batch([event("10:00:00"), event("10:00:30"), event("10:00:59", amount=None)])
    (row,) = feed.batch([event(LAST)]).to_pylist()
    assert (row["rate"], row["per_hour"]) == (0.05, 120.0)


def test_mistakes_are_told_while_the_comparison_is_written_down() -> None:
    with pytest.raises(UnknownColumn, match="no column 'm'"):
        Windows(Compared("1 minute", values=["m"], key=["user"]), weighted=False)
    with pytest.raises(WrongType, match="must be a number"):
        Windows(Compared("1 minute", values=["user"]), weighted=False)
    with pytest.raises(BadOption, match="history is 2"):
        Deviations("n", "1 minute", 2, 3.0)
    with pytest.raises(BadOption, match="before is '-1 minute'"):
        Compared("-1 minute", values=["n"])
    with pytest.raises(DefinitionError, match="fixed size"):
        Feed(Sessions("1 minute", key=["user"], aggregates={"r": agg.rate()}, words=Words()), COLUMNS)
