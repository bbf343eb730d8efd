"""Topics as the end of a query: `write_topic`, and what it takes for a DataFrame to become records.

    query = write_topic(to_records(counts, key=["user"]), "counts", connection=log, query="counts",
                        checkpoint="/data/checkpoints/counts")

Exactly once: the query's rows, its dead letters, the positions it has read and its marker are committed together (see
`transactions`). `realtime="5 seconds"` runs the query in Spark's Real-time Mode through Spark's own Kafka sink
instead: milliseconds, at least once.

Each row belongs to one of a fixed number of writing tasks, so that a batch cut short is completed by the same tasks.
A DataFrame that ends in `repartition(n, ...)`, as our operators do, has its number; any other is given one here, by
key, which keeps the order of each key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.client import Connection, ensure_topics
from headwater.pipeline.columns import ERROR, RAW
from headwater.pipeline.errors import BadOption, DefinitionError, UnknownColumn
from headwater.pipeline.outgoing import DEAD_LETTER_COLUMNS, check_outgoing
from headwater.pipeline.realtime import start_realtime
from headwater.pipeline.sink import SinkOptions, write_task
from headwater.pipeline.transactions import ensure_coverage_topic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["METRICS", "fixed_partitions", "split_bad", "write_topic"]

METRICS = "headwater.sink"  # the name under which a query's progress reports what was written
_METRICS_SCHEMA = (
    "rows long, dead_letters long, skipped int, reused int, open_ms double, write_ms double, commit_ms double"
)
_SLOWEST = ("open_ms", "write_ms", "commit_ms")

# Plan nodes that hand every partition on as it is
_KEEP_PARTITIONS = frozenset(
    {
        "Project",
        "Filter",
        "MapInArrow",
        "MapInPandas",
        "SubqueryAlias",
        "EventTimeWatermark",
        "Generate",
        "CollectMetrics",
    }
)


def write_topic(
    df: DataFrame,
    topic: str | None = None,
    *,
    connection: Connection | str,
    query: str,
    checkpoint: str,
    bad: DataFrame | None = None,
    writers: int | None = None,
    trigger: Mapping[str, Any] | None = None,
    output_mode: str = "append",
    realtime: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start a query that writes `df` to `topic` (or to the topics in its column `topic`), exactly once.

    `df` has `value` and, if wanted, `key`, `headers`, `partition`, `timestamp`, `topic`. `bad` are the rows that
    `split_bad` put aside: they go to the dead-letter topics of where they came from, in the same transactions.
    `query` names the query, its consumer group and its fencing: one name, one checkpoint. `writers`: how many tasks
    write. `trigger` is what `DataStreamWriter.trigger` takes. `realtime`: the length of Real-time Mode's batches.
    `storage_options`: of the checkpoint's file system, as operators take them.
    """
    where = f"write_topic({topic or 'by column'!r})"
    check_outgoing(df.schema, topic, where)
    if not df.isStreaming:
        raise DefinitionError(f"{where}: the DataFrame is a batch; write it with Spark's format('kafka')")
    log = Connection(connection) if isinstance(connection, str) else connection
    if topic is not None:
        ensure_topics(log, [topic])
    checkpoint = _absolute(checkpoint)
    if realtime is not None:
        if bad is not None:
            raise BadOption(
                f"{where}: Real-time Mode reads a topic once in a query; write bad in a query of its own: "
                f"write_topic(bad, {topic!r}, query={query + '-bad'!r}, checkpoint=..., ...)"
            )
        return start_realtime(df, topic, connection=log, query=query, checkpoint=checkpoint, batch=realtime)
    tasks, rows = _with_fixed_tasks(df, writers)
    if bad is not None:  # one more task, the last, for dead letters that the rows cannot carry
        tasks, rows = tasks + 1, _with_bad(rows, bad.repartition(1), where)
    ensure_coverage_topic(log, tasks)
    options = SinkOptions(log, query, tasks, checkpoint, topic, storage_options or {})
    written = rows.mapInArrow(_writing(options), _METRICS_SCHEMA).observe(METRICS, *_metrics())
    # the rows are written by then; what is left for Spark's sink is to have pulled them
    writer = written.writeStream.format("noop").queryName(query).outputMode(output_mode)
    return (
        writer.option("checkpointLocation", checkpoint).trigger(**(trigger or {"processingTime": "0 seconds"})).start()
    )


def _absolute(checkpoint: str) -> str:
    """A relative path means this process's folder; Spark's JVM and its workers may have others."""
    return checkpoint if re.match(r"[A-Za-z][\w+.-]*:", checkpoint) else str(Path(checkpoint).absolute())


def split_bad(df: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The rows of `topic()` that could be decoded, and those that could not, which `write_topic(bad=...)` takes.

    For what comes between that cannot carry `_error` along: an aggregate, a join, an operator. The topic is then read
    twice, once for each side; a query without such a step keeps `_error` in its rows and reads once.
    """
    for name in (ERROR, *DEAD_LETTER_COLUMNS):
        if name not in df.columns:
            raise UnknownColumn(name, df.columns, "split_bad: rows of topic() have what a dead letter needs")
    no_value = F.lit(None).cast("binary").alias("value")  # so that they can also be written by themselves
    bad = df.where(F.col(ERROR).isNotNull()).select(no_value, ERROR, *DEAD_LETTER_COLUMNS)
    return df.where(F.col(ERROR).isNull()).drop(ERROR, RAW), bad


def fixed_partitions(df: DataFrame) -> int | None:
    """How many tasks the DataFrame ends in, if its plan says so whatever the input: by its last `repartition(n)`."""
    plan: Any = df._jdf.queryExecution().logical()
    while str(plan.nodeName()) in _KEEP_PARTITIONS and plan.children().size() == 1:
        plan = plan.children().apply(0)
    if str(plan.nodeName()) != "RepartitionByExpression":
        return None
    number = plan.optNumPartitions()
    return int(number.get()) if number.isDefined() else None


def _with_fixed_tasks(df: DataFrame, writers: int | None) -> tuple[int, DataFrame]:
    found = fixed_partitions(df)
    if found is not None and writers in (None, found):
        return found, df
    number = writers or int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return number, df.repartition(number, _spread(df))


def _spread(df: DataFrame) -> Column:
    """By key, so that the rows of a key keep their order; by value where there is none. The same in every attempt."""
    by_value = F.xxhash64(RAW if ERROR in df.columns else "value", "value")
    return F.coalesce(F.xxhash64("key"), by_value) if "key" in df.columns else by_value


def _with_bad(rows: DataFrame, bad: DataFrame, where: str) -> DataFrame:
    for name in (ERROR, *DEAD_LETTER_COLUMNS):
        if name not in bad.columns:
            raise UnknownColumn(name, bad.columns, f"{where}: bad")
    letters = bad.select(ERROR, *DEAD_LETTER_COLUMNS)
    return rows.drop(ERROR, *DEAD_LETTER_COLUMNS).unionByName(letters, allowMissingColumns=True)


def _writing(options: SinkOptions) -> Any:
    """The step that writes a task's rows and leaves one row of figures."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        done = write_task(options, batches)
        figures = {
            "rows": pa.array([0 if done.skipped else done.rows], pa.int64()),
            "dead_letters": pa.array([done.dead_letters], pa.int64()),
            "skipped": pa.array([int(done.skipped)], pa.int32()),
            "reused": pa.array([int(done.reused)], pa.int32()),
            **{name: pa.array([getattr(done, name)], pa.float64()) for name in _SLOWEST},
        }
        yield pa.RecordBatch.from_pydict(figures)

    return write


def _metrics() -> list[Column]:
    """Sums over the tasks of a batch; of times, the slowest task's."""
    added = ("rows", "dead_letters", "skipped", "reused")
    return [
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in added),
        *(F.max(name).alias(name) for name in _SLOWEST),
        F.count(F.lit(1)).alias("tasks"),
    ]
