"""Metadata 0-13: the broker, its topics and their partitions; asking for an unknown topic by name may create it.

Creation is answered at once with the new topic, where Kafka first says UNKNOWN_TOPIC_OR_PARTITION and has the client
ask again. Authorized operations, if asked for, are all of them: there are no access lists.
"""

from __future__ import annotations

from functools import lru_cache

from headwater.broker.call import Call
from headwater.broker.cluster import INTERNAL_TOPICS
from headwater.broker.topics import Topic, name_collision, name_problem
from headwater.wire.errors import ErrorCode
from headwater.wire.fields import ZERO_UUID
from headwater.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

__all__ = ["ALL_CLUSTER_OPERATIONS", "ALL_TOPIC_OPERATIONS", "API_KEY", "handle"]

API_KEY = 3

# bit n is the operation n of Kafka's access lists: everything that applies to the resource
ALL_TOPIC_OPERATIONS = 0b110111111000
ALL_CLUSTER_OPERATIONS = 0b1111110100000
NOT_ASKED = -2147483648
BY_ID_FROM = 12  # versions 10 and 11 carry topic ids, but neither Kafka nor we look topics up by them


def handle(call: Call, request: MetadataRequest) -> MetadataResponse:
    cluster = call.broker.cluster
    host, port = call.peer.endpoint
    rack = call.broker.config.text("broker.rack") or None
    everything = request.topics is None or (call.header.api_version == 0 and not request.topics)
    operations = ALL_TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if everything:
        topics = tuple(_describe(call, topic, operations) for topic in cluster.topics.values())
    else:
        topics = tuple(_find(call, request, wanted, operations) for wanted in request.topics or ())
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=cluster.node_id, host=host, port=port, rack=rack),),
        cluster_id=cluster.cluster_id,
        controller_id=cluster.node_id,
        topics=topics,
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _find(call: Call, request: MetadataRequest, wanted: MetadataRequestTopic, operations: int) -> MetadataResponseTopic:
    cluster = call.broker.cluster
    if wanted.name is None or wanted.topic_id != ZERO_UUID:
        if call.header.api_version < BY_ID_FROM:
            return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=wanted.name or "")
        topic = cluster.topic_by_id(wanted.topic_id)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
            return MetadataResponseTopic(error_code=code, topic_id=wanted.topic_id, name=None)
        return _describe(call, topic, operations)
    name = wanted.name
    topic = cluster.topic(name)
    if topic is None:
        code = _create(call, name, request.allow_auto_topic_creation)
        topic = cluster.topic(name)
        if topic is None:
            return MetadataResponseTopic(error_code=code, name=name, topic_authorized_operations=operations)
    return _describe(call, topic, operations)


def _create(call: Call, name: str, allowed: bool) -> ErrorCode:
    """Create the topic if that is wanted; what is wrong with it if it is not there afterwards."""
    broker = call.broker
    if name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if not allowed or not broker.config.flag("auto.create.topics.enable"):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if name in INTERNAL_TOPICS:
        broker.internal.ensure(name)
    elif name_collision(name, broker.cluster.topics) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        broker.cluster.create(name, broker.config.number("num.partitions"))
    return ErrorCode.NONE


def _describe(call: Call, topic: Topic, operations: int) -> MetadataResponseTopic:
    cluster = call.broker.cluster
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=_partitions(topic.partitions, cluster.node_id, cluster.leader_epoch(topic)),
        topic_authorized_operations=operations,
    )


@lru_cache(maxsize=64)  # topics are few sizes: the same partitions again and again
def _partitions(count: int, node: int, epoch: int) -> tuple[MetadataResponsePartition, ...]:
    return tuple(
        MetadataResponsePartition(
            partition_index=index, leader_id=node, leader_epoch=epoch, replica_nodes=(node,), isr_nodes=(node,)
        )
        for index in range(count)
    )
