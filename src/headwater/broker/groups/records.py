"""The records of `__consumer_offsets`: what each change looks like in the log, and what each record does to a group.

Formats are Kafka's (`headwater.wire.records`), so that a Kafka can take over our data directory and its tools read it.
What Kafka writes and we have no use for (ConsumerGroupPartitionMetadata, deprecated there) is ignored when read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from headwater.broker.groups.classic_state import ClassicGroup, ClassicMember, State
from headwater.broker.groups.consumer_state import (
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Owned,
    ResolvedRegex,
)
from headwater.broker.groups.effects import Record
from headwater.broker.groups.topics import TopicPartition
from headwater.wire.records import groups as wire

__all__ = [
    "CONSUMER_KEYS",
    "apply",
    "classic_from",
    "classic_gone",
    "classic_group",
    "consumer_gone",
    "current_assignment",
    "group_epoch",
    "member_gone",
    "member_metadata",
    "regex_gone",
    "regex_resolved",
    "target_epoch",
    "target_member",
]

# -- classic groups: one record has the whole group


def classic_group(
    group: ClassicGroup, assignments: Mapping[str, bytes] | None = None, *, since_ms: int | None = None
) -> Record:
    """The group's present generation, with the members' assignments or those that are about to become theirs."""
    members = tuple(
        wire.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol),
            assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    )
    value = wire.GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader if members else None,
        current_state_timestamp=group.since_ms if since_ms is None else since_ms,
        members=members,
    )
    return Record(wire.GroupMetadataKey(group=group.group_id), value)


def classic_gone(group_id: str) -> Record:
    return Record(wire.GroupMetadataKey(group=group_id), None)


def classic_from(group_id: str, value: wire.GroupMetadataValue) -> ClassicGroup:
    """The group as it was when its last generation was complete (or empty)."""
    group = ClassicGroup(
        group_id,
        state=State.STABLE if value.members else State.EMPTY,
        since_ms=value.current_state_timestamp,
        protocol_type=value.protocol_type or None,
        protocol=value.protocol,
        generation=value.generation,
    )
    for item in value.members:
        member = ClassicMember(
            item.member_id,
            item.group_instance_id,
            item.client_id,
            item.client_host,
            item.rebalance_timeout if item.rebalance_timeout >= 0 else item.session_timeout,
            item.session_timeout,
            ((value.protocol or "", bytes(item.subscription)),),
            assignment=bytes(item.assignment),
        )
        group.add(member, value.protocol_type)
    if value.leader in group.members:
        group.leader = value.leader
    return group


# -- consumer groups: a record for the epoch, and three for each member


def group_epoch(group_id: str, epoch: int, fingerprint: int) -> Record:
    return Record(
        wire.ConsumerGroupMetadataKey(group_id=group_id),
        wire.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=fingerprint),
    )


def member_metadata(group_id: str, member: ConsumerMember) -> Record:
    value = wire.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=_classic_side(member.classic),
    )
    return Record(wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_epoch(group_id: str, epoch: int) -> Record:
    return Record(
        wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        wire.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
    )


def target_member(group_id: str, member_id: str, partitions: Iterable[TopicPartition]) -> Record:
    value = wire.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=tuple(
            wire.TopicPartition(topic_id=topic_id, partitions=tuple(indexes))
            for topic_id, indexes in _by_topic(partitions).items()
        )
    )
    return Record(wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def current_assignment(group_id: str, member: ConsumerMember) -> Record:
    value = wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.revoking),
    )
    return Record(wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def regex_resolved(group_id: str, regex: str, topics: Iterable[str], version: int, wall_ms: int) -> Record:
    return Record(
        wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        wire.ConsumerGroupRegularExpressionValue(topics=tuple(sorted(topics)), version=version, timestamp=wall_ms),
    )


def regex_gone(group_id: str, regex: str) -> Record:
    return Record(wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def member_gone(group_id: str, member_id: str) -> tuple[Record, ...]:
    """In this order: a reader never sees an assignment of a member that it does not know."""
    keys = (
        wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
    )
    return tuple(Record(key, None) for key in keys)


def consumer_gone(group: ConsumerGroup) -> list[Record]:
    """Everything a consumer group has in the log, removed."""
    gone = [record for member_id in group.members for record in member_gone(group.group_id, member_id)]
    gone += [regex_gone(group.group_id, regex) for regex in group.regexes]
    gone.append(Record(wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id), None))
    gone.append(Record(wire.ConsumerGroupMetadataKey(group_id=group.group_id), None))
    return gone


def consumer_records(group: ConsumerGroup) -> list[Record]:
    """Everything of a group that has just come to be (by an upgrade)."""
    written = [member_metadata(group.group_id, member) for member in group.members.values()]
    written.append(group_epoch(group.group_id, group.epoch, group.metadata_hash))
    written += [target_member(group.group_id, member_id, target) for member_id, target in group.target.items()]
    written.append(target_epoch(group.group_id, group.assignment_epoch))
    written += [current_assignment(group.group_id, member) for member in group.members.values()]
    return written


CONSUMER_KEYS = (
    wire.ConsumerGroupMetadataKey,
    wire.ConsumerGroupMemberMetadataKey,
    wire.ConsumerGroupTargetAssignmentMetadataKey,
    wire.ConsumerGroupTargetAssignmentMemberKey,
    wire.ConsumerGroupCurrentMemberAssignmentKey,
    wire.ConsumerGroupRegularExpressionKey,
)
"""Records of these keys have `group_id` and are for `apply`."""


def apply(group: ConsumerGroup, record: Record) -> None:
    """What the record says becomes so. Tombstones for what is not there do nothing: replay may see them first."""
    _APPLIERS[type(record.key)](group, record.key, record.value)


def _apply_epoch(group: ConsumerGroup, _key: Any, value: Any) -> None:
    group.epoch, group.metadata_hash = (0, 0) if value is None else (value.epoch, value.metadata_hash)


def _apply_target_epoch(group: ConsumerGroup, _key: Any, value: Any) -> None:
    group.assignment_epoch = 0 if value is None else value.assignment_epoch


def _apply_metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.drop_member(key.member_id)
        return
    classic = value.classic_member_metadata
    member = replace(
        group.members.get(key.member_id) or ConsumerMember(key.member_id),
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicSide(
            classic.session_timeout_ms, tuple((item.name, bytes(item.metadata)) for item in classic.supported_protocols)
        ),
    )
    group.put_member(member)


def _apply_target(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.target.pop(key.member_id, None)
    else:
        group.target[key.member_id] = frozenset(
            TopicPartition(topic.topic_id, partition)
            for topic in value.topic_partitions
            for partition in topic.partitions
        )


def _apply_assignment(group: ConsumerGroup, key: Any, value: Any) -> None:
    member = group.members.get(key.member_id)
    if value is None:
        if member is not None:
            group.put_member(replace(member, assigned={}, revoking={}))
        return
    member = replace(
        member or ConsumerMember(key.member_id),
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=_epochs_of(value.assigned_partitions, value.member_epoch),
        revoking=_epochs_of(value.partitions_pending_revocation, value.member_epoch),
    )
    group.put_member(member)


def _apply_regex(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.regexes.pop(key.regular_expression, None)
    else:
        group.regexes[key.regular_expression] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)


_APPLIERS: dict[Any, Callable[[ConsumerGroup, Any, Any], None]] = {
    wire.ConsumerGroupMetadataKey: _apply_epoch,
    wire.ConsumerGroupMemberMetadataKey: _apply_metadata,
    wire.ConsumerGroupTargetAssignmentMetadataKey: _apply_target_epoch,
    wire.ConsumerGroupTargetAssignmentMemberKey: _apply_target,
    wire.ConsumerGroupCurrentMemberAssignmentKey: _apply_assignment,
    wire.ConsumerGroupRegularExpressionKey: _apply_regex,
}


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        found.setdefault(topic_id, []).append(partition)
    return found


def _with_epochs(owned: Owned) -> tuple[wire.TopicPartitions, ...]:
    return tuple(
        wire.TopicPartitions(
            topic_id=topic_id,
            partitions=tuple(indexes),
            assignment_epochs=tuple(owned[TopicPartition(topic_id, index)] for index in indexes),
        )
        for topic_id, indexes in _by_topic(owned).items()
    )


def _epochs_of(topics: Iterable[Any], member_epoch: int) -> Owned:
    """Records of a Kafka before 4.3 have no epochs: the member's own is then the strictest that is true."""
    owned: dict[TopicPartition, int] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or (member_epoch,) * len(topic.partitions)
        for partition, epoch in zip(topic.partitions, epochs, strict=True):
            owned[TopicPartition(topic.topic_id, partition)] = epoch
    return owned


def _classic_side(side: ClassicSide | None) -> wire.ClassicMemberMetadata | None:
    if side is None:
        return None
    return wire.ClassicMemberMetadata(
        session_timeout_ms=side.session_timeout_ms,
        supported_protocols=tuple(wire.ClassicProtocol(name=name, metadata=data) for name, data in side.protocols),
    )
