"""Server-side assignors of KIP-848: who should read which partition, a pure function of subscriptions and possessions.

Both give every partition of every subscribed topic to exactly one member that is subscribed to it, and the same
input gives the same output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from headwater.broker.groups.topics import TopicPartition, Topics

__all__ = ["ASSIGNORS", "DEFAULT_ASSIGNOR", "Subscriber", "Target", "assign_range", "assign_uniform"]

Target = dict[str, frozenset[TopicPartition]]


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it."""

    topics: frozenset[str]
    instance_id: str | None = None
    owned: frozenset[TopicPartition] = frozenset()  # its present target, which a sticky assignor keeps where it can


def assign_range(members: Mapping[str, Subscriber], topics: Topics) -> Target:
    """Each topic cut into one consecutive range per subscriber: topics with equal numbers of partitions line up.

    Members are ordered by instance id where they have one, so that restarts of static members change nothing.
    """
    target: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    order = sorted(members, key=lambda member_id: (members[member_id].instance_id or member_id, member_id))
    for name in sorted({name for member in members.values() for name in member.topics}):
        facts = topics.by_name(name)
        if facts is None:
            continue
        subscribers = [member_id for member_id in order if name in members[member_id].topics]
        share, extra = divmod(facts.partitions, len(subscribers))
        start = 0
        for index, member_id in enumerate(subscribers):
            end = start + share + (index < extra)
            target[member_id].update(TopicPartition(facts.topic_id, partition) for partition in range(start, end))
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in target.items()}


def assign_uniform(members: Mapping[str, Subscriber], topics: Topics) -> Target:
    """As even as the subscriptions allow, moving as few partitions as that needs.

    Where all members subscribe to the same topics no two differ by more than one partition.
    """
    if not members:
        return {}
    eligible = _subscribers_by_partition(members, topics)
    plan = _Plan(members, eligible)
    plan.keep_owned()
    plan.hand_out()
    plan.balance()
    return {member_id: frozenset(partitions) for member_id, partitions in plan.given.items()}


def _subscribers_by_partition(
    members: Mapping[str, Subscriber], topics: Topics
) -> dict[TopicPartition, tuple[str, ...]]:
    """Every partition of every subscribed topic, in a stable order, with who may have it."""
    by_topic: dict[str, list[str]] = {}
    for member_id in sorted(members):
        for name in members[member_id].topics:
            by_topic.setdefault(name, []).append(member_id)
    eligible: dict[TopicPartition, tuple[str, ...]] = {}
    for name in sorted(by_topic):
        facts = topics.by_name(name)
        if facts is not None:
            subscribers = tuple(by_topic[name])
            for partition in range(facts.partitions):
                eligible[TopicPartition(facts.topic_id, partition)] = subscribers
    return eligible


class _Plan:
    """An assignment under construction. `given` never holds a partition twice, nor one its member may not have."""

    def __init__(self, members: Mapping[str, Subscriber], eligible: dict[TopicPartition, tuple[str, ...]]) -> None:
        self._members = members
        self._eligible = eligible
        self.given: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
        self._left = dict.fromkeys(eligible)
        # With equal subscriptions everybody's fair share is known beforehand; what exceeds it is never kept.
        uniform = len({member.topics for member in members.values()}) == 1
        self._share, self._extra = divmod(len(eligible), len(members)) if uniform else (len(eligible), 0)

    def keep_owned(self) -> None:
        """What a member has and may have it keeps, up to its share (a remainder stays where it is)."""
        extra = self._extra
        for member_id in sorted(self._members):
            mine = sorted(
                partition
                for partition in self._members[member_id].owned
                if partition in self._left and member_id in self._eligible[partition]
            )
            quota = self._share
            if len(mine) > quota and extra:
                quota += 1
                extra -= 1
            for partition in mine[:quota]:
                self.given[member_id].add(partition)
                del self._left[partition]

    def hand_out(self) -> None:
        """What is left, those that few may have first, each to whoever has least."""
        given = self.given
        for partition in sorted(self._left, key=lambda partition: len(self._eligible[partition])):
            taker = min(self._eligible[partition], key=lambda member_id: len(given[member_id]))
            given[taker].add(partition)
        self._left.clear()

    def balance(self) -> None:
        """With differing subscriptions: move partitions to members with at least two fewer, until there is none.

        Each move lowers the sum of squares of the loads by at least two, so it ends.
        """
        moved = True
        while moved:
            moved = False
            for giver in sorted(self.given, key=lambda member_id: -len(self.given[member_id])):
                for partition in sorted(self.given[giver]):
                    taker = min(self._eligible[partition], key=lambda member_id: len(self.given[member_id]))
                    if len(self.given[taker]) + 1 < len(self.given[giver]):
                        self.given[giver].remove(partition)
                        self.given[taker].add(partition)
                        moved = True


DEFAULT_ASSIGNOR: Final = "uniform"
ASSIGNORS: Final[dict[str, Callable[[Mapping[str, Subscriber], Topics], Target]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
