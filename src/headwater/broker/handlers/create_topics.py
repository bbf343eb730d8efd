"""CreateTopics 2-7: with a number of partitions, or assigned by hand (to this broker, the only one).

-1 partitions or replicas mean the broker's defaults. `validate_only` checks all of it and creates nothing.
"""

from __future__ import annotations

from collections import Counter

from headwater.broker.call import Call
from headwater.broker.configs import ConfigRefused
from headwater.broker.configs.resolve import validated
from headwater.broker.configs.topic import TOPIC_KEYS
from headwater.broker.promise import Promise
from headwater.broker.refusals import Refusal
from headwater.broker.topics import name_collision, name_problem
from headwater.log.results import Appended, AppendRefused
from headwater.wire.errors import ErrorCode
from headwater.wire.fields import ZERO_UUID
from headwater.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

__all__ = ["API_KEY", "PARTITIONS_MAX", "handle"]

API_KEY = 19

PARTITIONS_MAX = 10_000  # of one topic: each is a folder with open files, and one machine gains nothing from more


async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    saved: list[Promise[Appended]] = []
    names = Counter(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        try:
            if names[topic.name] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named more than once")
            results.append(_create(call, topic, request.validate_only, saved))
        except Refusal as refusal:
            results.append(
                CreatableTopicResult(name=topic.name, error_code=refusal.code, error_message=refusal.message)
            )
    await _all(saved)
    return CreateTopicsResponse(topics=tuple(results))


async def _all(saved: list[Promise[Appended]]) -> None:
    for promise in saved:
        await promise


def _create(
    call: Call, wanted: CreatableTopic, validate_only: bool, saved: list[Promise[Appended]]
) -> CreatableTopicResult:
    cluster = call.broker.cluster
    _check_name(call, wanted.name)
    partitions = _partitions(call, wanted)
    try:
        configs = validated(TOPIC_KEYS, {config.name: config.value for config in wanted.configs})
    except ConfigRefused as error:
        raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from error
    if not validate_only:
        try:
            saved.append(cluster.create(wanted.name, partitions, configs))
        except AppendRefused as error:
            raise Refusal(error.code, error.message) from error
    topic = cluster.topic(wanted.name)
    return CreatableTopicResult(
        name=wanted.name,
        topic_id=topic.id if topic is not None else ZERO_UUID,
        num_partitions=partitions,
        replication_factor=1,
        configs=tuple(_config(call, configs, name) for name in sorted(TOPIC_KEYS)),
    )


def _check_name(call: Call, name: str) -> None:
    problem = name_problem(name)
    if problem is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topics = call.broker.cluster.topics
    if name in topics:
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = name_collision(name, topics)
    if other is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def _partitions(call: Call, wanted: CreatableTopic) -> int:
    if wanted.assignments:
        return _assigned(call, wanted)
    if wanted.replication_factor not in (-1, 1):
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {wanted.replication_factor} time(s): this broker is the only one.",
        )
    count = wanted.num_partitions
    if count == -1:
        count = call.broker.config.number("num.partitions")
    if count < 1:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if count > PARTITIONS_MAX:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"{count} partitions are more than the {PARTITIONS_MAX} allowed.")
    return count


def _assigned(call: Call, wanted: CreatableTopic) -> int:
    if wanted.num_partitions != -1 or wanted.replication_factor != -1:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, "A manual partition assignment was given, so counts must not be (send -1)."
        )
    indexes = sorted(each.partition_index for each in wanted.assignments)
    if indexes != list(range(len(indexes))):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be assigned consecutively, starting with 0."
        )
    for each in wanted.assignments:
        check_assignment(call, each.broker_ids)
    return len(indexes)


def check_assignment(call: Call, brokers: tuple[int, ...]) -> None:
    """The replicas of a partition: this broker and no other."""
    node = call.broker.cluster.node_id
    if brokers != (node,):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The replicas {list(brokers)} cannot be: this cluster consists of broker {node}.",
        )


def _config(call: Call, configs: dict[str, str], name: str) -> CreatableTopicConfigs:
    effective = call.broker.config.explain_topic(configs, name)
    return CreatableTopicConfigs(name=name, value=effective.text, config_source=effective.source)
