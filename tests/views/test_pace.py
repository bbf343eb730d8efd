"""When a follower commits and when it tries again."""

from __future__ import annotations

from headwater.views.pace import BEHIND_AGE_MAX_MS, IDLE_WAIT_MS, RETRY_MAX_MS, Limits, Pace


def test_a_follower_that_keeps_up_commits_as_soon_as_nothing_waits() -> None:
    pace = Pace(Limits(), 0)
    pace.add(0, 0, at_end=True)
    assert not pace.due(0, waiting=False)
    pace.add(1, 100)
    assert pace.wait_ms(0) == 0
    assert pace.due(0, waiting=False)


def test_a_follower_behind_fills_its_batch_by_records_or_bytes() -> None:
    pace = Pace(Limits(records=10, bytes=1_000), 0)
    pace.add(9, 100)
    assert not pace.due(0, waiting=True)
    pace.add(1, 1)
    assert pace.due(0, waiting=True)
    pace.committed(0)
    pace.add(1, 1_000)
    assert pace.due(0, waiting=True)


def test_a_follower_behind_waits_for_more_until_it_has_seen_the_end_or_a_while() -> None:
    pace = Pace(Limits(records=10), 0)
    pace.add(1, 1, 0)
    assert not pace.due(0, waiting=False)
    assert not pace.due(BEHIND_AGE_MAX_MS - 1, waiting=False)
    assert pace.due(BEHIND_AGE_MAX_MS, waiting=False)
    pace.committed(2_000)
    pace.add(1, 1, 2_000, at_end=True)
    assert pace.due(2_000, waiting=False)
    pace.add(9, 9, 2_000)
    assert pace.due(2_000, waiting=True)  # full: it has fallen behind again
    pace.committed(2_000)
    pace.add(1, 1, 2_000)
    assert not pace.due(2_000, waiting=False)


def test_a_store_with_expensive_commits_gets_one_an_interval() -> None:
    pace = Pace(Limits(commit_interval_ms=500), 1_000)
    pace.add(1, 1, 1_000, at_end=True)
    assert pace.due(1_000, waiting=False)  # the first after a pause goes at once
    pace.committed(1_000)
    pace.add(1, 1)
    assert not pace.due(1_499, waiting=False)
    assert pace.wait_ms(1_450) == 50
    assert pace.wait_ms(1_000) == IDLE_WAIT_MS
    assert pace.due(1_500, waiting=False)


def test_waits_between_attempts_double_up_to_their_bound() -> None:
    pace = Pace(Limits(), 0)
    waits = [pace.failed() for _ in range(20)]
    assert waits[:3] == [50, 100, 200]
    assert waits[-1] == RETRY_MAX_MS
    pace.committed(0)
    assert pace.failed() == 50
