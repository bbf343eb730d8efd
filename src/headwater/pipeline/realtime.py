"""The way out in Real-time Mode: Spark's own Kafka sink, milliseconds, at least once.

A batch lasts as long as its trigger says and its rows leave while it runs, so nothing can be committed together with
its end: after a crash the rows of the unfinished batch are written again. Dead letters leave the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.client import Connection
from headwater.deadletters import REASON_CHARACTERS_MAX, SUFFIX
from headwater.pipeline.columns import ERROR, HEADERS, KEY, OFFSET, PARTITION, RAW, TOPIC
from headwater.pipeline.connections import java_options

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["as_kafka_rows", "start_realtime"]

_HEADERS_TYPE = "array<struct<key:string,value:binary>>"


def start_realtime(
    df: DataFrame, topic: str | None, *, connection: Connection, query: str, checkpoint: str, batch: str
) -> StreamingQuery:
    """Start the query; `batch` is the length of a batch, of which Spark wants at least five seconds."""
    writer: Any = as_kafka_rows(df, topic, query).writeStream.format("kafka").options(**java_options(connection))
    writer = writer.queryName(query).option("checkpointLocation", checkpoint).outputMode("update")
    started: StreamingQuery = writer.trigger(realTime=batch).start()
    return started


def as_kafka_rows(df: DataFrame, topic: str | None, query: str) -> DataFrame:
    """Rows as Spark's Kafka sink takes them; those with `_error` turned into dead letters, by expressions alone."""
    columns: dict[str, Column] = {n: F.col(n) for n in ("value", "key", "partition", "headers") if n in df.columns}
    columns["topic"] = F.lit(topic) if topic is not None else F.col("topic")
    if ERROR in df.columns:
        columns = _or_letters(columns, query)
    return df.select(*(column.alias(name) for name, column in columns.items()))


def _or_letters(columns: dict[str, Column], query: str) -> dict[str, Column]:
    letter = {
        "value": F.col(RAW),
        "key": F.col(KEY),
        "topic": F.concat(F.col(TOPIC), F.lit(SUFFIX)),
        "headers": _letter_headers(query),
    }
    types = {"value": "binary", "key": "binary", "topic": "string", "headers": _HEADERS_TYPE, "partition": "int"}
    return {
        name: F.when(F.col(ERROR).isNull(), columns.get(name, F.lit(None)).cast(types[name])).otherwise(
            letter.get(name, F.lit(None))
        )
        for name in {**letter, **columns}
    }


def _letter_headers(query: str) -> Column:
    """What `headwater.deadletters` says, as expressions."""
    texts: dict[str, Column] = {
        "stage": F.lit(f"pipeline:{query}"),
        "reason": F.substring(ERROR, 1, REASON_CHARACTERS_MAX),
        "topic": F.col(TOPIC),
        "partition": F.col(PARTITION).cast("string"),
        "offset": F.col(OFFSET).cast("string"),
        "time": F.unix_millis(F.current_timestamp()).cast("string"),
    }
    own = [
        F.struct(F.lit(f"headwater.{name}").alias("key"), F.encode(text, "utf-8").alias("value"))
        for name, text in texts.items()
    ]
    return F.concat(F.array(*own), F.coalesce(F.col(HEADERS), F.array().cast(_HEADERS_TYPE)))
