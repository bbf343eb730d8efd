"""Windows on windows, and windows on changelogs: each is a stream like any other."""

from __future__ import annotations

from headwater.pipeline import aggregates as agg
from headwater.pipeline.time import event_time
from headwater.pipeline.windows import hopping, tumbling
from headwater.testing.streams import StreamTest

VISITS = """
    at       | user
    10:00:01 | ann
    10:00:02 | ann
    10:00:03 | bob
    10:00:12 | bob
    10:00:13 | bob
    10:00:14 | bob
    10:00:30 | eve
"""


def test_the_busiest_user_of_each_window_is_a_window_of_windows() -> None:
    test = StreamTest()
    visits = test.stream("at timestamp, user string")
    per_user = hopping(
        event_time(visits, "at"), "10 seconds", "10 seconds", key=["user"], aggregates={"n": agg.count()}
    )
    busiest = tumbling(
        event_time(per_user, "window_start"),
        "10 seconds",
        aggregates={"user": agg.top("user", 1, by="n"), "most": agg.max("n")},
    )
    test.feed(visits, VISITS)
    test.feed(visits, [{"at": "10:00:50", "user": "eve"}])
    test.feed(visits, [{"at": "10:01:10", "user": "eve"}])
    assert [(row["user"], row["most"]) for row in busiest.rows()] == [(["ann"], 2), (["bob"], 3), (["eve"], 1)]
    busiest.assert_same_in_every_replay(5)


def test_a_correction_goes_on_through_the_window_behind_it() -> None:
    test = StreamTest()
    visits = test.stream("at timestamp, user string")
    words = {"output": "changelog", "late": "correct", "keep_closed": "1 hour"}
    per_user = tumbling(event_time(visits, "at"), "10 seconds", key=["user"], aggregates={"n": agg.count()}, **words)
    of_all = tumbling(
        event_time(per_user, "window_start"),
        "1 minute",
        aggregates={"visits": agg.sum("n"), "users": agg.count_distinct("user"), "most": agg.max("n")},
        emit="change",
        **words,
    )
    test.feed(visits, VISITS)
    of_all.assert_table("visits | users | most\n6 | 2 | 3")
    test.feed(visits, [{"at": "10:00:05", "user": "ann"}, {"at": "10:00:06", "user": "ann"}])
    of_all.assert_table("visits | users | most\n8 | 2 | 4")
    test.feed(visits, [{"at": "10:00:07", "user": "eve"}])
    of_all.assert_table("visits | users | most\n9 | 3 | 4")
