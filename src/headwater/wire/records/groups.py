"""Records of `__consumer_offsets`: committed offsets, classic groups, and groups of the consumer protocol (KIP-848).

A consumer group's state is the last value of each key: its epoch, each member, each member's target assignment, and
each member's current assignment. Timestamps are in milliseconds.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from headwater.wire.fields import Struct, array, blob, int8, int32, int64, string, struct, uuid
from headwater.wire.records.keyed import KeyedRecords, RecordType

__all__ = [
    "GROUP_RECORDS",
    "ClassicMemberMetadata",
    "ClassicProtocol",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "LegacyOffsetCommitKey",
    "LegacyOffsetCommitValue",
    "MemberMetadata",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "PartitionMetadata",
    "TopicMetadata",
    "TopicPartition",
    "TopicPartitions",
]


class LegacyOffsetCommitKey(Struct):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class LegacyOffsetCommitValue(Struct):
    offset: int = int64("0")
    metadata: str = string("0")
    commit_timestamp: int = int64("0")


class OffsetCommitKey(Struct):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class OffsetCommitValue(Struct):
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: UUID = uuid("4+", tag=0)


class GroupMetadataKey(Struct):
    group: str = string("0")


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: bytes = blob()
    assignment: bytes = blob()


class GroupMetadataValue(Struct):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: tuple[MemberMetadata, ...] = array(MemberMetadata)


class ConsumerGroupMetadataKey(Struct):
    group_id: str = string("0")


class ConsumerGroupMetadataValue(Struct):
    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(Struct):
    group_id: str = string("0")


class PartitionMetadata(Struct):
    partition: int = int32()
    racks: tuple[str, ...] = array(string)


class TopicMetadata(Struct):
    topic_id: UUID = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: tuple[PartitionMetadata, ...] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(Struct):
    topics: tuple[TopicMetadata, ...] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Struct):
    group_id: str = string("0")
    member_id: str = string("0")


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = blob()


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: tuple[ClassicProtocol, ...] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Struct):
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: tuple[str, ...] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(ClassicMemberMetadata, nullable="0+", tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Struct):
    group_id: str = string("0")


class ConsumerGroupTargetAssignmentMetadataValue(Struct):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Struct):
    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartition(Struct):
    topic_id: UUID = uuid()
    partitions: tuple[int, ...] = array(int32)


class ConsumerGroupTargetAssignmentMemberValue(Struct):
    topic_partitions: tuple[TopicPartition, ...] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(Struct):
    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartitions(Struct):
    topic_id: UUID = uuid()
    partitions: tuple[int, ...] = array(int32)
    assignment_epochs: tuple[int, ...] | None = array(int32, nullable="0+", tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Struct):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions)
    partitions_pending_revocation: tuple[TopicPartitions, ...] = array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(Struct):
    group_id: str = string("0")
    regular_expression: str = string("0")


class ConsumerGroupRegularExpressionValue(Struct):
    topics: tuple[str, ...] = array(string)
    version: int = int64()
    timestamp: int = int64()


GROUP_RECORDS: Final = KeyedRecords(
    RecordType(0, LegacyOffsetCommitKey, LegacyOffsetCommitValue, 0, None),
    RecordType(1, OffsetCommitKey, OffsetCommitValue, 4, 4, written=4),
    RecordType(2, GroupMetadataKey, GroupMetadataValue, 4, 4, written=3),
    RecordType(3, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, 0, 0),
    RecordType(4, ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, 0, 0),
    RecordType(5, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, 0, 0),
    RecordType(6, ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, 0, 0),
    RecordType(7, ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, 0, 0),
    RecordType(8, ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, 0, 0),
    RecordType(16, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, 0, 0),
)
"""The kinds of records by their type's number."""
