"""The timeline: a post goes to the timelines of all followers, and everything that changes that."""

from __future__ import annotations

import pytest

from headwater.pipeline import aggregates, changelogs, joins
from headwater.pipeline.errors import DefinitionError
from headwater.testing.streams import Stream, StreamTest


class Timeline:
    """SELECT follower, array_agg(posts ORDER BY time DESC) FROM posts JOIN follows ON followee = sender GROUP BY
    follower, the newest three."""

    def __init__(self) -> None:
        self.test = StreamTest()
        self.posts = self.test.stream("at timestamp, sender string, text string, _weight int")
        self.follows = self.test.stream("follower string, followee string, _weight int")
        delivered = joins.tables(self.posts, self.follows, {"sender": "followee"})
        self.shown = changelogs.top_n(delivered, ["follower"], ["at desc"], 3, rank="place")

    def post(self, at: str, sender: str, text: str) -> None:
        self.test.feed(self.posts, [{"at": at, "sender": sender, "text": text, "_weight": 1}])

    def delete(self, at: str, sender: str, text: str) -> None:
        self.test.feed(self.posts, [{"at": at, "sender": sender, "text": text, "_weight": -1}])

    def follow(self, follower: str, followee: str) -> None:
        self.test.feed(self.follows, [{"follower": follower, "followee": followee, "_weight": 1}])

    def unfollow(self, follower: str, followee: str) -> None:
        self.test.feed(self.follows, [{"follower": follower, "followee": followee, "_weight": -1}])

    def of(self, follower: str) -> list[str]:
        rows = [row for row in self.shown.table() if row["follower"] == follower]
        return [row["text"] for row in sorted(rows, key=lambda row: row["place"])]


@pytest.fixture
def timeline() -> Timeline:
    made = Timeline()
    made.follow("ann", "bob")
    made.follow("eve", "bob")
    made.follow("ann", "cem")
    made.post("10:00", "bob", "hello")
    made.post("10:01", "cem", "rain")
    return made


def test_a_post_goes_to_the_timelines_of_all_followers(timeline: Timeline) -> None:
    assert timeline.of("ann") == ["rain", "hello"]
    assert timeline.of("eve") == ["hello"]


def test_a_deleted_post_leaves_them(timeline: Timeline) -> None:
    timeline.delete("10:00", "bob", "hello")
    assert timeline.of("ann") == ["rain"]
    assert timeline.of("eve") == []


def test_following_brings_recent_posts_in(timeline: Timeline) -> None:
    for minute in range(2, 6):
        timeline.post(f"10:0{minute}", "cem", f"rain {minute}")
    timeline.follow("eve", "cem")
    assert timeline.of("eve") == ["rain 5", "rain 4", "rain 3"]


def test_unfollowing_takes_them_out(timeline: Timeline) -> None:
    timeline.unfollow("ann", "bob")
    assert timeline.of("ann") == ["rain"]
    assert timeline.of("eve") == ["hello"]
    timeline.shown.assert_same_in_every_replay()


def test_the_timeline_may_also_be_one_row_per_follower_with_a_list() -> None:
    test = StreamTest()
    posts = test.stream("at timestamp, sender string, text string, _weight int")
    follows = test.stream("follower string, followee string, _weight int")
    delivered = joins.tables(posts, follows, {"sender": "followee"})
    lists = changelogs.aggregate(delivered, ["follower"], {"posts": aggregates.top("text", 10, by="at")})
    test.feed(follows, "follower | followee\nann | bob\nann | cem", _weight=1)
    test.feed(posts, "at | sender | text\n10:00 | bob | hello\n10:01 | cem | rain\n10:02 | bob | bye", _weight=1)
    assert [row["posts"] for row in lists.table()] == [["bye", "rain", "hello"]]
    test.feed(posts, "at | sender | text\n10:02 | bob | bye", _weight=-1)
    assert [row["posts"] for row in lists.table()] == [["rain", "hello"]]


def orders_of_customers(how: str) -> tuple[StreamTest, Stream, Stream, Stream]:
    test = StreamTest()
    orders = test.stream("order long, customer long, _weight int")
    customers = test.stream("id long, name string, _weight int")
    return test, orders, customers, joins.tables(orders, customers, {"customer": "id"}, how=how)


def test_a_left_join_takes_the_lonely_row_back_when_its_partner_comes_and_returns_it_when_it_goes() -> None:
    test, orders, customers, joined = orders_of_customers("left")
    test.feed(orders, [{"order": 1, "customer": 7, "_weight": 1}])
    joined.assert_new("order | customer | name | _weight\n1 | 7 | null | 1")
    test.feed(customers, [{"id": 7, "name": "ann", "_weight": 1}])
    joined.assert_new("order | customer | name | _weight\n1 | 7 | null | -1\n1 | 7 | ann | 1")
    with test.batch():
        test.feed(customers, [{"id": 7, "name": "ann", "_weight": -1}])
        test.feed(customers, [{"id": 7, "name": "eve", "_weight": 1}])
    joined.assert_new("order | customer | name | _weight\n1 | 7 | ann | -1\n1 | 7 | eve | 1")
    test.feed(customers, [{"id": 7, "name": "eve", "_weight": -1}])
    joined.assert_new("order | customer | name | _weight\n1 | 7 | eve | -1\n1 | 7 | null | 1")
    joined.assert_same_in_every_replay()


def test_a_full_join_keeps_both_sides_and_null_meets_nothing() -> None:
    test, orders, customers, joined = orders_of_customers("full")
    test.feed(orders, [{"order": 1, "customer": None, "_weight": 1}, {"order": 2, "customer": 7, "_weight": 1}])
    test.feed(customers, [{"id": None, "name": "nobody", "_weight": 1}, {"id": 7, "name": "ann", "_weight": 1}])
    joined.assert_table("""
        order | customer | name
        1     | null     | null
        null  | null     | nobody
        2     | 7        | ann
    """)


def test_three_tables_meet_by_composition() -> None:
    test, orders, customers, joined = orders_of_customers("inner")
    towns = test.stream("person string, town string, _weight int")
    placed = joins.tables(joined, towns, {"name": "person"})
    test.feed(towns, [{"person": "ann", "town": "Ulm", "_weight": 1}])
    test.feed(orders, [{"order": 1, "customer": 7, "_weight": 1}])
    test.feed(customers, [{"id": 7, "name": "ann", "_weight": 1}])
    placed.assert_table("order | customer | name | town\n1 | 7 | ann | Ulm")
    test.feed(orders, [{"order": 1, "customer": 7, "_weight": -1}])
    placed.assert_table("order | customer | name | town")
    placed.assert_same_in_every_replay()


def test_mistakes_are_named_while_the_join_is_written_down() -> None:
    test = StreamTest()
    a, b = test.stream("k long, x long"), test.stream("k long, x long")
    c = test.stream("name string, y long, _weight string")
    with pytest.raises(DefinitionError, match="both sides have the column 'x'"):
        joins.tables(a, b, ["k"])
    with pytest.raises(DefinitionError, match="no column 'z'"):
        joins.tables(a, b, ["z"])
    with pytest.raises(DefinitionError, match="cast them to the same types"):
        joins.tables(a, c, {"k": "name"})
    with pytest.raises(DefinitionError, match="_weight"):
        joins.tables(c, a, {"y": "k"})
