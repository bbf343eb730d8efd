"""DeleteTopics, Kafka's API 20, versions 1 to 6."""

from __future__ import annotations

from uuid import UUID

from headwater.wire.fields import Struct, array, int16, int32, string, uuid

__all__ = ["DeletableTopicResult", "DeleteTopicState", "DeleteTopicsRequest", "DeleteTopicsResponse"]


class DeleteTopicState(Struct):
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: UUID = uuid("6+")


class DeleteTopicsRequest(Struct):
    topics: tuple[DeleteTopicState, ...] = array(DeleteTopicState, "6+")
    topic_names: tuple[str, ...] = array(string, "0-5")
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable="6+")
    topic_id: UUID = uuid("6+")
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None)


class DeleteTopicsResponse(Struct):
    throttle_time_ms: int = int32("1+")
    responses: tuple[DeletableTopicResult, ...] = array(DeletableTopicResult)
