"""`headwater topics list|describe|create|alter|delete`."""

from __future__ import annotations

import argparse
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the library's types leave some of them out
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from headwater.cli.kafka import (
    EARLIEST,
    LATEST,
    TIMEOUT_S,
    add_connection,
    answer,
    assignments,
    connection,
    offsets,
    partitions_of,
    said,
)
from headwater.cli.tables import print_rows
from headwater.errors import BadInput

__all__ = ["HELP", "add_arguments", "run"]

HELP = "List, create, describe, change and delete topics."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="every topic", description="Every topic.")
    listing.add_argument("--internal", action="store_true", help="also Kafka's own")
    describe = actions.add_parser("describe", help="partitions, offsets and settings", description="One topic.")
    create = actions.add_parser("create", help="a new topic", description="Create a topic.")
    create.add_argument("--partitions", type=int, default=-1, metavar="N", help="default: the broker's")
    create.add_argument("--replicas", type=int, default=-1, metavar="N", help="default: the broker's")
    alter = actions.add_parser("alter", help="more partitions, other settings", description="Change a topic.")
    alter.add_argument("--partitions", type=int, metavar="N", help="how many there should be: never fewer")
    alter.add_argument("--unset", action="append", default=[], metavar="NAME", help="back to the default")
    delete = actions.add_parser("delete", help="remove topics and all their records", description="Delete topics.")
    delete.add_argument("topics", nargs="+", metavar="TOPIC")
    for action in (describe, create, alter):
        action.add_argument("topic", metavar="TOPIC")
    for action in (create, alter):
        action.add_argument(
            "--config", action="append", default=[], metavar="NAME=VALUE", help="a setting, as retention.ms=60000"
        )
    for action in (listing, describe):
        action.add_argument("--json", action="store_true", help="for programs")
    for action in (listing, describe, create, alter, delete):
        add_connection(action)


def run(arguments: argparse.Namespace) -> int:
    where = connection(arguments)
    admin = where.admin()
    with said(where, f"{arguments.action} of topics" if arguments.action == "list" else arguments.action):
        _ACTIONS[arguments.action](admin, arguments)
    return 0


def _list(admin: AdminClient, arguments: argparse.Namespace) -> None:
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    shown = {name: topic for name, topic in topics.items() if arguments.internal or not name.startswith("__")}
    spans = _spans(admin, {name: list(topic.partitions) for name, topic in shown.items()})
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "records": sum(end - start for start, end in (spans[name, p] for p in topic.partitions)),
        }
        for name, topic in sorted(shown.items())
    ]
    print_rows(rows, ("topic", "partitions", "records"), as_json=arguments.json, empty="there are no topics yet")


def _describe(admin: AdminClient, arguments: argparse.Namespace) -> None:
    topic = arguments.topic
    partitions = partitions_of(admin, topic)
    spans = _spans(admin, {topic: partitions})
    rows: list[dict[str, Any]] = [
        {"partition": p, "start": spans[topic, p][0], "end": spans[topic, p][1]} for p in partitions
    ]
    settings = _own_settings(admin, topic)
    if arguments.json:
        print_rows([{"topic": topic, "partitions": rows, "settings": settings}], (), as_json=True, empty="")
        return
    print(f"{topic}: {', '.join(f'{k}={v}' for k, v in settings.items()) or 'all settings are defaults'}")
    print_rows(rows, ("partition", "start", "end"), as_json=False, empty="no partitions")


def _spans(admin: AdminClient, topics: dict[str, list[int]]) -> dict[tuple[str, int], tuple[int, int]]:
    """First offset and the one after the last, by topic and partition."""
    wanted = [TopicPartition(topic, p) for topic, partitions in topics.items() for p in partitions]
    starts, ends = offsets(admin, wanted, EARLIEST), offsets(admin, wanted, LATEST)
    return {place: (start, ends[place]) for place, start in starts.items()}


def _own_settings(admin: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = answer(admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource])
    own = (entry for entry in found.values() if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    return {entry.name: entry.value for entry in sorted(own, key=lambda entry: entry.name)}


def _create(admin: AdminClient, arguments: argparse.Namespace) -> None:
    wanted = NewTopic(
        arguments.topic,
        num_partitions=arguments.partitions,
        replication_factor=arguments.replicas,
        config=assignments(arguments.config, "--config"),
    )
    answer(admin.create_topics([wanted], request_timeout=TIMEOUT_S)[arguments.topic])
    print(f"created {arguments.topic}")


def _alter(admin: AdminClient, arguments: argparse.Namespace) -> None:
    topic = arguments.topic
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in assignments(arguments.config, "--config").items()
    ]
    entries += [ConfigEntry(n, "", incremental_operation=AlterConfigOpType.DELETE) for n in arguments.unset]
    if not entries and arguments.partitions is None:
        raise BadInput("nothing to change: give --partitions, --config or --unset")
    partitions_of(admin, topic)
    if entries:
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        answer(admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S)[resource])
    if arguments.partitions is not None:
        wanted = [NewPartitions(topic, arguments.partitions)]
        answer(admin.create_partitions(wanted, request_timeout=TIMEOUT_S)[topic])
    print(f"changed {topic}")


def _delete(admin: AdminClient, arguments: argparse.Namespace) -> None:
    for topic in arguments.topics:
        partitions_of(admin, topic)
    for topic, deleted in admin.delete_topics(arguments.topics, request_timeout=TIMEOUT_S).items():
        answer(deleted)
        print(f"deleted {topic}")


_ACTIONS = {"list": _list, "describe": _describe, "create": _create, "alter": _alter, "delete": _delete}
