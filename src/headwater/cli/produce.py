"""`headwater produce TOPIC [VALUE...]`: write records, from the command line or standard input (a line each)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headwater.cli.kafka import TIMEOUT_S, add_connection, assignments, connection, said
from headwater.cli.records import Outgoing, parse_line
from headwater.errors import EnvironmentFailed

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Write records, from the command line or standard input (a record a line)."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("values", nargs="*", metavar="VALUE", help="the records; without any, standard input's lines")
    parser.add_argument("--key", help="the key of every record")
    parser.add_argument("--key-separator", metavar="TEXT", help="what is before it in a line is the key")
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("--partition", type=int, metavar="N", help="default: by key, or any")
    parser.add_argument("--from-json", action="store_true", help="lines are as `headwater consume --json` writes them")
    parser.add_argument("--json", action="store_true", help="the result for programs")
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    where = connection(arguments)
    written: dict[int, list[int]] = {}
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            written.setdefault(int(message.partition() or 0), []).append(int(message.offset() or 0))

    with said(where, f"writing to {arguments.topic}"):
        producer = where.producer(message_timeout_ms=int(TIMEOUT_S * 1e3), linger_ms=5)
        for record in _records(arguments):
            more: dict[str, Any] = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
            partition = -1 if record.partition is None else record.partition
            while True:
                try:
                    producer.produce(
                        arguments.topic,
                        record.value,
                        record.key,
                        partition=partition,
                        headers=list(record.headers),
                        on_delivery=delivered,
                        **more,
                    )
                    break
                except BufferError:  # librdkafka's bounded queue is full: wait for deliveries
                    producer.poll(0.1)
            producer.poll(0)
        unsent = producer.flush(TIMEOUT_S + 1)
        if failed:
            from confluent_kafka import KafkaException

            raise KafkaException(failed[0])
        if unsent:
            raise EnvironmentFailed(f"{unsent} records are unacknowledged; is the broker at {where.bootstrap_servers}?")
    _report(arguments, written)
    return 0


def _records(arguments: argparse.Namespace) -> Iterator[Outgoing]:
    headers = tuple((name, value.encode()) for name, value in assignments(arguments.header, "--header").items())
    lines = arguments.values or (line.rstrip("\n") for line in sys.stdin)
    for number, line in enumerate(lines, 1):
        if arguments.from_json:
            yield parse_line(line, number)
            continue
        key, value = arguments.key, line
        if arguments.key_separator and arguments.key_separator in line:
            key, _, value = line.partition(arguments.key_separator)
        yield Outgoing(value.encode(), None if key is None else key.encode(), headers, arguments.partition)


def _report(arguments: argparse.Namespace, written: dict[int, list[int]]) -> None:
    spans = {partition: (min(offsets), max(offsets)) for partition, offsets in sorted(written.items())}
    count = sum(map(len, written.values()))
    if arguments.json:
        partitions = [{"partition": p, "first": first, "last": last} for p, (first, last) in spans.items()]
        print(json.dumps({"topic": arguments.topic, "records": count, "partitions": partitions}))
        return
    places = ", ".join(f"partition {p}: offsets {first} to {last}" for p, (first, last) in spans.items())
    print(f"{count} records written to {arguments.topic}" + (f" ({places})" if places else ""))
