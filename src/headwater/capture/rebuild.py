"""A table's content from its topic alone: every record from offset 0, nothing else.

Each record is applied in the order of its partition: a row replaces the row of its key, a delete or a tombstone removes
it, a truncate empties the partition. Rows without a key are counted. A large value that an update did not touch
(Debezium's placeholder) is the one that the row had before.

The rows are kept in a temporary file (SQLite's), so that memory does not grow with the table.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from confluent_kafka import KafkaException, Message, TopicPartition

from headwater.capture.errors import CaptureError, LogUnavailable
from headwater.capture.schema import UNAVAILABLE
from headwater.client import Connection, partitions_of, watermarks

__all__ = ["Event", "Rebuilt", "canonical", "read_events", "rebuild"]

READ_TIMEOUT_S = 30.0  # without a single record: the broker counts as away
BATCH_RECORDS = 10_000
POLL_S = 0.1

_TEXT = UNAVAILABLE.decode()
_PLACEHOLDERS: tuple[Any, ...] = (
    _TEXT,
    [_TEXT],
    b64encode(UNAVAILABLE).decode(),
    [b64encode(UNAVAILABLE).decode()],
    UNAVAILABLE.hex(),
    [UNAVAILABLE.hex()],
    list(UNAVAILABLE),
)

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(order="sorted").encode


def canonical(text: bytes) -> bytes:
    """Equal JSON as equal bytes."""
    return _encode(_decode(text))


class Event(msgspec.Struct):
    """One record of a captured table's topic, in any of the three forms."""

    partition: int
    key: bytes | None  # canonical, without a schema
    op: str  # c, u, r, d, t; "d" for a tombstone
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    source: Mapping[str, Any]


class Rebuilt:
    """The rows of one topic so far; close it to remove the temporary file."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)  # "": a file that vanishes with the connection
        self._database.execute("CREATE TABLE keyed (key BLOB PRIMARY KEY, partition INT, row BLOB) WITHOUT ROWID")
        self._database.execute("CREATE TABLE bare (row BLOB PRIMARY KEY, partition INT, count INT) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def apply(self, event: Event) -> None:
        if event.op == "t":
            self._database.execute("DELETE FROM keyed WHERE partition = ?", [event.partition])
            self._database.execute("DELETE FROM bare WHERE partition = ?", [event.partition])
        elif event.key is None:
            self._count(event.partition, event.before, -1)
            self._count(event.partition, event.after, 1)
        elif event.after is None:
            self.forget(event.key)
        else:
            row = self._filled(event.key, event.after)
            self._database.execute("REPLACE INTO keyed VALUES (?, ?, ?)", [event.key, event.partition, _encode(row)])

    def _filled(self, key: bytes, row: dict[str, Any]) -> dict[str, Any]:
        unknown = [name for name, value in row.items() if value in _PLACEHOLDERS]
        if unknown and (before := self.get(key)) is not None:
            row.update((name, before[name]) for name in unknown if name in before)
        return row

    def _count(self, partition: int, row: dict[str, Any] | None, by: int) -> None:
        if row is None:
            return
        text = _encode(row)
        self._database.execute(
            "INSERT INTO bare VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
            [text, partition, by],
        )
        if by < 0:
            self._database.execute("DELETE FROM bare WHERE row = ? AND count = 0", [text])

    def get(self, key: bytes) -> dict[str, Any] | None:
        """The row of this key (canonical JSON)."""
        found = self._database.execute("SELECT row FROM keyed WHERE key = ?", [key]).fetchone()
        return None if found is None else _decode(found[0])

    def forget(self, key: bytes) -> None:
        self._database.execute("DELETE FROM keyed WHERE key = ?", [key])

    def take(self, key: bytes | None, row: bytes) -> bytes | None:
        """Remove and return the row of this key; without a key, one that equals `row`."""
        if key is None:
            found = self._database.execute("UPDATE bare SET count = count - 1 WHERE row = ? AND count > 0", [row])
            return row if found.rowcount else None
        kept = self._database.execute("DELETE FROM keyed WHERE key = ? RETURNING row", [key]).fetchone()
        return None if kept is None else bytes(kept[0])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every row; those with a key in the order of their keys."""
        for (row,) in self._database.execute("SELECT row FROM keyed ORDER BY key"):
            yield _decode(row)
        for row, count in self._database.execute("SELECT row, count FROM bare"):
            for _ in range(count):
                yield _decode(row)

    def __len__(self) -> int:
        (keyed,) = self._database.execute("SELECT count(*) FROM keyed").fetchone()
        (bare,) = self._database.execute("SELECT coalesce(sum(count), 0) FROM bare").fetchone()
        return int(keyed) + int(bare)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Rebuilt:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def rebuild(connection: Connection | str, topic: str) -> Rebuilt:
    """The table that this topic of change events tells of, as of now."""
    made = Rebuilt()
    for event in read_events(Connection(connection) if isinstance(connection, str) else connection, topic):
        made.apply(event)
    return made


def read_events(connection: Connection, topic: str) -> Iterator[Event]:
    """Everything committed in the topic so far, one partition after the other."""
    consumer = connection.consumer(f"headwater.rebuild.{uuid.uuid4().hex}")
    try:
        for partition in partitions_of(connection, topic):
            low, high = watermarks(consumer, topic, partition)
            where = TopicPartition(topic, partition, low)
            consumer.assign([where])
            end = time.monotonic() + READ_TIMEOUT_S
            while low < high and consumer.position([where])[0].offset < high:
                for message in consumer.consume(BATCH_RECORDS, POLL_S):
                    end = time.monotonic() + READ_TIMEOUT_S
                    yield _event(topic, message)
                if time.monotonic() > end:
                    raise LogUnavailable(f"{topic}-{partition} cannot be read to offset {high}")
    except KafkaException as error:
        raise LogUnavailable(f"{topic} cannot be read: {error}") from error
    finally:
        consumer.close()


def _event(topic: str, message: Message) -> Event:
    if (problem := message.error()) is not None:
        raise LogUnavailable(f"{topic} cannot be read: {problem}")
    partition, key, value = message.partition() or 0, message.key(), message.value()
    try:
        plain = None if key is None else _encode(_payload(_decode(key)))
        if value is None:
            return Event(partition, plain, "d", None, None, {})
        body = _payload(_decode(value))
        if "op" in body and "ts_ms" in body:
            return Event(partition, plain, body["op"], body["before"], body["after"], body.get("source") or {})
        return Event(partition, plain, "u", None, body, {})
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise CaptureError(f"{topic}, offset {message.offset()}: not a change event: {error!r}") from error


def _payload(body: Any) -> Any:
    """Without the schema that Connect's JSON may carry."""
    return body["payload"] if isinstance(body, dict) and body.keys() == {"schema", "payload"} else body
