"""What a group of the classic protocol knows: its members, who leads, what it waits for. No behaviour in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from headwater.broker.groups.effects import GroupError, Token
from headwater.broker.groups.embedded import PROTOCOL_TYPE, Malformed, Subscription
from headwater.broker.groups.timers import Timers
from headwater.errors import InvariantViolated
from headwater.wire.errors import ErrorCode

__all__ = ["NO_GENERATION", "ClassicGroup", "ClassicMember", "State"]

NO_GENERATION = -1

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the member's order of preference."""


class State(StrEnum):
    """Kafka's names, as DescribeGroups and ListGroups show them."""

    EMPTY = "Empty"  # no members; kept while it has offsets
    PREPARING = "PreparingRebalance"  # waiting for every member to join
    COMPLETING = "CompletingRebalance"  # joined; waiting for the leader's assignment
    STABLE = "Stable"
    DEAD = "Dead"  # deleted, or turned into another kind of group


# What may follow what; every change of state goes through `ClassicGroup.enter`.
TRANSITIONS = {
    State.EMPTY: {State.PREPARING, State.DEAD, State.EMPTY},
    State.PREPARING: {State.COMPLETING, State.EMPTY, State.DEAD},
    State.COMPLETING: {State.STABLE, State.PREPARING, State.DEAD},
    State.STABLE: {State.PREPARING, State.DEAD},
    State.DEAD: {State.DEAD},
}


@dataclass(slots=True)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False  # has joined, but never been told so: its client may have given up waiting
    joining: Token | None = None  # a JoinGroup that waits for the rebalance
    syncing: Token | None = None  # a SyncGroup that waits for the leader

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class ClassicGroup:
    """Invariants: `leader` is a member unless there is none; `static` maps instance ids to members and back; outside
    PREPARING no JoinGroup waits; outside COMPLETING no SyncGroup waits."""

    group_id: str
    state: State = State.EMPTY
    since_ms: int = -1  # wall clock of the last change of state
    protocol_type: str | None = None
    protocol: str | None = None
    generation: int = 0
    leader: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    pending: set[str] = field(default_factory=set)  # ids handed out by MEMBER_ID_REQUIRED, not joined yet
    unsynced: set[str] = field(default_factory=set)  # joined this generation, SyncGroup not seen yet
    newcomers: bool = False  # somebody joined since the initial delay was last looked at
    delay_left_ms: int = 0  # how much longer the initial delay may be extended
    timers: Timers = field(default_factory=Timers)

    # -- questions

    @property
    def awaiting(self) -> list[ClassicMember]:
        return [member for member in self.members.values() if member.joining is not None]

    @property
    def all_joined(self) -> bool:
        return not self.pending and all(member.joining is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def is_consumer(self) -> bool:
        return self.protocol_type == PROTOCOL_TYPE

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """May a member with these protocols join those that are there?"""
        if not self.members:
            return bool(protocol_type) and any(True for _ in protocols)
        return self.protocol_type == protocol_type and not self._common_protocols().isdisjoint(protocols)

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics of a consumer group's members; None when what they are subscribed to cannot be told."""
        if not self.members or not self.is_consumer:
            return frozenset()
        topics: set[str] = set()
        for member in self.members.values():
            name = self.protocol or next((name for name, _ in member.protocols), None)
            try:
                topics.update(Subscription.decode(member.metadata(name)).topics)
            except Malformed:
                return None
        return frozenset(topics)

    def require(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member a request speaks for, or the refusal Kafka gives."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise GroupError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # -- changes

    def enter(self, state: State, wall_ms: int) -> None:
        if state not in TRANSITIONS[self.state]:
            raise InvariantViolated(f"group {self.group_id} cannot go from {self.state} to {state}")
        self.state = state
        self.since_ms = wall_ms

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        self.timers.cancel_member(member_id)

    def rename(self, instance_id: str, new_id: str) -> ClassicMember:
        """A static member came back under a new member id: it keeps its place, its assignment and its leadership."""
        old_id = self.static[instance_id]
        member = self.members.pop(old_id)
        member.member_id = new_id
        self.members[new_id] = member
        self.static[instance_id] = new_id
        self.timers.cancel_member(old_id)
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(new_id)
        return member

    def elect_joined_leader(self) -> bool:
        """The leader must be somebody who is here: True unless no member has joined."""
        if self.leader is not None and self.members[self.leader].joining is not None:
            return True
        self.leader = next((member.member_id for member in self.awaiting), self.leader)
        return bool(self.awaiting)

    def next_generation(self, wall_ms: int) -> None:
        self.generation += 1
        self.unsynced.clear()
        if self.members:
            self.protocol = self.choose_protocol()
            self.enter(State.COMPLETING, wall_ms)
        else:
            self.protocol = None
            self.enter(State.EMPTY, wall_ms)

    def choose_protocol(self) -> str:
        """Each member votes for its most preferred protocol that all support; of equals the one voted for first."""
        candidates = self._common_protocols()
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates) for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _common_protocols(self) -> set[str]:
        sets = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*sets) if sets else set()
