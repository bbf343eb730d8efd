"""The requests about offsets: commit (plain and in transactions), fetch, delete; and offsets that nobody needs now.

Each function reads the coordinator's state and returns records and a response; the offsets count when the records are
applied. Topics are names here: handlers turn topic ids into names and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headwater.broker.groups import records
from headwater.broker.groups.classic_state import ClassicGroup, State
from headwater.broker.groups.consumer_state import ConsumerGroup, ConsumerMember
from headwater.broker.groups.coordinator import Coordinator, Group
from headwater.broker.groups.effects import GroupError, Record
from headwater.broker.groups.offsets import Commit, Place
from headwater.broker.groups.timers import Now
from headwater.broker.groups.topics import TopicPartition
from headwater.errors import InvariantViolated
from headwater.wire.errors import ErrorCode
from headwater.wire.records import groups as wire

__all__ = [
    "Committer",
    "check_commit",
    "check_fetch",
    "check_place",
    "commit_record",
    "delete_group",
    "delete_offsets",
    "drop_topics",
    "forget_expired",
    "offset_gone",
]

CONSUMER_COMMIT_VERSION = 9  # members of the consumer protocol must speak at least this

Refuse = Callable[[Place], ErrorCode]


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits, as the request says."""

    group_id: str
    generation: int = -1  # or member epoch
    member_id: str = ""
    instance_id: str | None = None
    transactional: bool = False
    api_version: int = CONSUMER_COMMIT_VERSION


def check_commit(coordinator: Coordinator, who: Committer, now: Now) -> Refuse | None:
    """May they commit to this group now? Refusals are raised; what is returned refuses single partitions."""
    group = coordinator.groups.get(who.group_id)
    if group is None:
        if who.generation < 0:
            return None  # offsets without members: a group like any other once they are stored
        known = who.api_version >= CONSUMER_COMMIT_VERSION and not who.transactional
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION)
    if isinstance(group, ConsumerGroup):
        return _check_consumer_commit(coordinator, group, who)
    _check_classic_commit(coordinator, group, who, now)
    return None


def _check_classic_commit(coordinator: Coordinator, group: ClassicGroup, who: Committer, now: Now) -> None:
    if who.generation < 0 and group.state is State.EMPTY:
        return
    if who.generation >= 0 or who.member_id or who.instance_id is not None:
        group.require(who.member_id, who.instance_id)
        if who.generation != group.generation:
            raise GroupError(ErrorCode.ILLEGAL_GENERATION)
    elif not who.transactional:
        raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
    if not who.transactional and group.state is State.COMPLETING:
        raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS)
    if not who.transactional:
        coordinator.classic(group).heard_of(who.member_id, now)


def _check_consumer_commit(coordinator: Coordinator, group: ConsumerGroup, who: Committer) -> Refuse | None:
    if who.generation < 0 and not group.members:
        return None
    if who.transactional and who.generation < 0 and not who.member_id and who.instance_id is None:
        return None
    member = group.require(who.member_id)
    classic = member.classic is not None
    if not who.transactional and not classic and who.api_version < CONSUMER_COMMIT_VERSION:
        message = "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
        raise GroupError(ErrorCode.UNSUPPORTED_VERSION, message)
    if who.generation == member.epoch:
        return None
    stale = ErrorCode.ILLEGAL_GENERATION if classic or who.transactional else ErrorCode.STALE_MEMBER_EPOCH
    if who.generation > member.epoch:
        raise GroupError(stale)
    return _refuse_since_assigned(coordinator, member, who.generation, stale)


def _refuse_since_assigned(coordinator: Coordinator, member: ConsumerMember, epoch: int, stale: ErrorCode) -> Refuse:
    """An older epoch may still commit what the member has had all the time since (KIP-1251)."""

    def refuse(place: Place) -> ErrorCode:
        facts = coordinator.topics.by_name(place[0])
        if facts is None:
            return stale
        partition = TopicPartition(facts.topic_id, place[1])
        since = member.assigned.get(partition, member.revoking.get(partition))
        return ErrorCode.NONE if since is not None and since <= epoch else stale

    return refuse


def check_place(coordinator: Coordinator, place: Place, metadata: str | None) -> ErrorCode:
    """May an offset be committed there, whoever commits it?"""
    if coordinator.topics.by_name(place[0]) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if metadata is not None and len(metadata.encode()) > coordinator.settings.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def commit_record(group_id: str, place: Place, commit: Commit) -> Record:
    value = wire.OffsetCommitValue(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        commit_timestamp=commit.committed_wall_ms,
        expire_timestamp=commit.expires_wall_ms,
        topic_id=commit.topic_id,
    )
    return Record(wire.OffsetCommitKey(group=group_id, topic=place[0], partition=place[1]), value)


def offset_gone(group_id: str, place: Place) -> Record:
    return Record(wire.OffsetCommitKey(group=group_id, topic=place[0], partition=place[1]), None)


def check_fetch(coordinator: Coordinator, group_id: str, member_id: str | None, epoch: int) -> None:
    """A member of the consumer protocol must say so with its epoch (version 9); everybody else may simply ask."""
    group = coordinator.groups.get(group_id)
    if not isinstance(group, ConsumerGroup) or (member_id is None and epoch < 0):
        return
    member = group.require(member_id or "")
    if epoch != member.epoch:
        raise GroupError(ErrorCode.ILLEGAL_GENERATION if member.classic is not None else ErrorCode.STALE_MEMBER_EPOCH)


def delete_offsets(
    coordinator: Coordinator, group_id: str, places: Iterable[Place]
) -> tuple[list[Record], dict[Place, ErrorCode]]:
    """Tombstones for what is there; partitions of subscribed topics are refused one by one."""
    group = coordinator.groups.get(group_id)
    if group is None:
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if isinstance(group, ClassicGroup) and group.members and not group.is_consumer:
        raise GroupError(ErrorCode.NON_EMPTY_GROUP)
    subscribed = group.subscribed_topics()
    gone: list[Record] = []
    codes: dict[Place, ErrorCode] = {}
    for place in places:
        codes[place] = ErrorCode.NONE
        if coordinator.topics.by_name(place[0]) is None:
            codes[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif subscribed is None or place[0] in subscribed:
            codes[place] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        elif coordinator.offsets.get(group_id, place) is not None:
            gone.append(offset_gone(group_id, place))
    return gone, codes


def delete_group(coordinator: Coordinator, group_id: str) -> list[Record]:
    """Everything of a group without members."""
    group = coordinator.groups.get(group_id)
    if not group_id:
        raise GroupError(ErrorCode.INVALID_GROUP_ID)
    if group is None:
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if group.members or (isinstance(group, ClassicGroup) and group.state is not State.EMPTY):
        raise GroupError(ErrorCode.NON_EMPTY_GROUP)
    gone = [offset_gone(group_id, place) for place in coordinator.offsets.of_group(group_id)]
    return gone + _group_gone(group)


def _group_gone(group: Group) -> list[Record]:
    return [records.classic_gone(group.group_id)] if isinstance(group, ClassicGroup) else records.consumer_gone(group)


def forget_expired(coordinator: Coordinator, group_id: str, now: Now) -> list[Record]:
    """Offsets past their retention, and the group itself once it has neither members nor offsets."""
    group = coordinator.groups.get(group_id)
    if group is None:
        raise InvariantViolated(f"group {group_id} is not there to be cleaned up")
    offsets = coordinator.offsets
    subscribed = group.subscribed_topics()
    gone: list[Record] = []
    if subscribed is not None and not (isinstance(group, ClassicGroup) and group.members and not group.is_consumer):
        retention_ms = coordinator.settings.offsets_retention_ms
        expired = offsets.expired(group_id, now.wall_ms, retention_ms, _empty_since(group))
        gone = [offset_gone(group_id, place) for place in expired if place[0] not in subscribed]
    empty = not group.members and not (isinstance(group, ClassicGroup) and group.state is not State.EMPTY)
    if empty and len(gone) == len(offsets.of_group(group_id)) and not offsets.has_pending(group_id):
        gone += _group_gone(group)
    return gone


def _empty_since(group: Group) -> int | None:
    """Offsets of a classic group that had members count from when it lost the last one."""
    if isinstance(group, ClassicGroup) and group.protocol_type is not None and group.state is State.EMPTY:
        return group.since_ms
    return None


def drop_topics(coordinator: Coordinator, topics: Iterable[str]) -> dict[str, list[Record]]:
    """Tombstones by group for the offsets of topics that are no more."""
    gone_topics = frozenset(topics)
    gone: dict[str, list[Record]] = {}
    for group_id, place, _ in coordinator.offsets:
        if place[0] in gone_topics:
            gone.setdefault(group_id, []).append(offset_gone(group_id, place))
    return gone
