"""Topics as the beginning of a query: typed rows, and never a query that stops at a bad record.

    clicks = topic(spark, "clicks", connection=log, value=Json("user string, at timestamp, page string"))

Rows have the record's own columns, those of `columns.METADATA`, and one named `key` if a format for keys is given. A
record that cannot be decoded is a row whose own columns are null, with `_error` saying why and `_raw` holding the
bytes; `write_topic` sends it to the dead-letter topic of its origin. Nothing is left out on the way.

Only committed records are read. Where retention has deleted what was not read yet, the query fails and says so.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from confluent_kafka import KafkaException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.client import REQUEST_TIMEOUT_S, Connection, partitions_of
from headwater.errors import EnvironmentFailed
from headwater.pipeline.columns import (
    ERROR,
    HEADERS,
    KEY,
    METADATA,
    OFFSET,
    PARTITION,
    RAW,
    RECEIVED,
    TOPIC,
    WEIGHT,
)
from headwater.pipeline.connections import java_options
from headwater.pipeline.errors import BadOption
from headwater.pipeline.formats.base import DECODED, REASON, Format
from headwater.pipeline.formats.debezium import Debezium, as_changes
from headwater.pipeline.formats.plain import Binary, Text
from headwater.positions import Position

__all__ = ["topic"]

Start = Literal["earliest", "latest"] | str | Position | datetime
_NAMED: dict[str, Format] = {"binary": Binary(), "text": Text()}
_OWN_KEY = "key"  # the column for a decoded key


def topic(
    spark: SparkSession,
    name: str | Sequence[str] | re.Pattern[str],
    *,
    connection: Connection | str,
    value: Format | Literal["binary", "text"] = "binary",
    key: Format | Literal["binary", "text"] | None = None,
    upserts: bool = False,
    start: Start = "earliest",
    records_per_batch: int | None = None,
    streaming: bool = True,
) -> DataFrame:
    """The records of one topic, of several, or of all whose name matches a pattern, as a stream (or as a batch).

    `value`, `key`: how their bytes are read. `upserts`: the topic is a table, a null value deletes its key; rows get
    `_weight` 1, or -1 with the columns of the key. `start`: "earliest", "latest", a position or its token, or a time
    (for a query that has no checkpoint yet). `records_per_batch` bounds a micro-batch.
    """
    log = Connection(connection) if isinstance(connection, str) else connection
    names = [name] if isinstance(name, str) else [] if isinstance(name, re.Pattern) else list(name)
    if not isinstance(name, re.Pattern) and not (names and all(names)):
        raise BadOption(f"topic({name!r}): a topic has a name")
    where = f"topic({name.pattern if isinstance(name, re.Pattern) else ', '.join(names)!r})"
    values, keys = _format(value, where), None if key is None else _format(key, where)
    _check_there(log, names, where)
    options = {
        **java_options(log),
        **_selection(name, names),
        **_limits(start, records_per_batch, log, names, where),
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
    }
    reader: Any = spark.readStream if streaming else spark.read
    records = reader.format("kafka").options(**options).load()
    records = values.decoded(records, "value", names)
    if keys is not None:
        records = keys.decoded(records, "key", names)
    return _rows(records, values, keys, names, upserts=upserts, where=where)


def _rows(
    records: DataFrame, values: Format, keys: Format | None, names: Sequence[str], *, upserts: bool, where: str
) -> DataFrame:
    if isinstance(values, Debezium) and values.rows != "envelope":
        if upserts:
            raise BadOption(f"{where}: upserts goes with plain rows; Debezium(rows='upsert') says it for envelopes")
        return as_changes(records, values, _metadata(records), names)
    own = _own_columns(values.schema(names, "value"), "value" + DECODED)
    if keys is not None:
        if _OWN_KEY in own:
            raise BadOption(f"{where}: the record has a field 'key' already; leave out key=..., `_key` has its bytes")
        own[_OWN_KEY] = _decoded_key(keys, names)
    if upserts:
        own = _with_weight(own, keys, names, where)
    taken = sorted(set(own) & set(METADATA))
    if taken:
        raise BadOption(f"{where}: the record has a field {taken[0]!r}, a name that headwater uses; rename it first")
    return records.select(*(c.alias(n) for n, c in {**own, **_metadata(records)}.items()))


def _own_columns(schema: Any, decoded: str) -> dict[str, Column]:
    if not isinstance(schema, StructType):
        return {"value": F.col(decoded)}
    return {name: F.col(decoded)[name] for name in schema.fieldNames()}


def _decoded_key(keys: Format, names: Sequence[str]) -> Column:
    schema, decoded = keys.schema(names, "key"), F.col(_OWN_KEY + DECODED)
    if not isinstance(schema, StructType):
        return decoded
    return F.when(decoded.isNotNull(), F.struct(*(decoded[n].alias(n) for n in schema.fieldNames())))


def _with_weight(own: dict[str, Column], keys: Format | None, names: Sequence[str], where: str) -> dict[str, Column]:
    schema = keys.schema(names, "key") if keys is not None else None
    if not isinstance(schema, StructType):
        raise BadOption(
            f"{where}: upserts needs the key's columns to say what a null value deletes: key=Json('id ...')"
        )
    deleted = F.col("value").isNull()
    for name in schema.fieldNames():
        from_key = F.col(_OWN_KEY + DECODED)[name]
        own[name] = F.when(deleted, from_key).otherwise(own[name]) if name in own else from_key
    own[WEIGHT] = F.when(deleted, F.lit(-1)).otherwise(F.lit(1))
    return own


def _metadata(records: DataFrame) -> dict[str, Column]:
    reasons = [F.col(part + REASON) for part in ("value", "key") if part + REASON in records.columns]
    error = F.coalesce(*reasons)
    columns = {
        KEY: F.col("key"),
        TOPIC: F.col("topic"),
        PARTITION: F.col("partition"),
        OFFSET: F.col("offset"),
        RECEIVED: F.col("timestamp"),
        HEADERS: F.col("headers"),
        ERROR: error,
        RAW: F.when(error.isNotNull(), F.col("value")),
    }
    assert tuple(columns) == METADATA
    return columns


def _format(given: Format | str, where: str) -> Format:
    if isinstance(given, Format):
        return given
    if given not in _NAMED:
        hint = "; JSON needs its columns: Json('id bigint, name string')" if given == "json" else ""
        raise BadOption(f"{where}: {given!r} is not a format; say 'binary', 'text' or one of headwater.pipeline{hint}")
    return _NAMED[given]


def _check_there(log: Connection, names: Sequence[str], where: str) -> None:
    """Spark would say it when the query runs, in Kafka's words."""
    if not names:
        return
    try:
        there = log.admin().list_topics(timeout=REQUEST_TIMEOUT_S).topics
    except KafkaException as error:
        raise EnvironmentFailed(f"{where}: {log.bootstrap_servers} does not answer: {error.args[0].str()}") from error
    for name in names:
        if name not in there:
            near = difflib.get_close_matches(name, there, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "create it, or write to it first"
            raise BadOption(f"{where}: there is no topic {name!r} at {log.bootstrap_servers}; {hint}")


def _selection(name: str | Sequence[str] | re.Pattern[str], names: Sequence[str]) -> dict[str, str]:
    if isinstance(name, re.Pattern):
        return {"subscribePattern": name.pattern}
    return {"subscribe": ",".join(names)}


def _limits(start: Start, per_batch: int | None, log: Connection, names: Sequence[str], where: str) -> dict[str, str]:
    options = {}
    if per_batch is not None:
        if per_batch < 1:
            raise BadOption(f"{where}: records_per_batch is {per_batch}, but it must be 1 or more")
        options["maxOffsetsPerTrigger"] = str(per_batch)
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise BadOption(f"{where}: start is a time without a zone: datetime(..., tzinfo=UTC)")
        options["startingTimestamp"] = str(int(start.timestamp() * 1_000))
        options["startingOffsetsByTimestampStrategy"] = "latest"  # nothing that late yet: start at the end
    elif start in ("earliest", "latest"):
        options["startingOffsets"] = str(start)
    else:
        if not names:
            raise BadOption(f"{where}: a position says where topics start, not what matches a pattern; name the topics")
        position = Position.from_token(start) if isinstance(start, str) else start
        options["startingOffsets"] = json.dumps(_offsets(position, log, names))
    return options


def _offsets(position: Position, log: Connection, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Every partition, as Spark wants it; those the position does not name from their beginning."""
    earliest = -2  # Spark's word for it
    return {
        topic: {str(p): position.offsets.get((topic, p), earliest) for p in partitions_of(log, topic)}
        for topic in names
    }
