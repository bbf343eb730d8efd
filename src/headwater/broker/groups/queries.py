"""What administrators ask: which groups there are, and what one looks like in either protocol's description."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from headwater.broker.groups.classic_state import ClassicGroup, ClassicMember, State
from headwater.broker.groups.consumer_state import ConsumerGroup, ConsumerMember
from headwater.broker.groups.coordinator import Coordinator, Group
from headwater.broker.groups.embedded import PROTOCOL_TYPE
from headwater.broker.groups.topics import TopicPartition, Topics
from headwater.wire.errors import ErrorCode
from headwater.wire.messages import consumer_group_describe as described
from headwater.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from headwater.wire.messages.list_groups import ListedGroup

__all__ = ["AUTHORIZED_OPERATIONS", "describe_classic", "describe_consumer", "list_groups"]

# There are no access lists, so everything is allowed: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
AUTHORIZED_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
NOT_ASKED = -(2**31)

MEMBER_CLASSIC, MEMBER_CONSUMER = 0, 1  # member types of ConsumerGroupDescribe

NOT_FOUND_MESSAGES_SINCE = 6  # before this version of DescribeGroups an unknown group is simply dead


def list_groups(coordinator: Coordinator, states: Iterable[str], types: Iterable[str]) -> tuple[ListedGroup, ...]:
    """Those in one of the states and of one of the types; an empty filter lets everything pass."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {kind.lower() for kind in types}
    listed = (_listed(group) for group in coordinator.groups.values())
    return tuple(
        group
        for group in listed
        if (not wanted_states or group.group_state.lower() in wanted_states)
        and (not wanted_types or group.group_type.lower() in wanted_types)
    )


def _listed(group: Group) -> ListedGroup:
    classic = isinstance(group, ClassicGroup)
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=(group.protocol_type or "") if isinstance(group, ClassicGroup) else PROTOCOL_TYPE,
        group_state=str(group.state),
        group_type="Classic" if classic else "Consumer",
    )


def describe_classic(coordinator: Coordinator, group_id: str, version: int, *, operations: bool) -> DescribedGroup:
    """For DescribeGroups; a consumer group is not its business."""
    group = coordinator.groups.get(group_id)
    authorized = AUTHORIZED_OPERATIONS if operations else NOT_ASKED
    if not isinstance(group, ClassicGroup):
        what = "not found" if group is None else "is not a classic group"
        tell = version >= NOT_FOUND_MESSAGES_SINCE
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if tell else ErrorCode.NONE,
            error_message=f"Group {group_id} {what}." if tell else None,
            group_id=group_id,
            group_state=State.DEAD.value,
            authorized_operations=authorized,
        )
    stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=tuple(_described_member(member, group, details=stable) for member in group.members.values()),
        authorized_operations=authorized,
    )


def _described_member(member: ClassicMember, group: ClassicGroup, *, details: bool) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol) if details else b"",
        member_assignment=member.assignment if details else b"",
    )


def describe_consumer(coordinator: Coordinator, group_id: str, *, operations: bool) -> described.DescribedGroup:
    """For ConsumerGroupDescribe."""
    group = coordinator.groups.get(group_id)
    authorized = AUTHORIZED_OPERATIONS if operations else NOT_ASKED
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        return described.DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {what}.",
            group_id=group_id,
            authorized_operations=authorized,
        )
    return described.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(),
        members=tuple(_consumer_member(member, group, coordinator.topics) for member in group.members.values()),
        authorized_operations=authorized,
    )


def _consumer_member(member: ConsumerMember, group: ConsumerGroup, topics: Topics) -> described.Member:
    return described.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.regex or None,
        assignment=_assignment(member.assigned, topics),
        target_assignment=_assignment(group.target.get(member.member_id, ()), topics),
        member_type=MEMBER_CONSUMER if member.classic is None else MEMBER_CLASSIC,
    )


def _assignment(partitions: Iterable[TopicPartition], topics: Topics) -> described.Assignment:
    """Topics that are gone are left out: they have no name any more."""
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(partition)
    return described.Assignment(
        topic_partitions=tuple(
            described.TopicPartitions(topic_id=topic_id, topic_name=facts.name, partitions=tuple(indexes))
            for topic_id, indexes in by_topic.items()
            if (facts := topics.by_id(topic_id)) is not None
        )
    )
