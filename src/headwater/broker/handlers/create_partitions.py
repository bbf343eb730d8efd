"""CreatePartitions 0-3: a topic grows; keys written from then on may land elsewhere."""

from __future__ import annotations

from collections import Counter

from headwater.broker.call import Call
from headwater.broker.cluster import INTERNAL_TOPICS
from headwater.broker.handlers.create_topics import PARTITIONS_MAX, check_assignment
from headwater.broker.promise import Promise
from headwater.broker.refusals import Refusal
from headwater.log.results import Appended, AppendRefused
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 37


async def handle(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    saved: list[Promise[Appended]] = []
    names = Counter(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        try:
            if names[topic.name] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named more than once")
            _grow(call, topic, request.validate_only, saved)
            results.append(CreatePartitionsTopicResult(name=topic.name))
        except Refusal as refusal:
            results.append(
                CreatePartitionsTopicResult(name=topic.name, error_code=refusal.code, error_message=refusal.message)
            )
    for promise in saved:
        await promise
    return CreatePartitionsResponse(results=tuple(results))


def _grow(call: Call, wanted: CreatePartitionsTopic, validate_only: bool, saved: list[Promise[Appended]]) -> None:
    topic = call.broker.cluster.topic(wanted.name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic.")
    if topic.name in INTERNAL_TOPICS:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the keys of {topic.name} must stay where they are")
    if wanted.count == topic.partitions:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {topic.partitions} partition(s).")
    if wanted.count < topic.partitions:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {topic.partitions} partition(s); {wanted.count} would not be an "
            "increase.",
        )
    if wanted.count > PARTITIONS_MAX:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS, f"{wanted.count} partitions are more than the {PARTITIONS_MAX} allowed."
        )
    if wanted.assignments is not None:
        added = wanted.count - topic.partitions
        if len(wanted.assignments) != added:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but {len(wanted.assignments)} assignment(s) were "
                "specified.",
            )
        for each in wanted.assignments:
            check_assignment(call, each.broker_ids)
    if not validate_only:
        try:
            saved.append(call.broker.cluster.add_partitions(topic, wanted.count))
        except AppendRefused as error:
            raise Refusal(error.code, error.message) from error
