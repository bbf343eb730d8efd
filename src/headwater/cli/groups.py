"""`headwater groups list|describe|reset|delete`: members, positions, lag; reset them."""

from __future__ import annotations

import argparse
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater.cli.kafka import (
    EARLIEST,
    LATEST,
    TIMEOUT_S,
    add_connection,
    answer,
    connection,
    moment_ms,
    offsets,
    partitions_of,
    said,
)
from headwater.cli.tables import print_rows
from headwater.errors import BadInput

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Consumer groups: members, positions, lag; reset them."

_COLUMNS = ("topic", "partition", "committed", "end", "lag", "client", "host")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="every group", description="Every group.")
    describe = actions.add_parser("describe", help="positions, lag and members", description="One group.")
    reset = actions.add_parser("reset", help="put positions elsewhere", description="Move an empty group's positions.")
    reset.add_argument("--topic", required=True, metavar="TOPIC")
    reset.add_argument("--partition", type=int, action="append", metavar="N", help="only these; repeatable")
    reset.add_argument(
        "--to", required=True, metavar="WHERE", help="beginning, end, an offset, a time or an age (--to=-15m)"
    )
    reset.add_argument("--dry-run", action="store_true", help="only show what it would be")
    delete = actions.add_parser("delete", help="forget groups", description="Delete groups that have no members.")
    delete.add_argument("groups", nargs="+", metavar="GROUP")
    for action in (describe, reset):
        action.add_argument("group", metavar="GROUP")
    for action in (listing, describe, reset):
        action.add_argument("--json", action="store_true", help="for programs")
    for action in (listing, describe, reset, delete):
        add_connection(action)


def run(arguments: argparse.Namespace) -> int:
    where = connection(arguments)
    admin = where.admin()
    with said(where, f"{arguments.action} of groups" if arguments.action == "list" else arguments.action):
        _ACTIONS[arguments.action](admin, arguments)
    return 0


def _list(admin: AdminClient, arguments: argparse.Namespace) -> None:
    found = answer(admin.list_consumer_groups(request_timeout=TIMEOUT_S))
    rows = [
        {"group": each.group_id, "protocol": each.type.name.lower(), "state": each.state.name.lower()}
        for each in sorted(found.valid, key=lambda each: str(each.group_id))
    ]
    print_rows(rows, ("group", "protocol", "state"), as_json=arguments.json, empty="there are no groups yet")


def _describe(admin: AdminClient, arguments: argparse.Namespace) -> None:
    group = arguments.group
    described = answer(admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)[group])
    committed = _committed(admin, group)
    if described.state == ConsumerGroupState.DEAD and not committed:
        raise BadInput(f"there is no group {group!r}; see `headwater groups list`")
    owners = {(p.topic, p.partition): m for m in described.members for p in m.assignment.topic_partitions}
    places = sorted({*committed, *owners})
    ends = offsets(admin, [TopicPartition(*place) for place in places], LATEST)
    rows = [_row(place, committed.get(place), ends.get(place), owners.get(place)) for place in places]
    if not arguments.json:
        print(f"{group}: {described.state.name.lower()}, {len(described.members)} members")
    print_rows(rows, _COLUMNS, as_json=arguments.json, empty="nothing is committed and nobody is there")


def _row(place: tuple[str, int], committed: int | None, end: int | None, member: Any) -> dict[str, Any]:
    return {
        "topic": place[0],
        "partition": place[1],
        "committed": committed,
        "end": end,
        "lag": None if committed is None or end is None else max(0, end - committed),
        "client": None if member is None else member.client_id,
        "host": None if member is None else member.host.lstrip("/"),
    }


def _committed(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    request = [ConsumerGroupTopicPartitions(group)]
    found = answer(admin.list_consumer_group_offsets(request, request_timeout=TIMEOUT_S)[group])
    return {(p.topic, p.partition): p.offset for p in found.topic_partitions if p.offset >= 0}


def _reset(admin: AdminClient, arguments: argparse.Namespace) -> None:
    topic = arguments.topic
    partitions = arguments.partition or partitions_of(admin, topic)
    places = [TopicPartition(topic, p) for p in partitions]
    starts = offsets(admin, places, EARLIEST)
    ends = offsets(admin, places, LATEST)
    wanted = _positions(admin, arguments.to, places, starts, ends)
    before = _committed(admin, arguments.group)
    rows = [
        {"topic": topic, "partition": p, "before": before.get((topic, p)), "after": wanted[topic, p]}
        for p in partitions
    ]
    if not arguments.dry_run:
        chosen = [TopicPartition(topic, p, wanted[topic, p]) for p in partitions]
        request = [ConsumerGroupTopicPartitions(arguments.group, chosen)]
        done = answer(admin.alter_consumer_group_offsets(request, request_timeout=TIMEOUT_S)[arguments.group])
        refused = next((p.error for p in done.topic_partitions if p.error is not None), None)
        if refused is not None:
            raise BadInput(f"the positions of {arguments.group} stay: {refused.str()}; stop its members first")
    print_rows(rows, ("topic", "partition", "before", "after"), as_json=arguments.json, empty="")


def _positions(
    admin: AdminClient,
    to: str,
    places: list[TopicPartition],
    starts: dict[tuple[str, int], int],
    ends: dict[tuple[str, int], int],
) -> dict[tuple[str, int], int]:
    if to in ("beginning", "end"):
        return starts if to == "beginning" else ends
    if to.isdigit():
        return {place: min(max(int(to), starts[place]), ends[place]) for place in starts}
    at_ms = moment_ms(to)
    if at_ms is None:
        raise BadInput(f"--to {to!r} is none of: beginning, end, an offset, a time, an age such as -15m")
    found = offsets(admin, places, at_ms)
    return {place: offset if offset >= 0 else ends[place] for place, offset in found.items()}


def _delete(admin: AdminClient, arguments: argparse.Namespace) -> None:
    for group, deleted in admin.delete_consumer_groups(arguments.groups, request_timeout=TIMEOUT_S).items():
        answer(deleted)
        print(f"deleted {group}")


_ACTIONS = {"list": _list, "describe": _describe, "reset": _reset, "delete": _delete}
