"""What the console may change. Every action is named, confirmed by the caller, and recorded in `headwater.actions`.

A record of the audit topic: key = the action, value = JSON {"action", "time_ms", "arguments", "result"}.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from headwater.client import REQUEST_TIMEOUT_S, Connection, Writer, ensure_topics
from headwater.console.cluster import Cluster
from headwater.console.offsets import offsets
from headwater.deadletters import SUFFIX, DeadLetter
from headwater.errors import BadInput, EnvironmentFailed

__all__ = ["ACTIONS", "ACTIONS_TOPIC", "act"]

ACTIONS_TOPIC = "headwater.actions"
READ_TIMEOUT_S = 10.0


def act(cluster: Cluster, action: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Do it, record it, say what was done."""
    chosen = ACTIONS.get(action)
    if chosen is None:
        raise BadInput(f"there is no action {action!r}; there are {', '.join(ACTIONS)}")
    if arguments.get("confirm") is not True:
        raise BadInput(f'{action} changes things: repeat with "confirm": true if it is meant')
    given = {name: value for name, value in arguments.items() if name != "confirm"}
    result = chosen(cluster, given)
    _record(cluster.connection, action, given, result)
    return result


def reset_group(cluster: Cluster, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """{"group", "topic", "to": "earliest" | "latest" | a time in ms}: move a group that has no members."""
    group, topic = _text(arguments, "group"), _text(arguments, "topic")
    state = cluster.snapshot().topics.get(topic)
    if state is None:
        raise BadInput(f"there is no topic {topic!r}")
    targets = _targets(cluster, topic, list(state.latest), arguments.get("to"))
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p, o) for p, o in targets.items()])
    try:
        cluster.admin.alter_consumer_group_offsets([wanted])[group].result(REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise EnvironmentFailed(
            f"group {group} cannot be reset: {error.args[0].str()}; stop its members first"
        ) from error
    return {"group": group, "topic": topic, "offsets": targets}


def _targets(cluster: Cluster, topic: str, partitions: list[int], to: object) -> dict[int, int]:
    where = [(topic, partition) for partition in partitions]
    if to in ("earliest", "latest"):
        return {
            p: o for (_, p), o in offsets(cluster.admin, where, "earliest" if to == "earliest" else "latest").items()
        }
    if not isinstance(to, int) or isinstance(to, bool):
        raise BadInput(f"to is {to!r}: say 'earliest', 'latest' or a time in milliseconds")
    reader = cluster.connection.consumer("headwater.console.times")
    try:
        found = reader.offsets_for_times([TopicPartition(t, p, to) for t, p in where], timeout=REQUEST_TIMEOUT_S)
    finally:
        reader.close()
    ends = offsets(cluster.admin, where, "latest")
    return {each.partition: each.offset if each.offset >= 0 else ends[topic, each.partition] for each in found}


def replay_dead_letter(cluster: Cluster, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """{"topic", "partition", "offset"}: the dead letter there is produced again to where it came from."""
    topic, partition, offset = _text(arguments, "topic"), _number(arguments, "partition"), _number(arguments, "offset")
    if not topic.endswith(SUFFIX):
        raise BadInput(f"{topic} is no dead-letter topic: their names end in {SUFFIX}")
    reader = cluster.connection.consumer("headwater.console.replay")
    try:
        reader.assign([TopicPartition(topic, partition, offset)])
        message = reader.poll(READ_TIMEOUT_S)
    finally:
        reader.close()
    if message is None or message.error() is not None or message.offset() != offset:
        raise BadInput(f"there is no record {topic}/{partition}/{offset}")
    found: Any = message.headers() or []
    key, value = message.key(), message.value()
    letter = DeadLetter.from_record(
        key if isinstance(key, bytes) else None, value if isinstance(value, bytes) else None, found
    )
    with Writer(cluster.connection) as writer:
        writer.write(letter.topic, letter.value, key=letter.key, headers=list(letter.headers))
        token = writer.flush()
    return {"topic": letter.topic, "reason": letter.reason, "token": token}


ACTIONS: dict[str, Callable[[Cluster, Mapping[str, Any]], dict[str, Any]]] = {
    "reset-group": reset_group,
    "replay-dead-letter": replay_dead_letter,
}


def _record(connection: Connection, action: str, arguments: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    ensure_topics(connection, [ACTIONS_TOPIC], partitions=1)
    body = {"action": action, "time_ms": time.time_ns() // 1_000_000, "arguments": arguments, "result": result}
    with Writer(connection) as writer:
        writer.write(ACTIONS_TOPIC, json.dumps(body, default=str).encode(), key=action.encode())
        writer.flush()


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise BadInput(f"{name} is missing")
    return value


def _number(arguments: Mapping[str, Any], name: str) -> int:
    value = arguments.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadInput(f"{name} must be a number, zero or more")
    return value
