"""One task: the rows of one partition of a batch go through the operator, its state goes from version N to N+1.

The task layer is the same in Spark and in the harness. It hands the step its rows by input, keeps time (when the input
carries it), checks what the step gives back, and counts.
"""

from __future__ import annotations

import time as system_time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.pipeline.stateful.base import MemoryBase
from headwater.pipeline.stateful.errors import StepError
from headwater.pipeline.stateful.operator import LOW, MAX_TIME, MIN_TIME, ONLY, SIDE, Batch, Operator, Time
from headwater.pipeline.stateful.partition import Partition, Version, evolve
from headwater.pipeline.stateful.schema import TableSpec
from headwater.pipeline.stateful.state import State
from headwater.pipeline.time.keeper import TimeKeeper
from headwater.pipeline.time.settings import MARK, TimeSettings

__all__ = ["Counts", "Program", "Run", "Step", "empty_state", "run_in_memory", "run_task", "whole"]


@dataclass(frozen=True)
class Program:
    """What a task runs: the operator, its inputs' schemas, its output's, and how time is kept."""

    operator: Operator
    inputs: Mapping[str, pa.Schema]
    output: pa.Schema
    time: Mapping[str, TimeSettings] | None = None  # by input; None when the input carries no time

    @classmethod
    def of(
        cls, operator: Operator, inputs: Mapping[str, pa.Schema], time: Mapping[str, TimeSettings] | None = None
    ) -> Program:
        """The program, with the operator's definition checked against its inputs."""
        return cls(operator, inputs, operator.output(inputs), time)

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        kept = TimeKeeper.tables if self.time is not None else ()
        return (*self.operator.state, *kept)


@dataclass
class Counts:
    """What a task did: goes into the changelog's header, where `headwater.pipeline.watching` reads it."""

    rows_in: int = 0
    rows_out: int = 0
    ms: dict[str, float] = field(default_factory=lambda: {"read": 0.0, "step": 0.0, "write": 0.0})
    operator: dict[str, Any] = field(default_factory=dict)

    def as_json(self, version: Version | None = None) -> dict[str, Any]:
        sizes = {} if version is None else {name: list(size) for name, size in version.sizes.items()}
        ms = {name: round(value, 2) for name, value in self.ms.items()}
        return {"rows_in": self.rows_in, "rows_out": self.rows_out, "ms": ms, "state": sizes, **self.operator}


class Step:
    """The operator at work on one open version; may be fed once (a micro-batch) or many times (as rows arrive)."""

    def __init__(self, program: Program, state: State) -> None:
        self._program, self._state = program, state
        self._keeper = TimeKeeper(program.time, state) if program.time is not None else None
        self._low = MIN_TIME
        self.counts = Counts()

    def feed(self, table: pa.Table) -> pa.Table:
        """The rows that follow from these rows."""
        started = system_time.perf_counter()
        rows, time = (table, Time()) if self._keeper is None else self._keeper.take(table)
        self._low = time.low
        batch = Batch(dict(_by_input(rows, self._program.inputs)))
        out = self._program.operator.step(self._state, batch, time)
        out = self._checked(out)
        self.counts.rows_in += rows.num_rows
        self.counts.rows_out += out.num_rows
        self.counts.ms["step"] += (system_time.perf_counter() - started) * 1000
        return out

    def close(self) -> pa.Table:
        """The rows that follow from the end of all input: nothing more will come, so everything closes."""
        if self._keeper is None:
            return self._program.output.empty_table()
        batch = Batch({side: schema.empty_table() for side, schema in self._program.inputs.items()})
        time = Time(low=MAX_TIME, previous=self._low, now=MAX_TIME)
        return self._checked(self._program.operator.step(self._state, batch, time))

    def finish(self) -> Counts:
        """The counts, with the operator's notes and time's own."""
        self.counts.operator.update(self._state.notes)
        if self._keeper is not None:
            self.counts.operator["time"] = self._keeper.counts()
        return self.counts

    def _checked(self, out: pa.Table) -> pa.Table:
        wanted, name = self._program.output, type(self._program.operator).__name__
        if out.schema.equals(wanted):
            return out
        if out.schema.names != wanted.names:
            raise StepError(f"{name}.step gave columns {out.schema.names}, its output declares {wanted.names}")
        try:
            return out.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise StepError(f"{name}.step gave {out.schema}, its output declares {wanted}: {error}") from error


class Run:
    """One partition's part of a batch: an open version, fed any number of times, committed at the end."""

    def __init__(self, program: Program, partition: Partition, version: int, origin: str = "") -> None:
        self._program, self._partition, self._number = program, partition, version
        self._origin = origin  # "run of the query:number of the task", where several tasks could meet in a partition
        self._resources = ExitStack()

    def __enter__(self) -> Run:
        self._version = self._resources.enter_context(self._partition.at(self._number))
        self._step = Step(self._program, self._version.state)
        return self

    def __exit__(self, *error: object) -> None:
        self._resources.close()

    def feed(self, table: pa.Table) -> pa.Table:
        return self._step.feed(table)

    def commit(self, read_ms: float = 0.0) -> None:
        """After the last row was given and before the task ends: the state becomes the next version."""
        counts = self._step.finish()
        counts.ms["read"] = read_ms
        counts.ms["write"] = self._version.store_mark.write_ms  # of the batch before: this one's is not over yet
        reached = self._version.reached
        counts.operator["reached"] = [reached.how, reached.versions, round(reached.ms, 2)]
        if self._origin:
            counts.operator["origin"] = self._origin
        self._partition.commit(self._version, counts.as_json(self._version))


def run_task(
    program: Program, partition: Partition, version: int, tables: Iterable[pa.Table], *, as_they_come: bool = False
) -> Iterator[pa.Table]:
    """Batch `version` of one partition: one step, or `as_they_come` (Real-time Mode) one for each piece."""
    read_ms = 0.0
    with Run(program, partition, version) as run:
        started = system_time.perf_counter()
        for table in tables if as_they_come else (whole(tables),):
            read_ms += (system_time.perf_counter() - started) * 1000
            yield run.feed(table)
            started = system_time.perf_counter()
        run.commit(read_ms)


def run_in_memory(program: Program, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """A batch query: from the empty state, which is thrown away. All rows are there, so none is late, and at their end
    everything closes."""
    step, rows = Step(program, empty_state(program)), whole(tables)
    if MARK in rows.column_names:
        rows = rows.set_column(rows.column_names.index(MARK), MARK, pa.nulls(rows.num_rows, pa.int64()))
    yield step.feed(rows)
    yield step.close()


def empty_state(program: Program) -> State:
    """A state in memory with nothing in it."""
    return State(evolve((), program.tables), MemoryBase())


def whole(tables: Iterable[pa.Table]) -> pa.Table:
    """All tables as one; there is at least one, which has the schema."""
    return pa.concat_tables(list(tables)).combine_chunks()


def _by_input(rows: pa.Table, inputs: Mapping[str, pa.Schema]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each input as its own columns. In a union every input is a struct column, null in others' rows."""
    added = [LOW] if LOW in rows.column_names else []
    if set(inputs) == {ONLY}:
        yield ONLY, _as_declared(rows.select([*inputs[ONLY].names, *added]), inputs[ONLY])
        return
    sides = np.asarray(rows[SIDE].to_numpy(zero_copy_only=False)) if rows.num_rows else np.zeros(0, dtype=object)
    for name, schema in inputs.items():
        own = rows.filter(pa.array(sides == name, pa.bool_()))
        packed = own[name].combine_chunks()
        packed = packed if isinstance(packed, pa.Array) else pa.concat_arrays(packed.chunks)
        columns = dict(zip(packed.type.names, packed.flatten(), strict=True))
        columns |= {column: own[column] for column in added}
        yield name, _as_declared(pa.table(columns), schema)


def _as_declared(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the types it was declared with: Spark hands times over in its session's zone."""
    for position, given in enumerate(table.schema):
        wanted = schema.field(given.name).type if given.name in schema.names else given.type
        if given.type != wanted:
            table = table.set_column(position, given.name, table[given.name].cast(wanted))
    return table
