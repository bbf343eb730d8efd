"""Topics as they are now: where they end, and everything up to there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from confluent_kafka import KafkaException, Message

from headwater.client import Connection, partitions_of, watermarks
from headwater.positions import Position
from headwater.views.errors import StoreUnavailable
from headwater.views.fetching import Fetcher

__all__ = ["ends_of", "read_topic"]

SILENCE_TIMEOUT_S = 30.0  # without a record or the end of a partition, the log counts as unreachable
POLL_S = 0.1


def ends_of(connection: Connection, topics: Sequence[str]) -> Position:
    """The end of every partition for a committed reader; nothing for a topic that does not exist."""
    consumer = connection.consumer("headwater.views.ends")
    try:
        return Position({(t, p): watermarks(consumer, t, p)[1] for t in topics for p in partitions_of(connection, t)})
    except KafkaException as error:
        raise StoreUnavailable(f"the log does not answer: {error.args[0]}") from error
    finally:
        consumer.close()


def read_topic(connection: Connection, topic: str, start: Position, name: str) -> Iterator[Message]:
    """The records of a topic from `start` to where it ends now."""
    ends = ends_of(connection, [topic])
    if start.covers(ends):
        return
    fetcher, reached = Fetcher(connection, [topic], start.restrict([topic]), name), start
    deadline = time.monotonic() + SILENCE_TIMEOUT_S
    try:
        while not reached.covers(ends):
            records = fetcher.fetch(POLL_S)
            yield from records.messages
            reached = reached.merge(Position(records.ends))
            if records.ends:
                deadline = time.monotonic() + SILENCE_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise StoreUnavailable(f"{topic} cannot be read to its end within {SILENCE_TIMEOUT_S:.0f} s")
    finally:
        fetcher.close()
