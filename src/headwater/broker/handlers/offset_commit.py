"""OffsetCommit 2-10: for members of either protocol and for clients that only keep offsets; topic ids from version 10.

Offsets of one turn of the loop, whoever commits them, share a batch and its fsync.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.broker.call import Call
from headwater.broker.groups.commits import Committer, Refuse, check_place
from headwater.broker.groups.driver import GroupDriver, driver_of
from headwater.broker.groups.effects import GroupError
from headwater.broker.groups.offsets import Commit, Place
from headwater.broker.promise import Promise
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 8

TOPIC_IDS_SINCE = 10
GROUP_ID_NOT_FOUND_SINCE = 9

Codes = dict[tuple[int, int], ErrorCode]
"""By position of the topic and of the partition in the request."""


def handle(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse | Promise[OffsetCommitResponse]:
    driver = driver_of(call)
    who = Committer(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        api_version=call.header.api_version,
    )
    try:
        refuse = driver.check_commit(who)
    except GroupError as error:
        return _respond(request, {}, error.code)
    codes: Codes = {}
    accepted = list(_accept(call, driver, request, refuse, codes))
    if not accepted:
        return _respond(request, codes, ErrorCode.NONE)
    answer: Promise[OffsetCommitResponse] = Promise()
    stored = driver.commit(request.group_id, accepted)
    stored.then(lambda done: answer.resolve(_respond(request, codes, done.result())))
    return answer


def _accept(
    call: Call, driver: GroupDriver, request: OffsetCommitRequest, refuse: Refuse | None, codes: Codes
) -> Iterator[tuple[Place, Commit]]:
    """What can be committed; `codes` gets why the rest cannot."""
    expires = call.now_ms + request.retention_time_ms if request.retention_time_ms >= 0 else -1
    for topic_position, topic in enumerate(request.topics):
        name = _name_of(call, driver, topic)
        topic_id = driver.topic_id(name) if name is not None else None
        for position, partition in enumerate(topic.partitions):
            if name is None or topic_id is None:
                codes[topic_position, position] = ErrorCode.UNKNOWN_TOPIC_ID
                continue
            code = _check(driver, (name, partition.partition_index), partition, refuse)
            if code is not ErrorCode.NONE:
                codes[topic_position, position] = code
                continue
            yield (
                (name, partition.partition_index),
                Commit(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    call.now_ms,
                    expires,
                    topic_id,
                ),
            )


def _check(
    driver: GroupDriver, place: Place, partition: OffsetCommitRequestPartition, refuse: Refuse | None
) -> ErrorCode:
    code = check_place(driver.coordinator, place, partition.committed_metadata)
    return refuse(place) if code is ErrorCode.NONE and refuse is not None else code


def _name_of(call: Call, driver: GroupDriver, topic: OffsetCommitRequestTopic) -> str | None:
    if call.header.api_version < TOPIC_IDS_SINCE:
        return topic.name
    facts = driver.topics.by_id(topic.topic_id)
    return facts.name if facts is not None else None


def _respond(request: OffsetCommitRequest, codes: Codes, otherwise: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get((topic_position, position), otherwise),
                    )
                    for position, partition in enumerate(topic.partitions)
                ),
            )
            for topic_position, topic in enumerate(request.topics)
        )
    )
