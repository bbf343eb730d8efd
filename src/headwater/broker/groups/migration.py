"""Between the protocols: groups that change from one to the other, and classic clients inside a consumer group.

A classic group of consumers becomes a consumer group when the first member of the new protocol joins it, and goes back
when the last one has left. In between its classic members keep speaking JoinGroup, SyncGroup and Heartbeat: for the
group they are members like all others, whose generation is the member epoch and who revoke and take partitions by
rejoining.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from headwater.broker.groups.classic import protocols_of, requires_member_id
from headwater.broker.groups.classic_state import ClassicGroup, ClassicMember, State
from headwater.broker.groups.consumer import SESSION, ConsumerMachine, Draft
from headwater.broker.groups.consumer_state import ClassicSide, ConsumerGroup, ConsumerMember, MemberState, Owned
from headwater.broker.groups.effects import Caller, Deadline, Effects, GroupError, Token
from headwater.broker.groups.embedded import (
    PROTOCOL_TYPE,
    Assignment,
    Malformed,
    Subscription,
    encode_assignment,
)
from headwater.broker.groups.settings import GroupSettings
from headwater.broker.groups.timers import Now
from headwater.broker.groups.topics import TopicPartition, Topics, metadata_hash
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headwater.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from headwater.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["can_downgrade", "downgrade", "heartbeat", "join", "leave", "sync", "upgrade"]

REJOIN = "rejoin"  # per classic member: told that a rebalance goes on, has to join within this
RESYNC = "resync"  # per classic member: joined, has to sync within this

# -- whole groups


def upgrade(group: ClassicGroup, settings: GroupSettings, topics: Topics) -> ConsumerGroup:
    """The consumer group that a classic group becomes: same members and assignment; epochs continue its generation."""
    _refuse_upgrade(group, settings)
    upgraded = ConsumerGroup(group.group_id, epoch=group.generation, assignment_epoch=group.generation)
    try:
        for member in group.members.values():
            converted = _consumer_member(member, group, topics)
            upgraded.put_member(converted)
            upgraded.target[member.member_id] = frozenset(converted.assigned)
    except Malformed as error:
        message = (
            f"Cannot upgrade classic group {group.group_id} to consumer group because the embedded consumer protocol "
            f"is malformed."
        )
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, message) from error
    upgraded.metadata_hash = metadata_hash(upgraded.subscribed_topics(), topics)
    return upgraded


def _refuse_upgrade(group: ClassicGroup, settings: GroupSettings) -> None:
    reason = None
    if not settings.upgrades:
        reason = "online upgrade is disabled"
    elif not group.is_consumer:
        reason = "the group does not use the consumer embedded protocol"
    elif len(group.members) > settings.consumer_max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        message = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}."
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _consumer_member(member: ClassicMember, group: ClassicGroup, topics: Topics) -> ConsumerMember:
    protocol = group.protocol or group.choose_protocol()
    subscription = Subscription.decode(member.metadata(protocol))
    assigned = Assignment.decode(member.assignment) if member.assignment else None
    if assigned is not None and assigned.user_data:
        message = (
            f"Cannot upgrade classic group {group.group_id} to consumer group because an unsupported custom assignor "
            f"is in use. Please refer to the documentation or switch to a default assignor before re-attempting the "
            f"upgrade."
        )
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    owned = _with_ids(assigned.partitions if assigned is not None else frozenset(), topics)
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        frozenset(subscription.topics),
        "",
        member.rebalance_timeout_ms,
        None,
        ClassicSide(member.session_timeout_ms, member.protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=dict.fromkeys(owned, group.generation),
    )


def can_downgrade(group: ConsumerGroup, settings: GroupSettings) -> bool:
    return (
        bool(group.members)
        and all(member.classic is not None for member in group.members.values())
        and settings.downgrades
        and len(group.members) <= settings.max_size
    )


def downgrade(group: ConsumerGroup, topics: Topics, now: Now) -> ClassicGroup:
    """The classic group that is left when only classic members are; a rebalance must follow."""
    classic = ClassicGroup(
        group.group_id,
        state=State.STABLE,
        since_ms=now.wall_ms,
        protocol_type=PROTOCOL_TYPE,
        generation=group.epoch,
    )
    for member in group.members.values():
        side = member.classic
        assert side is not None
        assignment = encode_assignment(_with_names(member.assigned, topics), _version_of(side))
        classic.add(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                side.session_timeout_ms,
                side.protocols,
                assignment=assignment,
            ),
            PROTOCOL_TYPE,
        )
    classic.protocol = classic.choose_protocol()
    return classic


# -- classic clients in a consumer group


def join(  # noqa: PLR0917  # the coordinator passes a whole step on
    machine: ConsumerMachine, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, token: Token, now: Now
) -> Effects:
    """A classic member joins or rejoins: it is reconciled at once with what it says it owns."""
    member_id = request.member_id or str(uuid.uuid4())
    machine.refuse_full(member_id)
    _refuse_protocols(group, request, member_id)
    if requires_member_id(request, caller):
        return Effects().answer(token, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
    subscription = _subscription_of(request)
    draft = Draft(group)
    member = _member_for(machine, draft, request, member_id)
    updated = replace(
        member,
        instance_id=request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",
        assignor=None,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicSide(request.session_timeout_ms, protocols_of(request)),
    )
    machine.update(draft, member, updated, now)
    changed = (updated.topics, updated.regex) != (member.topics, member.regex)
    owned = _with_ids(subscription.owned, machine.topics)
    machine.reconcile(draft, member_id, owned, now, resubscribed=changed)
    final = draft.group.members[member_id]
    draft.effects.deadlines += [
        Deadline(REJOIN, member_id, None),
        Deadline(SESSION, member_id, now.mono_ms + request.session_timeout_ms),
        Deadline(RESYNC, member_id, now.mono_ms + request.rebalance_timeout_ms),
    ]
    response = JoinGroupResponse(
        generation_id=final.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        member_id=member_id,
    )
    return draft.effects.answer(token, response)


def _member_for(machine: ConsumerMachine, draft: Draft, request: JoinGroupRequest, member_id: str) -> ConsumerMember:
    group = draft.group
    if request.group_instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if request.member_id:
        return group.require_static(request.group_instance_id, member_id)
    known = group.static.get(request.group_instance_id)
    if known is None:
        return ConsumerMember(member_id, request.group_instance_id)
    return machine.replace_static(draft, group.members[known], member_id)


def _refuse_protocols(group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> None:
    """All classic members must have an assignor in common, or the group could never go back."""
    names = {protocol.name for protocol in request.protocols}
    for other_id, other in group.members.items():
        if other.classic is not None and other_id != member_id:
            names &= {name for name, _ in other.classic.protocols}
    if request.protocol_type != PROTOCOL_TYPE or not names:
        raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _subscription_of(request: JoinGroupRequest) -> Subscription:
    try:
        return Subscription.decode(bytes(request.protocols[0].metadata))
    except Malformed as error:
        raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def sync(machine: ConsumerMachine, group: ConsumerGroup, request: SyncGroupRequest, token: Token, now: Now) -> Effects:
    """The member is told what it may have now."""
    member, side = _classic_member(group, request.member_id, request.group_instance_id)
    if request.generation_id != member.epoch:
        raise GroupError(ErrorCode.ILLEGAL_GENERATION)
    protocol = side.protocols[0][0]
    if (request.protocol_type or PROTOCOL_TYPE) != PROTOCOL_TYPE or (request.protocol_name or protocol) != protocol:
        raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if member.epoch < group.epoch and member.state is not MemberState.UNREVOKED:
        raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS)
    effects = Effects()
    effects.deadlines += [
        Deadline(RESYNC, member.member_id, None),
        Deadline(SESSION, member.member_id, now.mono_ms + side.session_timeout_ms),
    ]
    assignment = encode_assignment(_with_names(member.assigned, machine.topics), _version_of(side))
    response = SyncGroupResponse(
        protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
    )
    return effects.answer(token, response)


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, token: Token, now: Now) -> Effects:
    """A classic member is made to rejoin when there is something for it to give up, or to take."""
    member, side = _classic_member(group, request.member_id, request.group_instance_id)
    if request.generation_id != member.epoch:
        raise GroupError(ErrorCode.ILLEGAL_GENERATION)
    effects = Effects()
    effects.deadlines.append(Deadline(SESSION, member.member_id, now.mono_ms + side.session_timeout_ms))
    code = ErrorCode.NONE
    if _has_to_rejoin(group, member):
        code = ErrorCode.REBALANCE_IN_PROGRESS
        if not group.timers.has(REJOIN, member.member_id):
            effects.deadlines.append(Deadline(REJOIN, member.member_id, now.mono_ms + member.rebalance_timeout_ms))
    return effects.answer(token, HeartbeatResponse(error_code=code))


def _has_to_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED:
        return True
    if member.state is MemberState.UNRELEASED:
        missing = group.target.get(member.member_id, frozenset()).difference(member.assigned)
        return all(group.owners.get(partition, member.member_id) == member.member_id for partition in missing)
    return False


def leave(machine: ConsumerMachine, group: ConsumerGroup, request: LeaveGroupRequest, token: Token) -> Effects:
    draft = Draft(group)
    answers: list[MemberResponse] = []
    leaving: dict[str, ConsumerMember] = {}
    for identity in request.members:
        code = ErrorCode.NONE
        try:
            member = _leaving(group, identity)
            leaving[member.member_id] = member
        except GroupError as error:
            code = error.code
        answers.append(
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)
        )
    if leaving:
        machine.remove(draft, leaving.values())
    return draft.effects.answer(token, LeaveGroupResponse(members=tuple(answers)))


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.group_instance_id is None:
        return group.require(identity.member_id)
    if not identity.member_id:  # an administrator removes it by its instance id
        return group.require(group.static.get(identity.group_instance_id, ""))
    return group.require_static(identity.group_instance_id, identity.member_id)


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicSide]:
    member = group.require(member_id) if instance_id is None else group.require_static(instance_id, member_id)
    if member.classic is None:
        raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member, member.classic


# -- names and ids


def _with_ids(partitions: frozenset[tuple[str, int]], topics: Topics) -> frozenset[TopicPartition]:
    """Those whose topic still exists."""
    return frozenset(
        TopicPartition(facts.topic_id, partition)
        for name, partition in partitions
        if (facts := topics.by_name(name)) is not None
    )


def _with_names(partitions: Owned, topics: Topics) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic_id, partition in partitions:
        facts = topics.by_id(topic_id)
        if facts is not None:
            found.setdefault(facts.name, []).append(partition)
    return found


def _version_of(side: ClassicSide) -> int:
    """The version of the consumer protocol that the client speaks."""
    return max(int.from_bytes(side.protocols[0][1][:2], "big", signed=True), 0)
