"""DescribeTopicPartitions 0: topics in the order of their names, a page of partitions at a time.

The page ends after `response_partition_limit` partitions (at most `max.request.partition.size.limit`); its cursor
names where the next page begins.
"""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.handlers.metadata import ALL_TOPIC_OPERATIONS
from headwater.broker.topics import name_problem
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 75


def handle(call: Call, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    cluster = call.broker.cluster
    everything = not request.topics
    names = sorted(cluster.topics) if everything else sorted({topic.name for topic in request.topics})
    first_index = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names[:1] == [request.cursor.topic_name]:
            first_index = request.cursor.partition_index
    limit = call.broker.config.number("max.request.partition.size.limit")
    room = min(limit, request.response_partition_limit) if request.response_partition_limit > 0 else limit
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        topic = cluster.topic(name)
        if room <= 0:
            return _page(topics, Cursor(topic_name=name, partition_index=first_index))
        if topic is None:
            topics.append(_unknown(name))
            continue
        last = min(topic.partitions, first_index + room)
        topics.append(_describe(call, name, range(first_index, last)))
        room -= last - first_index
        if last < topic.partitions:
            return _page(topics, Cursor(topic_name=name, partition_index=last))
        first_index = 0
    return _page(topics, None)


def _page(topics: list[DescribeTopicPartitionsResponseTopic], cursor: Cursor | None) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=cursor)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    invalid = name_problem(name) is not None
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def _describe(call: Call, name: str, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    cluster = call.broker.cluster
    topic = cluster.topics[name]
    node = (cluster.node_id,)
    epoch = cluster.leader_epoch(topic)
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=tuple(
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=cluster.node_id,
                leader_epoch=epoch,
                replica_nodes=node,
                isr_nodes=node,
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
            for index in indexes
        ),
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )
