"""`headwater consume TOPIC`: read records, from the beginning, an offset, a time or the end.

Without a group every partition is read, nobody else is concerned and nothing is remembered. With `--group` the group's
positions count, and are committed for what was printed.
"""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from typing import TYPE_CHECKING

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from headwater.cli.kafka import TIMEOUT_S, add_connection, connection, moment_ms, partitions_of, said
from headwater.cli.records import line_of, text_of
from headwater.errors import BadInput

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headwater.client import Connection

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Read records, from the beginning, an offset, a time or the end."

Place = tuple[str, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--from",
        dest="start",
        default="beginning",
        metavar="WHERE",
        help="beginning, end, an offset, a time (2026-11-18T10:30) or an age (--from=-15m); default: beginning",
    )
    parser.add_argument("--partition", type=int, action="append", metavar="N", help="only these; repeatable")
    parser.add_argument("--count", type=int, metavar="N", help="stop after so many records")
    parser.add_argument("--until-end", action="store_true", help="stop at the end instead of waiting for more")
    parser.add_argument("--group", metavar="NAME", help="as a member of this group")
    parser.add_argument("--uncommitted", action="store_true", help="also records of open and aborted transactions")
    parser.add_argument("--values", action="store_true", help="only the values, as they are")
    parser.add_argument("--json", action="store_true", help="a line of JSON a record, for programs")
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    where = connection(arguments)
    with said(where, f"reading {arguments.topic}"):
        partitions = partitions_of(where.admin(), arguments.topic)
        for wanted in arguments.partition or ():
            if wanted not in partitions:
                raise BadInput(f"{arguments.topic} has no partition {wanted}, only {partitions[0]} to {partitions[-1]}")
        consumer = _consumer(where, arguments)
        try:
            consumer.list_topics(
                arguments.topic, TIMEOUT_S
            )  # without leaders, librdkafka waits a second before it reads
            if arguments.group is None:
                consumer.assign(_starts(consumer, arguments, arguments.partition or partitions))
            else:
                consumer.subscribe([arguments.topic])
            _read(consumer, arguments, len(arguments.partition or partitions))
        finally:
            consumer.close()
    return 0


def _consumer(where: Connection, arguments: argparse.Namespace) -> Consumer:
    return where.consumer(
        arguments.group or "headwater-consume",
        committed=not arguments.uncommitted,
        auto_offset_reset="latest" if arguments.start == "end" else "earliest",
        enable_auto_offset_store=False,
        enable_partition_eof=True,
        fetch_wait_max_ms=100,
    )


def _starts(consumer: Consumer, arguments: argparse.Namespace, partitions: list[int]) -> list[TopicPartition]:
    fixed = {"beginning": OFFSET_BEGINNING, "end": OFFSET_END}
    start = arguments.start
    if start in fixed or start.isdigit():
        offset = fixed[start] if start in fixed else int(start)
        return [TopicPartition(arguments.topic, p, offset) for p in partitions]
    at_ms = moment_ms(start)
    if at_ms is None:
        raise BadInput(f"--from {start!r} is none of: beginning, end, an offset, a time, an age such as -15m")
    wanted = [TopicPartition(arguments.topic, p, at_ms) for p in partitions]
    return list(consumer.offsets_for_times(wanted, TIMEOUT_S))


def _read(consumer: Consumer, arguments: argparse.Namespace, partitions: int) -> None:
    """Print until there were enough, or every partition's end was seen if that is wanted."""
    shown, at_end = 0, set[int]()
    while shown != arguments.count:
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            _show(message, arguments)
            shown += 1
            at_end.discard(int(message.partition() or 0))
            if arguments.group is not None:
                consumer.store_offsets(message=message)
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(int(message.partition() or 0))
            sys.stdout.flush()
            if arguments.until_end and len(at_end) >= _expected(consumer, arguments, partitions):
                break
        else:
            raise KafkaException(error)
    if arguments.group is not None and shown:
        consumer.commit(asynchronous=False)


def _expected(consumer: Consumer, arguments: argparse.Namespace, partitions: int) -> int:
    """A group's member has only its share of the partitions."""
    return len(consumer.assignment()) if arguments.group is not None else partitions


def _show(message: Message, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(line_of(message))
    elif arguments.values:
        print(text_of(message.value()))
    else:
        at = datetime.fromtimestamp(message.timestamp()[1] / 1000).isoformat(" ", "milliseconds")
        print(f"{message.partition()}:{message.offset()}  {at}  {text_of(message.key())}  {text_of(message.value())}")
