"""`df.writeStream.format("headwater")`: topics written exactly once, by any number of kills and retries.

Options: `bootstrap`, `query` (the name that fences and skips by; it outlives restarts), `writers` (how many tasks the
DataFrame has: `df.repartition(n, ...)`; fixed, so that a batch cut short is completed by the same tasks), `topic`
(unless the rows have a column `topic`), `checkpointLocation`, librdkafka's own as `kafka.<name>`, and those of the
checkpoint's file system as `storage.<name>`.
`headwater.pipeline.write_topic` sets all of them.

Columns: `value` (binary or string; null is a tombstone), and optionally `key`, `topic`, `partition` (int), `timestamp`,
`headers` (array of struct<key: string, value: binary>). Rows of `topic()` that keep `_error` and it is not null go to
the dead-letter topic of their origin, in the same transaction as the rows that went well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.client import Connection
from headwater.pipeline.errors import BadOption
from headwater.pipeline.inputs import read_batch_input
from headwater.pipeline.markers import Attempt
from headwater.pipeline.outgoing import check_outgoing, send_batch
from headwater.pipeline.transactions import begin
from headwater.positions import Position

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["HeadwaterSink", "SinkOptions", "TaskWritten"]

_KAFKA_PREFIX = "kafka."
_STORAGE_PREFIX = "storage."
_WRITERS_MAX = 10_000  # tasks of one query: each is a transactional id and a partition of the coverage topic


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The sink's options, checked."""

    connection: Connection
    query: str
    writers: int
    checkpoint: str
    topic: str | None
    storage_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """From Spark's options, whose names it may have put in lower case."""
        given = {name.lower(): value for name, value in options.items()}
        missing = [
            name for name in ("bootstrap", "query", "writers", "checkpointLocation") if name.lower() not in given
        ]
        if missing:
            raise BadOption(
                f'format("headwater"): option {missing[0]!r} is missing; write_topic(df, ...) sets all that are needed'
            )
        return cls(
            Connection(given["bootstrap"], _prefixed(given, _KAFKA_PREFIX)),
            given["query"],
            _number_of_writers(given["writers"]),
            given["checkpointlocation"],
            given.get("topic"),
            _prefixed(given, _STORAGE_PREFIX),
        )


@dataclass
class TaskWritten(WriterCommitMessage):
    """What one task did in one batch."""

    task: int
    rows: int = 0
    dead_letters: int = 0
    skipped: bool = False  # it had been written before: this was a retry or a re-run
    reused: bool = False  # the producer of an earlier batch went on
    open_ms: float = 0.0  # to have a transaction, or to know that none is needed
    write_ms: float = 0.0  # rows taken from Spark, converted and queued; contains the computing of the rows
    commit_ms: float = 0.0
    outputs: Position = field(default_factory=Position)


class HeadwaterSink(DataSource):
    """The data source that `prepare_session` registers."""

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def streamWriter(self, schema: StructType, overwrite: bool) -> _Writer:
        options = SinkOptions.of(self.options)
        check_outgoing(schema, options.topic)
        return _Writer(options)


class _Writer(DataSourceStreamArrowWriter):
    """`write` runs in every task; there is nothing left to commit when all are done."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        return write_task(self._options, iterator)


def write_task(options: SinkOptions, rows: Iterator[pa.RecordBatch]) -> TaskWritten:
    """Write this task's rows, unless an earlier attempt has; always reads them all, for what is computed upstream."""
    start = time.perf_counter()
    context = TaskContext.get()
    assert context is not None
    batch = int(_property(context, "streaming.sql.batchId"))
    read = read_batch_input(options.checkpoint, batch, options.storage_options)
    attempt = Attempt(
        query=options.query,
        query_id=_property(context, "sql.streaming.queryId"),
        run_id=_property(context, "spark.jobGroup.id"),
        batch=batch,
        task=context.partitionId(),
        writers=options.writers,
        inputs=read.digest,
    )
    _check_task_number(attempt)
    transaction = begin(options.connection, attempt, read.position)
    done = TaskWritten(attempt.task, open_ms=_ms_since(start))
    if transaction is None:
        done.skipped = True
        done.rows = sum(part.num_rows for part in rows)
        return done
    done.reused = transaction.reused
    start = time.perf_counter()
    try:
        for part in rows:
            dead = send_batch(transaction, part, options.topic)
            done.dead_letters += dead
            done.rows += part.num_rows - dead
    except BaseException:
        transaction.abort()
        raise
    done.write_ms, start = _ms_since(start), time.perf_counter()
    done.outputs = transaction.commit()
    done.commit_ms = _ms_since(start)
    return done


def _prefixed(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}


def _check_task_number(attempt: Attempt) -> None:
    if attempt.task >= attempt.writers:
        raise BadOption(
            f"query {attempt.query!r} has writers={attempt.writers}, but its DataFrame has more tasks (this is task "
            f"{attempt.task}): end it with .repartition({attempt.writers}, key), or use write_topic, which does"
        )


def _property(context: TaskContext, name: str) -> str:
    value = context.getLocalProperty(name)
    if value is None:
        raise BadOption(f'format("headwater") writes streams in micro-batches; Spark gave this task no {name}')
    return value


def _number_of_writers(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 0 < number <= _WRITERS_MAX:
        raise BadOption(f'format("headwater"): writers is {text!r}, but it must be a number from 1 to {_WRITERS_MAX}')
    return number


def _ms_since(start: float) -> float:
    return (time.perf_counter() - start) * 1_000
