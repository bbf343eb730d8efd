"""The APIs of Kafka that this package speaks: keys, names and versions, without importing a message.

The versions are those that a Kafka 4.3 broker advertises, for clients infer a broker's release from their maxima. Left
out are share groups, streams groups, telemetry, delegation tokens and what brokers and controllers say to each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Final

from headwater.wire.fields import Struct

__all__ = ["APIS", "API_VERSIONS", "FETCH", "PRODUCE", "Api"]

PRODUCE: Final = 0
FETCH: Final = 1
API_VERSIONS: Final = 18


@dataclass(frozen=True)
class Api:
    """One API; its messages are `<name>Request` and `<name>Response` of `headwater.wire.messages.<module>`."""

    key: int
    name: str
    module: str
    min_version: int  # as advertised
    max_version: int
    first_flexible: int | None
    # Produce only: versions 0 to 2 are advertised, or old librdkafka stops compressing (KAFKA-18659), but refused.
    oldest: int = -1

    def supports(self, version: int) -> bool:
        """Whether messages of this version can be decoded and encoded."""
        return max(self.min_version, self.oldest) <= version <= self.max_version

    def flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields."""
        return self.first_flexible is not None and version >= self.first_flexible

    @cached_property
    def request(self) -> type[Struct]:
        """The request's class; imports its module."""
        return self._message("Request")

    @cached_property
    def response(self) -> type[Struct]:
        """The response's class; imports its module."""
        return self._message("Response")

    def _message(self, suffix: str) -> type[Struct]:
        module = import_module(f"headwater.wire.messages.{self.module}")
        message: type[Struct] = getattr(module, self.name + suffix)
        return message


APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        Api(0, "Produce", "produce", 0, 13, 9, oldest=3),
        Api(1, "Fetch", "fetch", 4, 18, 12),
        Api(2, "ListOffsets", "list_offsets", 1, 11, 6),
        Api(3, "Metadata", "metadata", 0, 13, 9),
        Api(8, "OffsetCommit", "offset_commit", 2, 10, 8),
        Api(9, "OffsetFetch", "offset_fetch", 1, 10, 6),
        Api(10, "FindCoordinator", "find_coordinator", 0, 6, 3),
        Api(11, "JoinGroup", "join_group", 0, 9, 6),
        Api(12, "Heartbeat", "heartbeat", 0, 4, 4),
        Api(13, "LeaveGroup", "leave_group", 0, 5, 4),
        Api(14, "SyncGroup", "sync_group", 0, 5, 4),
        Api(15, "DescribeGroups", "describe_groups", 0, 6, 5),
        Api(16, "ListGroups", "list_groups", 0, 5, 3),
        Api(17, "SaslHandshake", "sasl_handshake", 0, 1, None),
        Api(18, "ApiVersions", "api_versions", 0, 4, 3),
        Api(19, "CreateTopics", "create_topics", 2, 7, 5),
        Api(20, "DeleteTopics", "delete_topics", 1, 6, 4),
        Api(21, "DeleteRecords", "delete_records", 0, 2, 2),
        Api(22, "InitProducerId", "init_producer_id", 0, 5, 2),
        Api(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 2, 4, 4),
        Api(24, "AddPartitionsToTxn", "add_partitions_to_txn", 0, 5, 3),
        Api(25, "AddOffsetsToTxn", "add_offsets_to_txn", 0, 4, 3),
        Api(26, "EndTxn", "end_txn", 0, 5, 3),
        Api(27, "WriteTxnMarkers", "write_txn_markers", 1, 2, 1),
        Api(28, "TxnOffsetCommit", "txn_offset_commit", 0, 5, 3),
        Api(29, "DescribeAcls", "describe_acls", 1, 3, 2),
        Api(30, "CreateAcls", "create_acls", 1, 3, 2),
        Api(31, "DeleteAcls", "delete_acls", 1, 3, 2),
        Api(32, "DescribeConfigs", "describe_configs", 1, 4, 4),
        Api(33, "AlterConfigs", "alter_configs", 0, 2, 2),
        Api(34, "AlterReplicaLogDirs", "alter_replica_log_dirs", 1, 2, 2),
        Api(35, "DescribeLogDirs", "describe_log_dirs", 1, 5, 2),
        Api(36, "SaslAuthenticate", "sasl_authenticate", 0, 2, 2),
        Api(37, "CreatePartitions", "create_partitions", 0, 3, 2),
        Api(42, "DeleteGroups", "delete_groups", 0, 2, 2),
        Api(43, "ElectLeaders", "elect_leaders", 0, 2, 2),
        Api(44, "IncrementalAlterConfigs", "incremental_alter_configs", 0, 1, 1),
        Api(45, "AlterPartitionReassignments", "alter_partition_reassignments", 0, 1, 0),
        Api(46, "ListPartitionReassignments", "list_partition_reassignments", 0, 0, 0),
        Api(47, "OffsetDelete", "offset_delete", 0, 0, None),
        Api(48, "DescribeClientQuotas", "describe_client_quotas", 0, 1, 1),
        Api(49, "AlterClientQuotas", "alter_client_quotas", 0, 1, 1),
        Api(50, "DescribeUserScramCredentials", "describe_user_scram_credentials", 0, 0, 0),
        Api(51, "AlterUserScramCredentials", "alter_user_scram_credentials", 0, 0, 0),
        Api(55, "DescribeQuorum", "describe_quorum", 0, 2, 0),
        Api(57, "UpdateFeatures", "update_features", 0, 2, 0),
        Api(60, "DescribeCluster", "describe_cluster", 0, 2, 0),
        Api(61, "DescribeProducers", "describe_producers", 0, 0, 0),
        Api(65, "DescribeTransactions", "describe_transactions", 0, 0, 0),
        Api(66, "ListTransactions", "list_transactions", 0, 2, 0),
        Api(68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat", 0, 1, 0),
        Api(69, "ConsumerGroupDescribe", "consumer_group_describe", 0, 1, 0),
        Api(74, "ListConfigResources", "list_config_resources", 0, 1, 0),
        Api(75, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0, 0),
    )
}
