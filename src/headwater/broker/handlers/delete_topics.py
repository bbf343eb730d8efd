"""DeleteTopics 1-6: by name or id. The coordinators' topics cannot be deleted: their state would be lost."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.cluster import INTERNAL_TOPICS
from headwater.broker.promise import Promise
from headwater.broker.refusals import Refusal
from headwater.broker.topics import Topic
from headwater.log.results import Appended, AppendRefused
from headwater.wire.errors import ErrorCode
from headwater.wire.fields import ZERO_UUID
from headwater.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 20


async def handle(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    wanted = request.topics or tuple(DeleteTopicState(name=name) for name in request.topic_names)
    saved: list[Promise[Appended]] = []
    results = []
    for each in wanted:
        try:
            topic = _find(call, each)
            saved.append(_delete(call, topic))
            results.append(DeletableTopicResult(name=topic.name, topic_id=topic.id))
        except Refusal as refusal:
            results.append(
                DeletableTopicResult(
                    name=each.name, topic_id=each.topic_id, error_code=refusal.code, error_message=refusal.message
                )
            )
    for promise in saved:
        await promise
    return DeleteTopicsResponse(responses=tuple(results))


def _find(call: Call, wanted: DeleteTopicState) -> Topic:
    cluster = call.broker.cluster
    by_id = wanted.topic_id != ZERO_UUID
    if by_id and wanted.name is not None:
        raise Refusal(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if not by_id and wanted.name is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if not call.broker.config.flag("delete.topic.enable"):
        raise Refusal(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    topic = cluster.topic_by_id(wanted.topic_id) if by_id else cluster.topic(wanted.name or "")
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise Refusal(code, "This server does not host this topic.")
    if topic.name in INTERNAL_TOPICS:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{topic.name} belongs to the broker and cannot be deleted")
    return topic


def _delete(call: Call, topic: Topic) -> Promise[Appended]:
    try:
        return call.broker.cluster.delete(topic)
    except AppendRefused as error:
        raise Refusal(error.code, error.message) from error
