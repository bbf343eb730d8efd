"""What each function on changelogs does, by example; that it is right for any input is in test_programs."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headwater.pipeline import aggregates, changelogs
from headwater.pipeline.errors import DefinitionError
from headwater.pipeline.time import event_time
from headwater.testing.streams import Stream, StreamTest


def stream(schema: str) -> tuple[StreamTest, Stream]:
    test = StreamTest()
    return test, test.stream(schema)


def test_keyed_upserts_become_a_changelog_and_tombstones_delete() -> None:
    test, users = stream("user string, city string, _offset long")
    table = changelogs.from_upserts(users, ["user"])
    test.feed(users, "user | city | _offset\nann | Ulm | 1\nbob | Bonn | 2")
    table.assert_new("user | city | _weight\nann | Ulm | 1\nbob | Bonn | 1")
    test.feed(users, "user | city | _offset\nann | Pisa | 4\nann | Rome | 3\nbob | null | 5")
    table.assert_new("""
        user | city | _weight
        ann  | Ulm  | -1
        ann  | Pisa | 1
        bob  | Bonn | -1
    """)
    test.feed(users, "user | city | _offset\nann | Pisa | 6\nbob | null | 7")
    table.assert_new("user | city | _weight")


def test_the_newest_by_a_column_cannot_be_set_back_by_a_straggler() -> None:
    test, users = stream("user string, city string, changed timestamp, _weight int")
    table = changelogs.from_upserts(users, ["user"], newest="changed")
    test.feed(users, [{"user": "ann", "city": "Rome", "changed": "10:00", "_weight": 1}])
    test.feed(users, [{"user": "ann", "city": "Ulm", "changed": "09:00", "_weight": 1}])
    table.assert_table("user | city\nann | Rome")
    test.feed(users, [{"user": "ann", "city": "Rome", "changed": "11:00", "_weight": -1}])
    test.feed(users, [{"user": "ann", "city": "Pisa", "changed": "10:30", "_weight": 1}])
    table.assert_table("user | city")


def test_a_changelog_becomes_upserts_whichever_of_the_new_and_the_old_row_comes_first() -> None:
    test, users = stream("user string, city string, _weight int")
    upserts = changelogs.to_upserts(users, ["user"])
    test.feed(users, [{"user": "ann", "city": "Ulm", "_weight": 1}])
    upserts.assert_new("user | city | _weight\nann | Ulm | 1")
    test.feed(users, [{"user": "ann", "city": "Rome", "_weight": 1}])
    test.feed(users, [{"user": "ann", "city": "Ulm", "_weight": -1}])
    upserts.assert_table("user | city\nann | Rome", key=["user"])
    upserts.new()
    test.feed(users, [{"user": "ann", "city": "Rome", "_weight": -1}])
    upserts.assert_new("user | _weight\nann | -1")


def test_upserts_and_back_is_the_same_table() -> None:
    test, users = stream("user long, city long, _weight int")
    table = changelogs.from_upserts(users, ["user"])
    again = changelogs.from_upserts(changelogs.to_upserts(table, ["user"]), ["user"])
    random = Random(3)
    for _ in range(10):
        rows = [{"user": u, "city": random.randrange(3), "_weight": random.choice([1, 1, -1])} for u in range(3)]
        test.feed(users, rows)
    assert sorted(map(repr, again.table())) == sorted(map(repr, table.table()))


def test_changes_that_cancel_are_gone_and_equal_ones_are_one() -> None:
    test, rows = stream("x long, _weight int")
    short = changelogs.consolidate(rows)
    test.feed(rows, "x | _weight\n1 | 1\n1 | 1\n2 | 1\n2 | -1\n3 | -1")
    short.assert_new("x | _weight\n1 | 2\n3 | -1")


def test_a_changelog_at_a_slower_pace_says_what_changed_once_per_interval() -> None:
    test, rows = stream("at timestamp, x long, _weight int")
    slow = changelogs.consolidate(event_time(rows, "at", ticks=True), emit="10 seconds")
    test.tick("10:00:00")
    test.feed(rows, "at | x | _weight\n10:00:01 | 1 | 1")
    test.tick("10:00:05")
    test.feed(rows, "at | x | _weight\n10:00:06 | 1 | -1\n10:00:06 | 1 | 1")
    slow.assert_new("x | _weight")
    test.tick("10:00:12")
    assert sum(row["_weight"] for row in slow.new()) == 1


def test_distinct_shows_a_row_once_until_its_last_copy_goes() -> None:
    test, rows = stream("x long, y long, _weight int")
    once = changelogs.distinct(rows, ["x"])
    test.feed(rows, "x | y | _weight\n1 | 1 | 1\n1 | 2 | 1")
    once.assert_new("x | _weight\n1 | 1")
    test.feed(rows, "x | y | _weight\n1 | 1 | -1")
    once.assert_new("x | _weight")
    test.feed(rows, "x | y | _weight\n1 | 2 | -1")
    once.assert_new("x | _weight\n1 | -1")


def test_aggregates_take_rows_out_again_also_min_and_max() -> None:
    test, sales = stream("shop string, amount long, _weight int")
    named = {"n": aggregates.count(), "least": aggregates.min("amount"), "most": aggregates.max("amount")}
    stats = changelogs.aggregate(sales, ["shop"], named)
    test.feed(sales, "shop | amount | _weight\na | 5 | 1\na | 9 | 1\nb | 1 | 1")
    assert [row["_weight"] for row in stats.new()] == [1, 1]
    test.feed(sales, "shop | amount | _weight\na | 9 | -1\nb | 1 | -1")
    stats.assert_new("""
        shop | n | least | most | _weight
        a    | 2 | 5     | 9    | -1
        a    | 1 | 5     | 5    | 1
        b    | 1 | 1     | 1    | -1
    """)


def test_whatever_aggregate_there_is_follows_rows_that_go() -> None:
    test, sales = stream("shop string, item string, amount double, _weight int")
    named = {
        "dearest": aggregates.top("item", 2, by="amount"),
        "kinds": aggregates.count_distinct("item"),
        "middle": aggregates.median("amount"),
    }
    stats = changelogs.aggregate(sales, ["shop"], named)
    test.feed(sales, "shop | item | amount\na | x | 1\na | y | 3\na | y | 8", _weight=1)
    test.feed(sales, "shop | item | amount\na | y | 3", _weight=-1)
    [row] = stats.table()
    assert (row["dearest"], row["kinds"], row["middle"]) == (["y", "x"], 2, 4.5)
    stats.assert_same_in_every_replay(5)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_first_n_of_each_key_as_rows_come_and_go(weighted: bool) -> None:
    test, bids = stream("item string, price double, at long" + (", _weight int" if weighted else ""))
    best = changelogs.top_n(bids, ["item"], ["price desc", "at"], 2, rank="place")
    same: dict[str, Any] = {"_weight": 1} if weighted else {}
    test.feed(bids, "item | price | at\nx | 5 | 1\nx | 7.5 | 2\nx | 5 | 0", **same)
    best.assert_table("item | price | at | place\nx | 7.5 | 2 | 1\nx | 5 | 0 | 2")
    test.feed(bids, "item | price | at\nx | 6 | 3\ny | -1 | 1", **same)
    best.assert_table("item | price | at | place\nx | 7.5 | 2 | 1\nx | 6 | 3 | 2\ny | -1 | 1 | 1")
    if weighted:
        test.feed(bids, "item | price | at\nx | 7.5 | 2", _weight=-1)
        best.assert_table("item | price | at | place\nx | 6 | 3 | 1\nx | 5 | 0 | 2\ny | -1 | 1 | 1")
    best.assert_same_in_every_replay()


def test_of_rows_that_only_come_no_more_than_n_are_kept() -> None:
    test, bids = stream("item string, price long")
    best = changelogs.top_n(bids, ["item"], ["price desc"], 3)
    for price in range(50):
        test.feed(bids, [{"item": "x", "price": price}])
    best.assert_table("item | price\nx | 49\nx | 48\nx | 47")
    assert len(best.state("rows")) == 3


def test_semi_and_anti_join_follow_the_partners() -> None:
    test, orders = stream("order long, customer long, _weight int")
    blocked = test.stream("id long, why string, _weight int")
    held = changelogs.semi_join(orders, blocked, {"customer": "id"})
    free = changelogs.anti_join(orders, blocked, {"customer": "id"})
    test.feed(orders, "order | customer | _weight\n1 | 7 | 1\n2 | 8 | 1\n3 | null | 1")
    free.assert_table("order\n1\n2\n3")
    test.feed(blocked, "id | why | _weight\n7 | fraud | 1\n7 | debt | 1\nnull | ? | 1")
    held.assert_table("order\n1")
    free.assert_table("order\n2\n3")
    test.feed(blocked, "id | why | _weight\n7 | fraud | -1\n7 | debt | -1")
    held.assert_table("order")
    free.assert_table("order\n1\n2\n3")


def test_versions_have_the_time_they_hold_from_and_to_and_a_late_one_takes_its_place() -> None:
    test, prices = stream("since timestamp, item string, price long, _weight int")
    history = changelogs.versions(prices, ["item"], "since")
    test.feed(prices, "since | item | price\n10:00 | x | 1\n12:00 | x | 3", _weight=1)
    history.assert_table("price | valid_from | valid_to\n1 | 10:00 | 12:00\n3 | 12:00 | null")
    history.new()
    test.feed(prices, "since | item | price\n11:00 | x | 2", _weight=1)
    history.assert_new("""
        price | valid_from | valid_to | _weight
        1     | 10:00      | 12:00    | -1
        1     | 10:00      | 11:00    | 1
        2     | 11:00      | 12:00    | 1
    """)
    test.feed(prices, "since | item | price\n13:00 | x | 3", _weight=-1)
    history.assert_table("price | valid_from | valid_to\n1 | 10:00 | 11:00\n2 | 11:00 | 12:00\n3 | 12:00 | 13:00")
    history.assert_same_in_every_replay()


def test_union_adds_and_its_distinct_is_sqls_union() -> None:
    test, a = stream("x long")
    b = test.stream("x long, _weight int")
    both = changelogs.union(a, b)
    test.feed(a, "x\n1\n2")
    test.feed(b, "x | _weight\n2 | 1\n3 | 1")
    both.assert_table("x\n1\n2\n2\n3")
    changelogs.distinct(both).assert_table("x\n1\n2\n3")


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (lambda s: changelogs.from_upserts(s, []), "key"),
        (lambda s: changelogs.from_upserts(s, ["z"]), "no column 'z'"),
        (lambda s: changelogs.top_n(s, ["x"], ["y down"], 3), "order_by"),
        (lambda s: changelogs.top_n(s, ["x"], [], 3), "names no column"),
        (lambda s: changelogs.top_n(s, ["x"], ["y"], 0), "must be 1 to"),
        (lambda s: changelogs.top_n(s, ["x"], ["y"], 3, output="upsert"), "rank"),
        (lambda s: changelogs.top_n(s, ["x"], ["y"], 3, rank="y"), "already"),
        (lambda s: changelogs.top_n(s, ["x"], ["y", "t desc"], 3), "a number or a time"),
        (lambda s: changelogs.distinct(s, ["z"]), "no column 'z'"),
        (lambda s: changelogs.aggregate(s, ["x"], {"x": aggregates.min("y")}), "column of the key"),
        (lambda s: changelogs.aggregate(s, ["x"], {"n": aggregates.sum("t")}), "a number"),
        (lambda s: changelogs.versions(s, ["x"], "y"), "timestamp"),
        (lambda s: changelogs.consolidate(s, emit="close"), "no meaning"),
        (lambda s: changelogs.union(s, changelogs.distinct(s, ["x"])), "the inputs differ"),
        (lambda s: changelogs.semi_join(s, s, ["z"]), "no column 'z'"),
    ],
)
def test_mistakes_are_named_while_the_query_is_written_down(definition: Any, message: str) -> None:
    _, rows = stream("x long, y long, t string, at timestamp, _weight int")
    with pytest.raises(DefinitionError, match=message):
        definition(rows)
