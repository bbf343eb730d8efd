"""DescribeCluster 0-2: this broker, which is also the controller."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.handlers.metadata import ALL_CLUSTER_OPERATIONS, NOT_ASKED
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 60

BROKERS = 1  # endpoint type; 2 asks for controllers, which a broker's port does not tell


def handle(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of the wrong type: this one is a broker's.",
            endpoint_type=BROKERS,
        )
    cluster = call.broker.cluster
    host, port = call.peer.endpoint
    rack = call.broker.config.text("broker.rack") or None
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.node_id,
        brokers=(DescribeClusterBroker(broker_id=cluster.node_id, host=host, port=port, rack=rack),),
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
