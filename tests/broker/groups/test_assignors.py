"""Server-side assignors: complete, exclusive, balanced, sticky, deterministic."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.groups.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform
from headwater.broker.groups.topics import TopicPartition

from .harness import FakeTopics

NAMES = ("a", "b", "c")
topic_sets = st.frozensets(st.sampled_from(NAMES))
clusters = st.fixed_dictionaries({name: st.integers(1, 7) for name in NAMES})
subscriptions = st.dictionaries(st.sampled_from([f"m{n}" for n in range(6)]), topic_sets, max_size=6)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(partitions=clusters, wanted=subscriptions)
def test_every_partition_goes_to_one_member_that_wants_it(
    name: str, partitions: dict[str, int], wanted: dict[str, frozenset[str]]
) -> None:
    topics = FakeTopics(**partitions)
    members = {member_id: Subscriber(names) for member_id, names in wanted.items()}
    target = ASSIGNORS[name](members, topics)
    given_away = [partition for mine in target.values() for partition in mine]
    assert len(given_away) == len(set(given_away))
    subscribed = {topic for names in wanted.values() for topic in names}
    assert set(given_away) == {
        TopicPartition(topics.id(topic), index) for topic in subscribed for index in range(partitions[topic])
    }
    for member_id, mine in target.items():
        assert {partition.topic_id for partition in mine} <= {topics.id(topic) for topic in wanted[member_id]}


@given(partitions=clusters, wanted=subscriptions)
def test_uniform_leaves_nobody_with_two_more_than_somebody_who_could_have_them(
    partitions: dict[str, int], wanted: dict[str, frozenset[str]]
) -> None:
    topics = FakeTopics(**partitions)
    target = assign_uniform({member_id: Subscriber(names) for member_id, names in wanted.items()}, topics)
    for giver, mine in target.items():
        for taker in target:
            if any(topics.by_id(partition.topic_id).name in wanted[taker] for partition in mine):  # type: ignore[union-attr]
                assert len(mine) - len(target[taker]) <= 1, (giver, taker)


@given(partitions=clusters, count=st.integers(1, 6), joins=st.booleans())
def test_uniform_moves_no_more_than_balance_needs(partitions: dict[str, int], count: int, joins: bool) -> None:
    topics = FakeTopics(**partitions)
    everything = frozenset(NAMES)
    before = assign_uniform({f"m{n}": Subscriber(everything) for n in range(count)}, topics)
    members = {member_id: Subscriber(everything, owned=mine) for member_id, mine in before.items()}
    if joins:
        members["new"] = Subscriber(everything)
    elif count > 1:
        del members["m0"]
    after = assign_uniform(members, topics)
    moved = sum(len(after[member_id] - before.get(member_id, frozenset())) for member_id in after)
    least = len(after["new"]) if joins else len(before["m0"]) if count > 1 else 0
    assert moved == least


@pytest.mark.parametrize("name", ASSIGNORS)
def test_the_same_input_gives_the_same_target_whatever_its_order(name: str) -> None:
    topics = FakeTopics(a=5, b=3)
    members = {f"m{n}": Subscriber(frozenset({"a", "b"})) for n in range(4)}
    backwards = dict(reversed(members.items()))
    assert ASSIGNORS[name](members, topics) == ASSIGNORS[name](backwards, topics)


def test_range_gives_consecutive_partitions_and_lines_topics_up() -> None:
    topics = FakeTopics(a=7, b=7)
    target = assign_range({f"m{n}": Subscriber(frozenset({"a", "b"})) for n in range(3)}, topics)
    for mine in target.values():
        of_a = sorted(p.partition for p in mine if p.topic_id == topics.id("a"))
        of_b = sorted(p.partition for p in mine if p.topic_id == topics.id("b"))
        assert of_a == of_b
        assert all(right == left + 1 for left, right in pairwise(of_a))
    assert sorted(len(mine) for mine in target.values()) == [4, 4, 6]


def test_range_orders_static_members_by_instance() -> None:
    topics = FakeTopics(a=2)
    first = assign_range({"x": Subscriber(frozenset("a"), "1"), "y": Subscriber(frozenset("a"), "2")}, topics)
    later = assign_range({"z": Subscriber(frozenset("a"), "1"), "y": Subscriber(frozenset("a"), "2")}, topics)
    assert first["x"] == later["z"]


def test_a_thousand_partitions_over_a_hundred_members_take_moments() -> None:
    topics = FakeTopics(a=600, b=400)
    members = {f"m{n}": Subscriber(frozenset({"a"} if n % 2 else {"a", "b"})) for n in range(100)}
    target = assign_uniform(members, topics)
    assert {len(mine) for mine in target.values()} == {10}
