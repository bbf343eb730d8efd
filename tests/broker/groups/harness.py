"""The group coordinator without broker, log or clock: a test moves time by hand and says when records are on disk."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from headwater.broker.groups.consumer import GroupLimits
from headwater.broker.groups.coordinator import Coordinator
from headwater.broker.groups.effects import Caller, Effects, Record
from headwater.broker.groups.settings import GroupSettings
from headwater.broker.groups.timers import Now
from headwater.broker.groups.topics import TopicFacts, TopicPartition
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headwater.wire.messages.heartbeat import HeartbeatRequest
from headwater.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headwater.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from headwater.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headwater.wire.records.consumer_protocol import ConsumerProtocolSubscription, encode_consumer_protocol
from headwater.wire.records.consumer_protocol import TopicPartition as NamedPartitions

SESSION_MS = 10_000
REBALANCE_MS = 30_000
HEARTBEAT_MS = 3_000


class FakeTopics:
    """The cluster's topics as a dictionary."""

    def __init__(self, **partitions: int) -> None:
        self.facts: dict[str, TopicFacts] = {}
        for name, count in partitions.items():
            self.create(name, count)

    def create(self, name: str, partitions: int) -> None:
        self.facts[name] = TopicFacts(name, uuid.uuid5(uuid.NAMESPACE_OID, name), partitions)

    def delete(self, name: str) -> None:
        del self.facts[name]

    def id(self, name: str) -> uuid.UUID:
        return self.facts[name].topic_id

    def by_name(self, name: str) -> TopicFacts | None:
        return self.facts.get(name)

    def by_id(self, topic_id: uuid.UUID) -> TopicFacts | None:
        return next((facts for facts in self.facts.values() if facts.topic_id == topic_id), None)

    def names(self) -> Iterator[str]:
        return iter(self.facts)


class Groups:
    """A coordinator with its log as a list. While `disk_stops` the records of steps wait in `unstored`."""

    def __init__(self, topics: FakeTopics | None = None, **settings: Any) -> None:
        self.settings = GroupSettings(**settings)
        self.topics = topics or FakeTopics(t=4)
        self.log: list[Record] = []
        self.now_ms = 1_000_000
        self.answers: dict[str, Any] = {}
        self.disk_stops = False
        self.unstored: list[tuple[str, Effects]] = []
        self._tokens = 0
        self.coordinator = self._new()

    def _new(self) -> Coordinator:
        limits = GroupLimits(self.settings.consumer_session_timeout_ms, HEARTBEAT_MS, self.settings.consumer_max_size)
        return Coordinator(self.settings, self.topics, lambda _: limits)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, float(self.now_ms))

    # -- what the driver does

    def carry(self, group_id: str, effects: Effects) -> None:
        if effects.records:
            self.log += effects.records
            self.coordinator.carry(group_id, effects)
            if self.disk_stops:
                self.unstored.append((group_id, effects))
                return
        else:
            self.coordinator.carry(group_id, effects)
        self._stored(group_id, effects)

    def _stored(self, group_id: str, effects: Effects) -> None:
        for answer in effects.answers:
            assert answer.token not in self.answers, f"{answer.token} is answered twice"
            self.answers[answer.token] = answer.response
        for event in effects.stored:
            self.carry(group_id, self.coordinator.stored(event, self.now))

    def disk_works(self) -> None:
        self.disk_stops = False
        waiting, self.unstored = self.unstored, []
        for group_id, effects in waiting:
            self._stored(group_id, effects)

    def disk_refuses(self) -> None:
        """What waits was not stored after all."""
        self.disk_stops = False
        waiting, self.unstored = self.unstored, []
        for group_id, effects in waiting:
            for event in effects.stored:
                refused = self.coordinator.refused(event, ErrorCode.NOT_COORDINATOR, self.now)
                self.carry(group_id, refused)

    def restart(self) -> None:
        """A new coordinator from the log."""
        self.coordinator = self._new()
        for record in self.log:
            self.coordinator.replay(record)
        self.coordinator.restored(self.now)

    def advance(self, milliseconds: int) -> None:
        """Time passes in small steps, with everything due in between."""
        end = self.now_ms + milliseconds
        while self.now_ms < end:
            self.now_ms = min(end, self.now_ms + 100)
            for group_id in list(self.coordinator.groups):
                for effects in self.coordinator.expire(group_id, self.now):
                    self.carry(group_id, effects)

    def token(self) -> str:
        self._tokens += 1
        return f"request-{self._tokens}"

    # -- the classic protocol

    def join(self, member_id: str = "", *, group: str = "g", version: int = 9, **more: Any) -> str:
        """Sends a JoinGroup; its answer appears under the token that is returned."""
        token = self.token()
        request = join_request(group, member_id, **more)
        caller = Caller(more.get("client_id", "client"), "/127.0.0.1", version)
        self.carry(group, self.coordinator.join(request, caller, token, self.now))
        return token

    def joined(self, token: str) -> JoinGroupResponse:
        response = self.answers[token]
        assert isinstance(response, JoinGroupResponse)
        return response

    def new_member(self, *, group: str = "g", **more: Any) -> tuple[str, str]:
        """A dynamic member gets its id and joins with it: (member id, token of the second JoinGroup)."""
        first = self.joined(self.join(group=group, **more))
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, group=group, **more)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
    ) -> str:
        token = self.token()
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=name, assignment=data)
                for name, data in (assignments or {}).items()
            ),
        )
        self.carry(group, self.coordinator.sync(request, token, self.now))
        return token

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> ErrorCode:
        token = self.token()
        request = HeartbeatRequest(
            group_id=group, member_id=member_id, generation_id=generation, group_instance_id=instance
        )
        self.carry(group, self.coordinator.heartbeat(request, token, self.now))
        return ErrorCode(self.answers[token].error_code)

    def leave(self, *members: tuple[str, str | None], group: str = "g") -> LeaveGroupResponse:
        token = self.token()
        identities = tuple(MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in members)
        request = LeaveGroupRequest(group_id=group, members=identities)
        self.carry(group, self.coordinator.leave(request, token, self.now))
        response = self.answers[token]
        assert isinstance(response, LeaveGroupResponse)
        return response

    def stable(self, count: int = 1, **more: Any) -> tuple[int, list[str]]:
        """A stable group of so many dynamic members: (generation, member ids, the leader first)."""
        members: list[str] = []
        for _ in range(count):
            newcomer, _waiting = self.new_member(**more)
            for member_id in members:
                self.join(member_id, **more)
            members.append(newcomer)
        last = self.coordinator.groups["g"]
        generation = last.generation  # type: ignore[union-attr]
        leader = last.leader  # type: ignore[union-attr]
        members.sort(key=lambda name: name != leader)
        for member_id in members:
            assignments = {name: name.encode() for name in members} if member_id == leader else None
            self.sync(member_id, generation, assignments)
        return generation, members

    # -- the consumer protocol

    def beat(
        self, member_id: str, epoch: int, *, group: str = "g", version: int = 1, **more: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """One heartbeat; a joining one (epoch 0) says everything a client has to say."""
        token = self.token()
        if epoch == 0:
            more.setdefault("rebalance_timeout_ms", REBALANCE_MS)
            more.setdefault("topic_partitions", ())
            if "subscribed_topic_regex" not in more:
                more.setdefault("subscribed_topic_names", ("t",))
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **more)
        caller = Caller("client", "/127.0.0.1", version)
        self.carry(group, self.coordinator.consumer_heartbeat(request, caller, token, self.now))
        response = self.answers[token]
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response


def join_request(group: str, member_id: str, **more: Any) -> JoinGroupRequest:
    protocols = more.get("protocols", {"range": b"v"})
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        session_timeout_ms=more.get("session_timeout_ms", SESSION_MS),
        rebalance_timeout_ms=more.get("rebalance_timeout_ms", REBALANCE_MS),
        group_instance_id=more.get("instance"),
        protocol_type=more.get("protocol_type", "consumer"),
        protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols.items()),
    )


def subscription(*topics: str, owned: dict[str, tuple[int, ...]] | None = None) -> bytes:
    """What a consumer embeds in its JoinGroup."""
    partitions = tuple(NamedPartitions(topic=name, partitions=indexes) for name, indexes in (owned or {}).items())
    message = ConsumerProtocolSubscription(topics=topics, owned_partitions=partitions)
    return encode_consumer_protocol(message, 3)


def partitions_of(response: ConsumerGroupHeartbeatResponse) -> frozenset[TopicPartition]:
    assert response.assignment is not None
    return frozenset(
        TopicPartition(topic.topic_id, index)
        for topic in response.assignment.topic_partitions
        for index in topic.partitions
    )


def as_owned(partitions: frozenset[TopicPartition]) -> tuple[TopicPartitions, ...]:
    """What a client reports to have."""
    by_topic: dict[uuid.UUID, list[int]] = {}
    for partition in sorted(partitions):
        by_topic.setdefault(partition.topic_id, []).append(partition.partition)
    return tuple(TopicPartitions(topic_id=key, partitions=tuple(value)) for key, value in by_topic.items())
