"""The consumer protocol (KIP-848): members heartbeat, the coordinator assigns, each member moves at its own pace.

    heartbeat ─▶ member created or changed ─▶ group epoch + 1 ─▶ new target assignment ─▶ member reconciled ─▶ answer

A step never changes the group: it works on a draft and returns records, and the group changes when they are applied
(`records.apply`). What is not in the log, the deadlines, comes along as effects. So a step whose records cannot be
stored has not happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from headwater.broker.groups import records
from headwater.broker.groups.assignors import ASSIGNORS, Subscriber
from headwater.broker.groups.consumer_state import LEFT_FOR_A_WHILE, ConsumerGroup, ConsumerMember, MemberState
from headwater.broker.groups.effects import Caller, Deadline, Effects, GroupError, Record, Token
from headwater.broker.groups.reconcile import reconcile
from headwater.broker.groups.regex import InvalidPattern, TopicPattern
from headwater.broker.groups.timers import Now
from headwater.broker.groups.topics import TopicPartition, Topics, metadata_hash
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

__all__ = ["REBALANCE", "SESSION", "ConsumerMachine", "Draft", "GroupLimits", "refuse_invalid"]

LEAVE = -1  # member epochs that say goodbye; for a while: LEFT_FOR_A_WHILE

SESSION = "session"  # per member: heard of within this
REBALANCE = "rebalance"  # per member: has to give up its revoked partitions within this


class GroupLimits(NamedTuple):
    """What the group's settings say at this moment."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int


class Draft:
    """A group as it would be with the records so far. The group itself is copied at the first record, not before."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.effects = Effects(apply=True)
        self._copied = False

    def write(self, *more: Record) -> None:
        if not self._copied:
            self.group = replace(
                self.group,
                members=dict(self.group.members),
                target=dict(self.group.target),
                regexes=dict(self.group.regexes),
                owners=dict(self.group.owners),
                static=dict(self.group.static),
                timers=type(self.group.timers)(),
            )
            self._copied = True
        for record in more:
            records.apply(self.group, record)
            self.effects.records.append(record)

    def deadline(self, kind: str, member_id: str, at_mono_ms: float | None) -> None:
        self.effects.deadlines.append(Deadline(kind, member_id, at_mono_ms))


class ConsumerMachine:
    """The steps of one group."""

    def __init__(self, group: ConsumerGroup, topics: Topics, limits: GroupLimits) -> None:
        self._group = group
        self.topics = topics
        self._limits = limits

    # -- heartbeats

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, token: Token, now: Now) -> Effects:
        """A member joins, changes its mind, reports progress, or just lives; refusals are raised."""
        draft = Draft(self._group)
        member = self._member_for(draft, request)
        updated = _with_request(member, request, caller)
        self.update(draft, member, updated, now)
        owned = _owned(request)
        self.reconcile(draft, updated.member_id, owned, now, resubscribed=_resubscribed(member, updated))
        draft.deadline(SESSION, updated.member_id, now.mono_ms + self._limits.session_timeout_ms)
        final = draft.group.members[updated.member_id]
        response = self._alive(final, told=_is_full(request) or final.assigned.keys() != member.assigned.keys())
        return draft.effects.answer(token, response)

    def leave(self, request: ConsumerGroupHeartbeatRequest, token: Token) -> Effects:
        """Epoch -1: gone. Epoch -2, static members only: back soon, keep my partitions until my session ends."""
        draft = Draft(self._group)
        if request.instance_id is None:
            member = draft.group.require(request.member_id)
        else:
            member = draft.group.require_static(request.instance_id, request.member_id)
        if request.member_epoch == LEFT_FOR_A_WHILE:
            away = replace(member, epoch=LEFT_FOR_A_WHILE, revoking={})
            draft.write(records.current_assignment(draft.group.group_id, away))
        else:
            self.remove(draft, [member])
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        return draft.effects.answer(token, response)

    def _member_for(self, draft: Draft, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
        joins = request.member_epoch == 0
        self.refuse_full(request.member_id)
        if request.instance_id is not None:
            return self._static_member(draft, request, joins=joins)
        known = self._group.members.get(request.member_id)
        if known is None and joins:
            return ConsumerMember(request.member_id)
        member = known or self._group.require(request.member_id)
        _refuse_epoch(member, request)
        return member

    def refuse_full(self, member_id: str) -> None:
        if len(self._group.members) >= self._limits.max_size and member_id not in self._group.members:
            message = f"The consumer group has reached its maximum capacity of {self._limits.max_size} members."
            raise GroupError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)

    def _static_member(self, draft: Draft, request: ConsumerGroupHeartbeatRequest, *, joins: bool) -> ConsumerMember:
        instance_id = request.instance_id or ""
        if not joins:
            member = self._group.require_static(instance_id, request.member_id)
            _refuse_epoch(member, request)
            return member
        known = self._group.static.get(instance_id)
        if known is None:
            return ConsumerMember(request.member_id, instance_id)
        previous = self._group.members[known]
        if previous.epoch != LEFT_FOR_A_WHILE and previous.classic is None:
            message = (
                f"Static member {request.member_id} with instance id {instance_id} cannot join the group because "
                f"the instance id is owned by {known} member."
            )
            raise GroupError(ErrorCode.UNRELEASED_INSTANCE_ID, message)
        return self.replace_static(draft, previous, request.member_id)

    def replace_static(self, draft: Draft, previous: ConsumerMember, member_id: str) -> ConsumerMember:
        """The same instance under a new member id: it takes over what its former self had."""
        group_id = draft.group.group_id
        successor = replace(previous, member_id=member_id, epoch=0, previous_epoch=0)
        target = draft.group.target.get(previous.member_id, frozenset())
        draft.write(
            *records.member_gone(group_id, previous.member_id),
            records.member_metadata(group_id, successor),
            records.target_member(group_id, member_id, target),
            records.current_assignment(group_id, successor),
        )
        return successor

    # -- the three parts of a heartbeat, also used for classic clients in the group

    def update(self, draft: Draft, member: ConsumerMember, updated: ConsumerMember, now: Now) -> None:
        """Record what is new about the member; give the group a new epoch and a new target if that asks for it."""
        group_id = draft.group.group_id
        if updated.member_id not in draft.group.members or updated != member:
            if updated.regex and updated.regex != member.regex:
                _compile(updated.regex)  # refuse a bad one before anything is written
            draft.write(records.member_metadata(group_id, updated))
        resubscribed = _resubscribed(member, updated)
        if resubscribed or draft.group.topics_changed or draft.group.epoch == 0:
            self._refresh_regexes(draft, now)
            self._refresh_epoch(draft, bump=resubscribed or draft.group.epoch == 0)
            self._group.topics_changed = False
        if draft.group.epoch > draft.group.assignment_epoch:
            self._assign(draft)

    def _refresh_regexes(self, draft: Draft, now: Now) -> None:
        group = draft.group
        used = {member.regex for member in group.members.values() if member.regex}
        for regex in sorted(set(group.regexes) - used):
            draft.write(records.regex_gone(group.group_id, regex))
        for regex in sorted(used):
            pattern = _compile(regex)
            found = frozenset(name for name in self.topics.names() if pattern.matches(name))
            old = group.regexes.get(regex)
            if old is None or old.topics != found:
                version = old.version + 1 if old is not None else 1
                draft.write(records.regex_resolved(group.group_id, regex, found, version, now.wall_ms))

    def _refresh_epoch(self, draft: Draft, *, bump: bool) -> None:
        group = draft.group
        fingerprint = metadata_hash(group.subscribed_topics(), self.topics)
        if bump or fingerprint != group.metadata_hash:
            draft.write(records.group_epoch(group.group_id, group.epoch + 1, fingerprint))

    def _assign(self, draft: Draft) -> None:
        """A target for the group's epoch; only what differs from the last one is recorded."""
        group = draft.group
        subscribers = {
            member_id: Subscriber(
                group.subscription(member), member.instance_id, group.target.get(member_id, frozenset())
            )
            for member_id, member in group.members.items()
        }
        target = ASSIGNORS[group.preferred_assignor()](subscribers, self.topics)
        for member_id, partitions in target.items():
            if group.target.get(member_id) != partitions:
                draft.write(records.target_member(group.group_id, member_id, partitions))
        draft.write(records.target_epoch(group.group_id, group.epoch))

    def reconcile(
        self,
        draft: Draft,
        member_id: str,
        owned: frozenset[TopicPartition] | None,
        now: Now,
        *,
        resubscribed: bool,
    ) -> None:
        """Move one member a step towards its target, and time what it has to revoke."""
        group = draft.group
        member = group.members[member_id]
        if member.at(group.assignment_epoch) and not resubscribed:
            return
        after = reconcile(
            member,
            target_epoch=group.assignment_epoch,
            target=group.target.get(member_id, frozenset()),
            wanted=self._topic_ids(group.subscription(member)),
            resubscribed=resubscribed,
            owners=group.owners,
            owned=owned,
        )
        if after == member:
            return
        draft.write(records.current_assignment(group.group_id, after))
        if after.classic is None:
            revokes = after.state is MemberState.UNREVOKED
            draft.deadline(REBALANCE, member_id, now.mono_ms + after.rebalance_timeout_ms if revokes else None)

    def _topic_ids(self, names: Iterable[str]) -> frozenset[UUID]:
        return frozenset(facts.topic_id for name in names if (facts := self.topics.by_name(name)) is not None)

    # -- members that go

    def remove(self, draft: Draft, members: Iterable[ConsumerMember]) -> None:
        """Members left or were fenced: what they had is free at once, the next heartbeat makes a new target."""
        group_id = draft.group.group_id
        for member in members:
            draft.write(*records.member_gone(group_id, member.member_id))
            draft.effects.deadlines += [Deadline(kind, member.member_id, None) for kind in (SESSION, REBALANCE)]
        used = {member.regex for member in draft.group.members.values()}
        for regex in sorted(set(draft.group.regexes) - used):
            draft.write(records.regex_gone(group_id, regex))
        self._refresh_epoch(draft, bump=True)

    def rebalance_overdue(self, member_id: str) -> Effects:
        """It was told to give up partitions and did not: without it, others could never have them."""
        member = self._group.members.get(member_id)
        if member is None or member.state is not MemberState.UNREVOKED:
            return Effects()
        return self.fence(member_id)

    def fence(self, member_id: str) -> Effects:
        draft = Draft(self._group)
        member = self._group.members.get(member_id)
        if member is not None:
            self.remove(draft, [member])
        return draft.effects

    # -- answers

    def _alive(self, member: ConsumerMember, *, told: bool) -> ConsumerGroupHeartbeatResponse:
        """The assignment is told when it changed or when the client said everything, because it may know nothing."""
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._limits.heartbeat_interval_ms,
            assignment=_assignment(member) if told else None,
        )


def refuse_invalid(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Kafka's checks of a heartbeat by itself, with its messages."""
    problem = _problem_of(request, version)
    if problem is not None:
        raise GroupError(ErrorCode.INVALID_REQUEST, problem)
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        message = (
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}."
        )
        raise GroupError(ErrorCode.UNSUPPORTED_ASSIGNOR, message)


def _problem_of(  # noqa: PLR0911  # one check, one answer
    request: ConsumerGroupHeartbeatRequest, version: int
) -> str | None:
    if (version >= 1 or request.member_epoch != 0) and not request.member_id.strip():
        return "MemberId can't be empty."
    if not request.group_id.strip():
        return "GroupId can't be empty."
    if request.instance_id is not None and not request.instance_id.strip():
        return "InstanceId can't be empty."
    if request.rack_id is not None and not request.rack_id.strip():
        return "RackId can't be empty."
    if request.member_epoch == 0:
        return _problem_of_join(request, version)
    if request.member_epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        return "InstanceId can't be null."
    if request.member_epoch < LEFT_FOR_A_WHILE:
        return "MemberEpoch is invalid."
    return None


def _problem_of_join(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if version < 1 and not request.subscribed_topic_names:
        return "SubscribedTopicNames must be set in first request."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def _refuse_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """A member must come with the epoch it was told, or with the one before if that answer may have been lost."""
    epoch = request.member_epoch
    if epoch in (0, member.epoch):
        return
    owned = _owned(request)
    if (
        epoch < member.epoch
        and epoch == member.previous_epoch
        and owned is not None
        and owned <= member.assigned.keys()
    ):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    message = (
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
    )
    raise GroupError(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _with_request(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> ConsumerMember:
    """The member with what the request says; what it leaves out has not changed."""
    names, regex, timeout = request.subscribed_topic_names, request.subscribed_topic_regex, request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=frozenset(names) if names is not None else member.topics,
        regex=regex if regex is not None else member.regex,
        rebalance_timeout_ms=timeout if timeout != -1 else member.rebalance_timeout_ms,
        assignor=request.server_assignor if request.server_assignor is not None else member.assignor,
        classic=None,
    )


def _resubscribed(member: ConsumerMember, updated: ConsumerMember) -> bool:
    return (updated.topics, updated.regex) != (member.topics, member.regex)


def _owned(request: ConsumerGroupHeartbeatRequest) -> frozenset[TopicPartition] | None:
    if request.topic_partitions is None:
        return None
    return frozenset(
        TopicPartition(topic.topic_id, partition)
        for topic in request.topic_partitions
        for partition in topic.partitions
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """A client that says everything has lost track (it joins, or recovers from an error), and is told everything."""
    return request.member_epoch == 0 or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _assignment(member: ConsumerMember) -> Assignment:
    by_topic: dict[UUID, list[int]] = {}
    for partition in sorted(member.assigned):
        by_topic.setdefault(partition.topic_id, []).append(partition.partition)
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in by_topic.items()
        )
    )


def _compile(regex: str) -> TopicPattern:
    try:
        return TopicPattern(regex)
    except InvalidPattern as error:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
        raise GroupError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error
