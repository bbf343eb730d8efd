"""What the tasks of a stateful operator do on Spark's Python workers.

The batch's number and the query's id reach a worker as local properties of the task. The partition is the task's
number, because the exchange in front of it has exactly as many; co-partitioned, it is the row's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from headwater.pipeline.columns import PARTITION
from headwater.pipeline.errors import DefinitionError
from headwater.pipeline.stateful.plan import Plan
from headwater.pipeline.stateful.task import Run, Step, empty_state, run_in_memory, run_task, whole
from headwater.pipeline.time.marks import Marker, mark_batches

__all__ = ["by_partition", "copartitioned_task", "marking_task", "task"]

BATCH_ID, QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"  # Spark names a streaming query's jobs by its run

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def marking_task(plan: Plan, schema: pa.Schema) -> Task:
    """Stage one of time, in front of the shuffle."""
    settings, count, at_once = plan.program.time or {}, plan.options.partitions, plan.realtime

    def mark(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from mark_batches(batches, Marker(settings, schema), count, at_once=at_once)

    return mark


def task(plan: Plan, schema: pa.Schema) -> Task:
    """One partition of the operator, whose rows (of the `schema`) the exchange brought together."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        where = _here()
        tables = _tables(batches, schema)
        if where.batch is None:
            results = run_in_memory(plan.program, tables)
        else:
            partition = plan.options.partition(where.query, where.task, plan.program)
            results = run_task(plan.program, partition, where.batch, tables, as_they_come=plan.realtime)
        for table in results:
            yield from table.to_batches()

    return run


def copartitioned_task(plan: Plan, schema: pa.Schema) -> Task:
    """A task of the source's own."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = _tables(batches, schema)
        for table in run_copartitioned(plan, tables if plan.realtime else iter([whole(tables)])):
            yield from table.to_batches()

    return run


def run_copartitioned(plan: Plan, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows say which partition they belong to, and each has its own state and time."""
    where = _here()
    with ExitStack() as resources:
        runs: dict[int, tuple[Run | Step, Marker | None]] = {}
        for table in tables:
            for number, own in by_partition(table):
                if number not in runs:
                    marker = None if plan.program.time is None else Marker(plan.program.time, table.schema)
                    runs[number] = (_open_run(plan, where, number, resources), marker)
                run, marker = runs[number]
                yield run.feed(own if marker is None else _marked_here(marker, own))
        for run, _ in runs.values():
            if isinstance(run, Run):
                run.commit()


def _open_run(plan: Plan, where: _Where, number: int, resources: ExitStack) -> Run | Step:
    if where.batch is None:
        return Step(plan.program, empty_state(plan.program))
    partition = plan.options.partition(where.query, number, plan.program)
    return resources.enter_context(Run(plan.program, partition, where.batch, f"{where.run}:{where.task}"))


def _marked_here(marker: Marker, rows: pa.Table) -> pa.Table:
    return pa.concat_tables([marker.rows(rows), marker.punctuation(1), marker.ticks(rows, 1)])


def by_partition(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each of the topic's partitions."""
    numbers = table[PARTITION].combine_chunks()
    if numbers.null_count:
        raise DefinitionError(
            f"copartitioned: {numbers.null_count} rows have no {PARTITION}: are they all from a topic?"
        )
    for number in sorted(numbers.unique().to_pylist()):
        yield number, table.filter(pc.equal(numbers, number))


@dataclass(frozen=True)
class _Where:
    """Which task this is: of which query and batch (None outside of streaming)."""

    query: str
    run: str  # a query that is started again is another run
    batch: int | None
    task: int


def _here() -> _Where:
    context = TaskContext.get()
    assert context is not None
    batch, query, run = (context.getLocalProperty(name) for name in (BATCH_ID, QUERY_ID, RUN_ID))
    return _Where(query or "", run or "", None if batch is None else int(batch), context.partitionId())


def _tables(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows as they come; an empty table when none come, because the step is called all the same."""
    came = False
    for batch in batches:
        came = True
        yield pa.Table.from_batches([batch])
    if not came:
        yield schema.empty_table()
