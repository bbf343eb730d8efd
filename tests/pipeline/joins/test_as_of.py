"""Events with a table as it was: enrichment from a changelog, and the tax rate at the time of the sale."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from headwater.pipeline import changelogs, joins
from headwater.pipeline.errors import DefinitionError
from headwater.pipeline.time import event_time
from headwater.testing.streams import Stream, StreamTest

START = datetime(2026, 1, 1, tzinfo=UTC)


def sales_and_rates(**words: Any) -> tuple[StreamTest, Stream, Stream, Stream]:
    test = StreamTest()
    sales = test.stream("sold timestamp, country string, net long")
    rates = test.stream("since timestamp, country string, rate long")
    taxed = joins.as_of(event_time(sales, "sold"), event_time(rates, "since"), ["country"], **words)
    return test, sales, rates, taxed


def feed_history(test: StreamTest, sales: Stream, rates: Stream) -> None:
    test.feed(rates, "since | country | rate\n09:00 | de | 16\n12:00 | de | 19")
    test.feed(sales, "sold | country | net\n10:00 | de | 100\n11:59 | de | 200\n12:00 | de | 300\n13:00 | de | 400")
    with test.batch():
        test.feed(rates, "since | country | rate\n14:00 | xx | 0")
        test.feed(sales, "sold | country | net\n14:00 | xx | 0")


def test_a_sale_has_the_tax_rate_at_the_time_of_the_sale_also_when_history_is_processed_again() -> None:
    test, sales, rates, taxed = sales_and_rates()
    feed_history(test, sales, rates)
    taxed.assert_rows("""
        country | net | rate | _time
        de      | 100 | 16   | 10:00
        de      | 200 | 16   | 11:59
        de      | 300 | 19   | 12:00
        de      | 400 | 19   | 13:00
    """)
    taxed.assert_same_in_every_replay(rows=True)


def test_the_version_that_was_used_has_an_id_which_is_the_same_in_every_replay() -> None:
    test, sales, rates, taxed = sales_and_rates(version="rate_id")
    feed_history(test, sales, rates)
    ids = {row["rate_id"] for row in taxed.rows()}
    assert len(ids) == 2
    assert all(len(one) == 16 for one in ids)
    history = changelogs.versions(rates, ["country"], "since")
    assert ids <= {row["version"] for row in history.table()}
    taxed.assert_same_in_every_replay(rows=True)


def test_a_rate_that_comes_late_corrects_the_sales_it_applies_to() -> None:
    test, sales, rates, taxed = sales_and_rates(late="correct", keep_closed="1 day", output="changelog")
    feed_history(test, sales, rates)
    assert len(taxed.new()) == 4
    test.feed(rates, "since | country | rate\n11:00 | de | 17")
    taxed.assert_new("""
        country | net | rate | _weight
        de      | 200 | 16   | -1
        de      | 200 | 17   | 1
    """)


def test_on_change_a_sale_is_answered_at_once_and_revised_when_the_rate_comes() -> None:
    test, sales, rates, taxed = sales_and_rates(how="left", emit="change", output="changelog")
    test.feed(sales, "sold | country | net\n10:00 | de | 100")
    taxed.assert_new("country | net | rate | _weight\nde | 100 | null | 1")
    test.feed(rates, "since | country | rate\n09:00 | de | 16")
    taxed.assert_new("""
        country | net | rate | _weight
        de      | 100 | null | -1
        de      | 100 | 16   | 1
    """)


def activity_and_profiles(**words: Any) -> tuple[StreamTest, Stream, Stream, Stream]:
    test = StreamTest()
    activity = test.stream("at timestamp, user string, page string")
    profiles = test.stream("changed timestamp, user string, city string, _weight int")
    joined = joins.stream_table(event_time(activity, "at"), event_time(profiles, "changed"), ["user"], **words)
    return test, activity, profiles, joined


def test_activity_is_enriched_with_the_profile_of_its_moment() -> None:
    test, activity, profiles, joined = activity_and_profiles(how="left")
    test.feed(
        profiles,
        """
        changed | user | city | _weight
        08:00   | ann  | Ulm  | 1
        10:00   | ann  | Ulm  | -1
        10:00   | ann  | Rome | 1
        11:00   | ann  | Rome | -1
        """,
    )
    test.feed(activity, "at | user | page\n08:59 | bob | /d\n09:00 | ann | /a\n10:30 | ann | /b\n11:30 | ann | /c")
    with test.batch():
        test.feed(profiles, "changed | user | city | _weight\n12:00 | eve | Bonn | 1")
        test.feed(activity, "at | user | page\n12:00 | eve | /e")
    joined.assert_rows("""
        user | page | city
        ann  | /a   | Ulm
        ann  | /b   | Rome
        ann  | /c   | null
        bob  | /d   | null
    """)
    joined.assert_same_in_every_replay(rows=True)


def test_the_snapshot_comes_first_and_the_events_then_whatever_is_read_first() -> None:
    snapshot = datetime(2026, 1, 1, 9, tzinfo=UTC)
    test, activity, profiles, joined = activity_and_profiles(snapshot=snapshot)
    test.feed(activity, "at | user | page\n07:00 | ann | /before-the-snapshot\n09:30 | bob | /after")
    joined.assert_new("user | page")
    test.feed(profiles, "changed | user | city | _weight\n08:00 | ann | Ulm | 1\n09:00 | bob | Rome | 1")
    joined.assert_new("user | page")
    with test.batch():
        test.feed(profiles, "changed | user | city | _weight\n10:00 | eve | Bonn | 1")
        test.feed(activity, "at | user | page\n10:00 | eve | /e")
    joined.assert_new("""
        user | page                 | city
        ann  | /before-the-snapshot | Ulm
        bob  | /after               | Rome
    """)
    joined.assert_same_in_every_replay(rows=True)


def test_the_state_of_a_stream_table_join_is_the_table_and_not_its_history() -> None:
    test, activity, profiles, joined = activity_and_profiles()
    for minute in range(30):
        at = START + timedelta(minutes=minute)
        with test.batch():
            test.feed(profiles, [{"changed": at, "user": "ann", "city": str(minute), "_weight": 1}])
            test.feed(profiles, [{"changed": at, "user": f"u{minute}", "city": "x", "_weight": 1}])
            test.feed(profiles, [{"changed": at, "user": f"u{minute - 1}", "city": "x", "_weight": -1}])
            test.feed(activity, [{"at": at, "user": "ann", "page": str(minute)}])
    assert [row["city"] for row in sorted(joined.rows(), key=lambda r: r["_time"])] == [str(m) for m in range(29)]
    assert len(joined.state("versions")) <= 8
    assert len(joined.state("stale")) <= 8
    assert len(joined.state("waiting_left")) == 1


@pytest.mark.parametrize("keep", [None, "40 seconds"])
@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("kind", ["close", "change", "stream_table"])
def test_any_events_and_versions_in_any_batches(kind: str, how: str, keep: str | None) -> None:
    random = Random(f"{kind}{how}{keep}")
    test, joined = _random_test(random, kind, how, keep)
    expected = _expected(test, how, 40 if keep else 0)
    found: Counter[tuple[Any, ...]] = Counter()
    for row in joined.rows():
        if row["k"] >= 0:
            found[row["k"], row["q"], row["u"]] += row.get("_weight", 1)
    assert {row: n for row, n in found.items() if n} == dict(expected)
    joined.assert_same_in_every_replay(1)


def _random_test(random: Random, kind: str, how: str, keep: str | None) -> tuple[StreamTest, Stream]:
    test = StreamTest()
    events = test.stream("at timestamp, k long, q long, who string")
    versions = test.stream("since timestamp, k long, u long, _offset long, _weight int")
    left = event_time(events, "at", delay="5 seconds", producer="who", expect=["a", "b"])
    right = event_time(versions, "since", delay="5 seconds")
    words: dict[str, Any] = {"how": how, "late": "correct" if keep else "drop", "keep_closed": keep}
    words["output"] = "changelog" if keep or kind == "change" else "append"
    if kind == "stream_table":
        joined = joins.stream_table(left, right, ["k"], **words)
    else:
        joined = joins.as_of(left, right, ["k"], emit=kind, **words)
    now = 0
    for number in range(12):
        with test.batch():
            for place in range(random.randrange(6)):
                now += random.randrange(4)
                at, k, value = START + timedelta(seconds=now - random.randrange(12)), random.choice([1, 2]), now
                if random.random() < 0.5:
                    test.feed(events, [{"at": at, "k": k, "q": value, "who": random.choice("ab")}])
                else:
                    row = {"since": at, "k": k, "u": value, "_offset": number * 100 + place}
                    test.feed(versions, [{**row, "_weight": random.choice([1, 1, -1])}])
    with test.batch():
        for who in "ab":
            test.feed(events, [{"at": START + timedelta(seconds=9_999), "k": -1, "q": 0, "who": who}])
        test.feed(versions, [{"since": START + timedelta(seconds=99_999), "k": -2, "u": 0, "_weight": 1}])
    return test, joined


def _expected(test: StreamTest, how: str, kept: int) -> Counter[tuple[Any, ...]]:
    events, versions, lows = [], [], {}
    for step in (step for batch in test.script for step in batch.steps):
        row = step.row  # type: ignore[union-attr]
        left = "at" in row
        at = int((row["at" if left else "since"] - START).total_seconds())
        lane = row.get("who", "")
        low = lows.get((left, lane), -9_999)
        if at >= low - kept and row["k"] >= 0:
            (events if left else versions).append(
                (at, row["k"], row["q"] if left else (row["_offset"], row["u"] if row["_weight"] > 0 else None))
            )
        lows[left, lane] = max(low, at - 5)
    result: Counter[tuple[Any, ...]] = Counter()
    for at, k, value in events:
        held = max(((then, version) for then, key, version in versions if key == k and then <= at), default=None)
        answer = None if held is None else held[1][1]
        if answer is not None or how == "left":
            result[k, value, answer] += 1
    return result


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"on": ["nobody"]}, "nobody"),
        ({"how": "full"}, "say 'inner' or 'left'"),
        ({"emit": "change"}, "'append' never revises"),
        ({"version": "net"}, "both sides have the column 'net'"),
        ({"late": "correct"}, "keep_closed"),
    ],
)
def test_mistakes_are_named_while_the_join_is_written_down(words: dict[str, Any], message: str) -> None:
    test = StreamTest()
    sales = event_time(test.stream("sold timestamp, country string, net long"), "sold")
    rates = event_time(test.stream("since timestamp, country string, rate long"), "since")
    with pytest.raises(DefinitionError, match=message):
        joins.as_of(sales, rates, **{"on": ["country"], **words})


def test_a_table_without_time_is_refused() -> None:
    test = StreamTest()
    sales = event_time(test.stream("sold timestamp, country string, net long"), "sold")
    with pytest.raises(DefinitionError, match="event_time"):
        joins.as_of(sales, test.stream("country string, rate long"), ["country"])
