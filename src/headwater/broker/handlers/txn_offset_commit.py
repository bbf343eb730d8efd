"""TxnOffsetCommit 0-5: offsets of a group that count when the transaction commits, and never if it aborts.

From version 5 on (transaction version 2) the group's offsets join the transaction here; before, AddOffsetsToTxn must
have come first. The member's generation is checked from version 3 on, where clients send it. Topics that do not exist
are refused one by one, like metadata that is too long; the rest is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from headwater.broker.call import Call
from headwater.broker.groups.commits import Committer, Refuse, check_place
from headwater.broker.groups.driver import GroupDriver
from headwater.broker.groups.effects import GroupError
from headwater.broker.groups.offsets import Commit, Place
from headwater.broker.transactions.driver import coordinator
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 28

KNOWS_ABORTABLE_FROM = 4
ADDS_PARTITIONS_FROM = 5

Codes = Mapping[Place, ErrorCode]


async def handle(call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    refused = await _admit(call, request)
    if refused is not ErrorCode.NONE:
        return _response(request, {}, refused)
    groups = cast("GroupDriver", call.broker.groups)
    try:
        refuse = groups.check_commit(
            Committer(
                group_id=request.group_id,
                generation=request.generation_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                transactional=True,
                api_version=call.header.api_version,
            )
        )
    except GroupError as error:
        return _response(request, {}, error.code)
    codes = {
        (topic.name, each.partition_index): _check(groups, topic.name, each, refuse)
        for topic in request.topics
        for each in topic.partitions
    }
    commits = [
        ((topic.name, each.partition_index), _commit(call, groups, topic.name, each))
        for topic in request.topics
        for each in topic.partitions
        if codes[topic.name, each.partition_index] is ErrorCode.NONE
    ]
    stored = ErrorCode.NONE
    if commits:
        stored = await groups.commit_pending(request.producer_id, request.producer_epoch, request.group_id, commits)
    return _response(request, codes, stored)


async def _admit(call: Call, request: TxnOffsetCommitRequest) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    version = call.header.api_version
    admitted = coordinator(call.broker).admit_offsets(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.group_id,
        adds_partitions=version >= ADDS_PARTITIONS_FROM,
    )
    code = admitted if isinstance(admitted, ErrorCode) else await admitted
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # what this API says for "try again"
    if code is ErrorCode.INVALID_TXN_STATE and version >= KNOWS_ABORTABLE_FROM:
        return ErrorCode.TRANSACTION_ABORTABLE
    return code


def _check(groups: GroupDriver, topic: str, each: TxnOffsetCommitRequestPartition, refuse: Refuse | None) -> ErrorCode:
    place = (topic, each.partition_index)
    code = check_place(groups.coordinator, place, each.committed_metadata)
    return refuse(place) if code is ErrorCode.NONE and refuse is not None else code


def _commit(call: Call, groups: GroupDriver, topic: str, each: TxnOffsetCommitRequestPartition) -> Commit:
    return Commit(
        offset=each.committed_offset,
        leader_epoch=each.committed_leader_epoch,
        metadata=each.committed_metadata or "",
        committed_wall_ms=call.now_ms,
        topic_id=groups.topic_id(topic),
    )


def _response(request: TxnOffsetCommitRequest, codes: Codes, otherwise: ErrorCode) -> TxnOffsetCommitResponse:
    """Each partition's own refusal, or what holds for all."""
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.get((topic.name, each.partition_index)) or otherwise,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
