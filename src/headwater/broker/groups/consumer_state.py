"""What a KIP-848 group knows, as its records in the log say it: it changes by `apply` of a record and nothing else.

So the state after a restart is the state before it, by construction: replay and normal operation run the same code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from headwater.broker.groups.assignors import DEFAULT_ASSIGNOR
from headwater.broker.groups.classic_state import Protocols
from headwater.broker.groups.effects import GroupError
from headwater.broker.groups.timers import Timers
from headwater.broker.groups.topics import TopicPartition
from headwater.wire.errors import ErrorCode

__all__ = ["ClassicSide", "ConsumerGroup", "ConsumerMember", "MemberState", "Owned", "ResolvedRegex"]

LEFT_FOR_A_WHILE = -2  # member epoch of a static member that said it would be back

Owned = Mapping[TopicPartition, int]
"""Partitions of a member, each with the epoch in which it got it (KIP-1251: commits of an older one are refused)."""


class MemberState(IntEnum):
    """Where a member is on its way to its target. The numbers are those of Kafka's records."""

    STABLE = 0  # at the target, or waiting to be told of a new one
    UNREVOKED = 1  # must give up partitions first
    UNRELEASED = 2  # waits for partitions that others still have


class ClassicSide(NamedTuple):
    """What is known of a member that speaks the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: Protocols


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    version: int  # grows with each resolution
    wall_ms: int


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicSide | None = None
    # From here on: the current assignment, another record in the log.
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)

    def at(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch


@dataclass(slots=True)
class ConsumerGroup:
    """Invariant: `owners` says for each partition which one member has it, assigned or still to be revoked."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target: dict[str, frozenset[TopicPartition]] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    # Derived from the above:
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    # Not in the log:
    timers: Timers = field(default_factory=Timers)
    topics_changed: bool = True  # since the subscriptions were last held against the cluster's topics

    # -- questions

    @property
    def state(self) -> str:
        """Kafka's name for it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.at(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def require(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member

    def require_static(self, instance_id: str, member_id: str) -> ConsumerMember:
        known = self.static.get(instance_id)
        if known is None:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if known != member_id:
            message = f"Static member {member_id} with instance id {instance_id} was fenced by member {known}."
            raise GroupError(ErrorCode.FENCED_INSTANCE_ID, message)
        return self.members[known]

    def subscription(self, member: ConsumerMember) -> frozenset[str]:
        """The topics a member wants: those it named and those its regular expression matched."""
        if not member.regex:
            return member.topics
        resolved = self.regexes.get(member.regex)
        return member.topics | resolved.topics if resolved is not None else member.topics

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*(self.subscription(member) for member in self.members.values()))

    def preferred_assignor(self, members: Mapping[str, ConsumerMember] | None = None) -> str:
        """What most members ask for."""
        everybody = (self.members if members is None else members).values()
        votes = Counter(member.assignor for member in everybody if member.assignor)
        return max(sorted(votes), key=votes.__getitem__) if votes else DEFAULT_ASSIGNOR

    # -- changes, one for each kind of record

    def put_member(self, member: ConsumerMember) -> None:
        """A new or changed member: both of its records, or either."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
            if old.instance_id is not None and self.static.get(old.instance_id) == old.member_id:
                del self.static[old.instance_id]
        self.members[member.member_id] = member
        for partition in (*member.assigned, *member.revoking):
            self.owners[partition] = member.member_id
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def drop_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        self.target.pop(member_id, None)
        self.timers.cancel_member(member_id)
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]

    def _release(self, member: ConsumerMember) -> None:
        for partition in (*member.assigned, *member.revoking):
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]
