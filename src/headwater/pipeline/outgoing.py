"""From Arrow columns to Kafka records: which columns may be written, and how they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from headwater.client import Connection, ensure_topics
from headwater.deadletters import DeadLetter, dead_letter_topic
from headwater.pipeline.columns import ERROR, HEADERS, KEY, OFFSET, PARTITION, RAW, TOPIC
from headwater.pipeline.errors import BadOption, UnknownColumn, WrongType
from headwater.pipeline.transactions import Transaction

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DEAD_LETTER_COLUMNS", "check_outgoing", "send_batch"]

_TEXT = (StringType, BinaryType)
_TYPES: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "value": (_TEXT, "a string or binary"),
    "key": (_TEXT, "a string or binary"),
    "topic": ((StringType,), "a string"),
    "partition": ((IntegerType,), "an int"),
    "timestamp": ((TimestampType,), "a timestamp"),
    "headers": ((ArrayType,), "an array of struct<key: string, value: binary>"),
}
DEAD_LETTER_COLUMNS = (KEY, TOPIC, PARTITION, OFFSET, HEADERS, RAW)  # what `_error` needs beside it
ENSURED_TOPICS_MAX = 1_000  # remembered by one Python worker; past this it asks each time
_ensured: set[tuple[str, str]] = set()
_CONSUMED = frozenset({*_TYPES, *DEAD_LETTER_COLUMNS, ERROR})


def check_outgoing(schema: StructType, topic: str | None, where: str = 'format("headwater")') -> None:
    """The columns that a topic takes, or the definition error that says what is wrong."""
    names = schema.fieldNames()
    if "value" not in names:
        raise UnknownColumn("value", names, where)
    if topic is None and "topic" not in names:
        raise BadOption(f"{where}: no topic: give the option `topic`, or the rows a column `topic`")
    for column in schema.fields:
        wanted = _TYPES.get(column.name)
        if wanted is not None and not isinstance(column.dataType, wanted[0]):
            raise WrongType(column.name, column.dataType.simpleString(), wanted[1], where)
    if ERROR in names:
        for name in DEAD_LETTER_COLUMNS:
            if name not in names:
                raise UnknownColumn(name, names, f"{where}: rows with {ERROR} become dead letters, which need {name}")
    unknown = [name for name in names if name not in _CONSUMED and not name.startswith("_")]
    if unknown:
        raise BadOption(
            f"{where}: column {unknown[0]!r} is not part of a record (those are {', '.join(_TYPES)}); put it into "
            "`value`, for example with to_records(df, key=[...]) or to_json(struct(...))"
        )


def send_batch(transaction: Transaction, rows: pa.RecordBatch, topic: str | None) -> int:
    """Queue the rows of one Arrow batch, in order; how many of them were dead letters."""
    import pyarrow.compute as pc

    if ERROR not in rows.schema.names:
        _send_records(transaction, rows, topic)
        return 0
    good = pc.is_null(rows.column(ERROR))
    _send_records(transaction, rows.filter(good), topic)
    dead = rows.filter(pc.invert(good))
    for letter in _dead_letters(dead, f"pipeline:{transaction.attempt.query}"):
        topic_of_dead = dead_letter_topic(letter.topic)
        _ensure_once(transaction.connection, topic_of_dead)
        transaction.send_one(topic_of_dead, letter.key, letter.value, letter.record_headers())
    return int(dead.num_rows)


def _send_records(transaction: Transaction, rows: pa.RecordBatch, topic: str | None) -> None:
    if rows.num_rows == 0:
        return
    names = rows.schema.names
    if "headers" in names:
        _send_with_headers(transaction, rows, topic)
    elif "topic" in names:
        for name, part in _by_topic(rows):
            transaction.send(name, _messages(part), part.nbytes)
    else:
        assert topic is not None
        transaction.send(topic, _messages(rows), rows.nbytes)


def _send_with_headers(transaction: Transaction, rows: pa.RecordBatch, topic: str | None) -> None:
    headers = rows.column("headers").to_pylist()
    topics = rows.column("topic").to_pylist() if "topic" in rows.schema.names else [topic] * rows.num_rows
    for name, message, pairs in zip(topics, _messages(rows), headers, strict=True):
        more = {n: message[n] for n in ("partition", "timestamp") if n in message}
        transaction.send_one(name, message.get("key"), message["value"], _header_pairs(pairs), **more)


def _messages(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """What librdkafka's batch call takes, one dictionary a record."""
    present = [name for name in ("value", "key", "partition", "timestamp") if name in rows.schema.names]
    columns = [_values(rows.column(name), name) for name in present]
    if present == ["value", "key"]:  # nearly always; half the time of the general form
        return [{"value": value, "key": key} for value, key in zip(*columns, strict=True)]
    return [
        {name: value for name, value in zip(present, row, strict=True) if value is not None or name == "value"}
        for row in zip(*columns, strict=True)
    ]


def _values(column: pa.Array, name: str) -> list[Any]:
    import pyarrow as pa

    if name == "partition":
        return list(column.to_pylist())
    if name == "timestamp":
        return list(column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64()).to_pylist())
    return list(column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()).to_pylist())


def _by_topic(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in order."""
    import pyarrow.compute as pc

    topics = rows.column("topic")
    for name in pc.unique(topics).to_pylist():
        if name is None:
            raise BadOption('format("headwater"): the column `topic` is null in a row; every record needs its topic')
        yield name, rows.filter(pc.equal(topics, name))


def _dead_letters(rows: pa.RecordBatch, stage: str) -> Iterator[DeadLetter]:
    if rows.num_rows == 0:
        return
    now_ms = int(time.time() * 1_000)
    for row in rows.select([ERROR, *DEAD_LETTER_COLUMNS]).to_pylist():
        yield DeadLetter(
            stage=stage,
            reason=row[ERROR],
            topic=row[TOPIC],
            partition=row[PARTITION],
            offset=row[OFFSET],
            time_ms=now_ms,
            key=row[KEY],
            value=row[RAW],
            headers=tuple(_header_pairs(row[HEADERS])),
        )


def _ensure_once(connection: Connection, topic: str) -> None:
    """Dead-letter topics are made when the first letter comes; a worker asks once for each."""
    place = (connection.bootstrap_servers, topic)
    if place not in _ensured:
        ensure_topics(connection, [topic])
        if len(_ensured) < ENSURED_TOPICS_MAX:
            _ensured.add(place)


def _header_pairs(pairs: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    return [(pair["key"], pair["value"]) for pair in pairs or ()]
