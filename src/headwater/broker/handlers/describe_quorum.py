"""DescribeQuorum 0-2: who keeps the cluster's metadata, which is this broker alone."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.metadata_log import CLUSTER_METADATA
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 55


def handle(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    host, port = call.peer.endpoint
    return DescribeQuorumResponse(
        topics=tuple(
            TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(_partition(call, topic.topic_name, p.partition_index) for p in topic.partitions),
            )
            for topic in request.topics
        ),
        nodes=(
            Node(node_id=call.broker.cluster.node_id, listeners=(Listener(name="PLAINTEXT", host=host, port=port),)),
        ),
    )


def _partition(call: Call, topic: str, index: int) -> PartitionData:
    partition = call.broker.logs.partition(topic, index)
    if topic != CLUSTER_METADATA or partition is None:
        return PartitionData(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log, node = partition.log, call.broker.cluster.node_id
    voter = ReplicaState(
        replica_id=node,
        log_end_offset=log.log_end_offset,
        last_fetch_timestamp=call.now_ms,
        last_caught_up_timestamp=call.now_ms,
    )
    return PartitionData(
        partition_index=index,
        leader_id=node,
        leader_epoch=partition.leader_epoch,
        high_watermark=log.high_watermark,
        current_voters=(voter,),
    )
