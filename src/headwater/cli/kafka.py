"""What the commands that talk to a log share: how to reach it, and Kafka's errors in a user's words."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # the library's types leave it out

from headwater.client import Connection
from headwater.errors import BadInput, EnvironmentFailed
from headwater.settings import load_settings

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient

__all__ = [
    "EARLIEST",
    "LATEST",
    "TIMEOUT_S",
    "add_connection",
    "answer",
    "assignments",
    "connection",
    "moment_ms",
    "offsets",
    "partitions_of",
    "said",
]

TIMEOUT_S = 10.0  # for one request; a broker that is there answers in milliseconds

EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]

_UNREACHABLE = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_connection(parser: argparse.ArgumentParser) -> None:
    """`--bootstrap` and `--client-config`, which every one of these commands takes."""
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="the log (default: the setting log.bootstrap)")
    parser.add_argument(
        "--client-config", metavar="FILE", type=Path, help="librdkafka's settings (security and such), NAME=VALUE lines"
    )


def connection(arguments: argparse.Namespace) -> Connection:
    """Where the log is, as the command line and the settings say; its clients are quiet: errors are ours to tell."""
    settings = load_settings({"log.bootstrap": arguments.bootstrap})
    options = {"log_level": "0"}
    if arguments.client_config is not None:
        try:
            lines = arguments.client_config.read_text().splitlines()
        except OSError as error:
            raise BadInput(f"cannot read {arguments.client_config}: {error.strerror}") from error
        words = [line.strip() for line in lines]
        options.update(assignments([word for word in words if word and not word.startswith("#")], "--client-config"))
    return Connection(settings["log.bootstrap"], options)


@contextmanager
def said(where: Connection, doing: str) -> Iterator[None]:
    """Kafka's errors in these lines end the command with one line that says what to do."""
    try:
        yield
    except KafkaException as error:
        raise _explained(error.args[0], where, doing) from error


def _explained(error: Any, where: Connection, doing: str) -> Exception:
    if not isinstance(error, KafkaError):
        return EnvironmentFailed(f"{doing} failed: {error}")
    if error.code() in _UNREACHABLE:
        return EnvironmentFailed(
            f"no broker answers at {where.bootstrap_servers}; is one running there? "
            "Start one with `headwater start`, or name another with --bootstrap"
        )
    return BadInput(f"{doing} failed: {error.str()} ({error.name()})")


def answer(future: Future[Any]) -> Any:
    """What an admin request came to."""
    return future.result(TIMEOUT_S + 1)


def offsets(admin: AdminClient, places: Sequence[TopicPartition], where: Any) -> dict[tuple[str, int], int]:
    """The offset of each place at EARLIEST, at LATEST or at a time (milliseconds; -1: nothing is as late)."""
    if not places:
        return {}
    wanted = OffsetSpec.for_timestamp(where) if isinstance(where, int) else where
    found = admin.list_offsets(dict.fromkeys(places, wanted), request_timeout=TIMEOUT_S)
    return {(place.topic, place.partition): answer(future).offset for place, future in found.items()}


def partitions_of(admin: AdminClient, topic: str) -> list[int]:
    """The topic's partitions; BadInput, with what there is, when there is no such topic (it is not created)."""
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    if topic not in topics:
        import difflib

        near = difflib.get_close_matches(topic, topics, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"create it with `headwater topics create {topic}`"
        raise BadInput(f"there is no topic {topic!r}; {hint}")
    return sorted(topics[topic].partitions)


def assignments(words: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE words as a dictionary."""
    found = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name.strip():
            raise BadInput(f"{option} {word!r}: write NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def moment_ms(text: str) -> int | None:
    """A time as milliseconds since 1970: `2026-11-18`, `2026-11-18T10:30`, or `-15m` (ago). None: not a time."""
    if text[:1] == "-" and text[-1:] in _UNITS and text[1:-1].isdigit():
        ago = timedelta(seconds=int(text[1:-1]) * _UNITS[text[-1]])
        return int((datetime.now() - ago).timestamp() * 1000)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None
