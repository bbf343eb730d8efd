"""OffsetFetch 1-10: committed offsets of one group or several (8+), of given partitions or of all; topic ids (10).

What an open transaction is about to commit is UNSTABLE_OFFSET_COMMIT to a client that asks for stable offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from headwater.broker.call import Call
from headwater.broker.groups.commits import check_fetch
from headwater.broker.groups.driver import GroupDriver, driver_of
from headwater.broker.groups.effects import GroupError
from headwater.broker.groups.offsets import NOT_COMMITTED
from headwater.broker.promise import Promise, gather, settled
from headwater.wire.errors import ErrorCode
from headwater.wire.fields import ZERO_UUID
from headwater.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 9

GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10
TOP_LEVEL_ERROR_SINCE = 2  # version 1 has errors of partitions only


async def handle(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    version = call.header.api_version
    groups = request.groups if version >= GROUPS_SINCE else (_as_group(request, version),)
    answers = await gather([_one(call, group, request.require_stable) for group in groups])
    return OffsetFetchResponse(groups=tuple(answers)) if version >= GROUPS_SINCE else _of_one(answers[0], version)


def _one(call: Call, group: OffsetFetchRequestGroup, stable: bool) -> Promise[OffsetFetchResponseGroup]:
    driver = driver_of(call)
    answer: OffsetFetchResponseGroup | Promise[OffsetFetchResponseGroup] = driver.read(
        group.group_id, lambda: _fetch(driver, group, stable=stable, by_id=call.header.api_version >= TOPIC_IDS_SINCE)
    )
    return settled(answer) if isinstance(answer, OffsetFetchResponseGroup) else answer


def _fetch(
    driver: GroupDriver, group: OffsetFetchRequestGroup, *, stable: bool, by_id: bool
) -> OffsetFetchResponseGroup:
    try:
        check_fetch(driver.coordinator, group.group_id, group.member_id, group.member_epoch)
    except GroupError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    wanted = group.topics if group.topics is not None else _all_topics(driver, group.group_id, by_id=by_id)
    topics = tuple(_topic(driver, group.group_id, topic, stable=stable, by_id=by_id) for topic in wanted)
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _all_topics(driver: GroupDriver, group_id: str, *, by_id: bool) -> Iterable[OffsetFetchRequestTopics]:
    by_name: dict[str, list[int]] = {}
    for name, partition in driver.coordinator.offsets.places(group_id):
        by_name.setdefault(name, []).append(partition)
    for name, partitions in by_name.items():
        topic_id = driver.topic_id(name)
        if topic_id != ZERO_UUID or not by_id:
            yield OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=tuple(partitions))


def _topic(
    driver: GroupDriver, group_id: str, topic: OffsetFetchRequestTopics, *, stable: bool, by_id: bool
) -> OffsetFetchResponseTopics:
    name = _name_of(driver, topic.topic_id) if by_id else topic.name
    if name is None:
        unknown = (_nothing(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes)
        return OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=tuple(unknown))
    partitions = tuple(_partition(driver, group_id, name, index, stable=stable) for index in topic.partition_indexes)
    return OffsetFetchResponseTopics(name=name, topic_id=topic.topic_id, partitions=partitions)


def _name_of(driver: GroupDriver, topic_id: UUID) -> str | None:
    facts = driver.topics.by_id(topic_id)
    return facts.name if facts is not None else None


def _partition(
    driver: GroupDriver, group_id: str, name: str, index: int, *, stable: bool
) -> OffsetFetchResponsePartitions:
    offsets = driver.coordinator.offsets
    if stable and offsets.is_pending(group_id, (name, index)):
        return _nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    commit = offsets.get(group_id, (name, index))
    if commit is None:
        return _nothing(index, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=commit.offset,
        committed_leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
    )


def _nothing(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NOT_COMMITTED, metadata="", error_code=code
    )


# -- versions 1 to 7: one group


def _as_group(request: OffsetFetchRequest, version: int) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = tuple(
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        )
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _of_one(group: OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=tuple(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in group.topics
        ),
    )
