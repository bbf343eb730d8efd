"""ConsumerGroupHeartbeat, Kafka's API 68, versions 0 to 1."""

from __future__ import annotations

from uuid import UUID

from headwater.wire.fields import Struct, array, int16, int32, string, struct, uuid

__all__ = ["Assignment", "ConsumerGroupHeartbeatRequest", "ConsumerGroupHeartbeatResponse", "TopicPartitions"]


class TopicPartitions(Struct):
    topic_id: UUID = uuid()
    partitions: tuple[int, ...] = array(int32)


class ConsumerGroupHeartbeatRequest(Struct):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: tuple[str, ...] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: tuple[TopicPartitions, ...] | None = array(TopicPartitions, nullable="0+", default=None)


class Assignment(Struct):
    topic_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+")
