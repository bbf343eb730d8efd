"""What every kind of window must bear: batches without rows, keys that are null, rows that come as they are read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.windows.feeding import COLUMNS, LAST, Feed, event

from headwater.pipeline import aggregates as agg
from headwater.pipeline.stateful.operator import Operator
from headwater.pipeline.stateful.task import Step
from headwater.pipeline.time.marks import Marker
from headwater.pipeline.windows.definition import Words
from headwater.pipeline.windows.fixed import FixedWindows
from headwater.pipeline.windows.per_event import Sliding
from headwater.pipeline.windows.sessions import Sessions

SUMS = {"n": agg.count(), "total": agg.sum("amount"), "p90": agg.percentile("amount", 0.9), "all": agg.collect("user")}
KINDS = ["tumbling", "hopping", "session", "sliding"]
WORDS = [
    Words(),
    Words(late="side"),
    Words("close", "changelog", "correct", "1 hour"),
    Words("change", "upsert"),
    Words("10 seconds", "changelog"),
]


def made(kind: str, key: tuple[str, ...], words: Words) -> Operator:
    given: dict[str, Any] = {"key": key, "aggregates": SUMS, "words": words}
    if kind == "session":
        return Sessions("10 seconds", **given)
    if kind == "sliding":
        return Sliding("10 seconds", **given)
    return FixedWindows(kind, "10 seconds", "10 seconds" if kind == "tumbling" else "5 seconds", **given)


@pytest.mark.parametrize("words", WORDS, ids=lambda words: f"{words.emit} {words.output} {words.late}")
@pytest.mark.parametrize("key", [("user",), ()], ids=["keyed", "keyless"])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_without_rows_change_nothing(kind: str, key: tuple[str, ...], words: Words) -> None:
    feed, other = Feed(made(kind, key, words), COLUMNS), Feed(made(kind, key, words), COLUMNS)
    rows = [event("10:00:01"), event("10:00:02", "bob"), event("10:00:30"), event(LAST)]
    assert feed.batch([]).num_rows == 0
    with_pauses = []
    for row in rows:
        with_pauses += [feed.batch([row], tick=row["_time"]), feed.batch([])]
    without = [other.batch([row], tick=row["_time"]) for row in rows]
    assert pa.concat_tables(with_pauses).equals(pa.concat_tables(without))
    assert sum(table.num_rows for table in without) >= 2


@pytest.mark.parametrize("kind", KINDS)
def test_null_is_a_key_of_its_own(kind: str) -> None:
    feed = Feed(made(kind, ("user",), Words()), COLUMNS, delay="1 minute")
    rows = [event("10:00:01"), {**event("10:00:02"), "user": None}, {**event("10:00:03"), "user": None}]
    out = feed.batches([*rows, event(LAST)], [2, 1])
    assert sorted((str(row["user"]), row["n"]) for row in out.to_pylist())[:1] == [
        ("None", 1 if kind == "sliding" else 2)
    ]
    assert {row["user"] for row in out.to_pylist()} == {"ann", None}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_come_one_by_one_in_a_version_are_as_good_as_batches(kind: str) -> None:
    """Real-time Mode: one step is fed many times before it commits."""
    rows = [event(f"10:00:{second:02}", amount=float(second)) for second in (1, 4, 9, 22, 23, 47)]
    batches = Feed(made(kind, ("user",), Words()), COLUMNS)
    wanted = batches.batches([*rows, event(LAST)], [1] * 7)
    feed = Feed(made(kind, ("user",), Words()), COLUMNS)
    step, outs = Step(feed.program, feed.state), []
    for row in [*rows, event(LAST)]:
        marker = Marker(feed.settings, feed.schema)
        outs.append(step.feed(pa.concat_tables([marker.rows(feed.table([row])), marker.punctuation(1)])))
    assert pa.concat_tables(outs).combine_chunks().equals(wanted)
