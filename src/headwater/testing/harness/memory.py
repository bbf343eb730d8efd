"""The engine without Spark: the same steps, marks and routing, in memory, one micro-batch after the other."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.columns import PARTITION, SIDE
from headwater.pipeline.stateful.base import MemoryBase
from headwater.pipeline.stateful.keys import KeyCodec, as_array
from headwater.pipeline.stateful.operator import MIN_TIME, ONLY
from headwater.pipeline.stateful.partition import evolve
from headwater.pipeline.stateful.schema import Column
from headwater.pipeline.stateful.state import State
from headwater.pipeline.stateful.task import Program, Step
from headwater.pipeline.time.marks import Marker
from headwater.pipeline.time.settings import NO_BEFORE, PRODUCER, TARGET, TICK, TIME, TIME_COLUMNS, TIMESTAMP
from headwater.testing.harness.nodes import Applied, Corrected, Node, Source, Timed, schema_of
from headwater.testing.harness.script import Batch, Fed, Ticked

__all__ = ["MemoryRun"]


class MemoryRun:
    """A query in memory: what it has given out, batch by batch, and its state."""

    def __init__(self, target: Node) -> None:
        self._target = target
        self._states: dict[int, dict[int, MemoryBase]] = {}  # node -> partition -> its state
        self._now = MIN_TIME

    def run(self, batch: Batch) -> pa.Table:
        """The rows that one micro-batch gives."""
        ticks = [step.at for step in batch.steps if isinstance(step, Ticked)]
        self._now = max([self._now, *ticks])
        fed: dict[str, list[dict[str, Any]]] = {}
        for step in batch.steps:
            if isinstance(step, Fed):
                fed.setdefault(step.source, []).append(step.row)
        return self._table(self._target, fed, max(ticks, default=None), {})

    def state(self, node: Applied, table: str) -> pa.Table:
        """A table of an operator's state, all partitions together."""
        program = node.plan.program
        empty = State(evolve((), program.tables), MemoryBase())[table].range().table()
        bases = self._states.get(id(node), {}).values()
        return pa.concat_tables([empty, *(State(evolve((), program.tables), b)[table].range().table() for b in bases)])

    def _table(self, node: Node, fed: Mapping[str, Sequence[Any]], tick: int | None, done: dict[int, Any]) -> pa.Table:
        if id(node) not in done:
            done[id(node)] = self._made(node, fed, tick, done)
        return done[id(node)]

    def _made(self, node: Node, fed: Mapping[str, Sequence[Any]], tick: int | None, done: dict[int, Any]) -> pa.Table:
        if isinstance(node, Source):
            return pa.Table.from_pylist(list(fed.get(node.name, ())), schema=node.schema)
        if isinstance(node, Timed):
            return _timed(self._table(node.input, fed, tick, done), node, tick, self._now)
        if isinstance(node, Corrected):
            return _corrected(self._table(node.input, fed, tick, done), node)
        inputs = {
            side: self._table(one, fed, tick, done).select(list(node.plan.columns[side]))
            for side, one in node.inputs.items()
        }
        return pa.concat_tables(self._stepped(node, union(inputs)))  # a chunk for each partition: see `_marked`

    def _stepped(self, node: Applied, rows: pa.Table) -> list[pa.Table]:
        program = node.plan.program
        bases = self._states.setdefault(id(node), {})
        out = [program.output.empty_table()]
        for number, part in _parts(node, rows):
            state = State(evolve((), program.tables), bases.setdefault(number, MemoryBase()))
            out.append(Step(program, state).feed(part))
            bases[number].apply(state.changes())
        return out


def _timed(table: pa.Table, node: Timed, tick: int | None, now: int) -> pa.Table:
    """The rows with their time columns, and the batch's tick behind them."""
    columns, schema = node.columns, schema_of(node)
    given = {name: table[name] for name in table.column_names}
    here = pa.scalar(max(now, 0), pa.int64()).cast(TIMESTAMP)
    given[TIME] = pa.repeat(here, len(table)) if columns.time is None else table[columns.time].cast(TIMESTAMP)
    if columns.producer is not None:
        given[PRODUCER] = table[columns.producer].cast(pa.string())
    if columns.no_before is not None:
        given[NO_BEFORE] = table[columns.no_before].cast(TIMESTAMP)
    if columns.ticks:
        given[TICK] = pa.nulls(len(table), TIMESTAMP)
    rows = pa.table([given[field.name] for field in schema], schema=schema)
    if tick is None or not columns.ticks:
        return rows
    return pa.concat_tables([rows, pa.Table.from_pylist([{TICK: tick}], schema=schema)])


def _corrected(table: pa.Table, node: Corrected) -> pa.Table:
    clock, schema = node.clock, schema_of(node)
    occurred, sent, received = (
        as_array(table[name]).cast(TIMESTAMP).view(pa.int64()) for name in (clock.occurred, clock.sent, clock.received)
    )
    offset = pc.subtract(received, sent)
    suspect = pc.or_(pc.greater(pc.abs(offset), clock.max_offset), pc.greater(occurred, sent))
    added = [pc.add(occurred, offset).view(TIMESTAMP), offset, suspect]
    kept = [table[name] for name in schema.names[: -len(added)]]
    return pa.table([*kept, *added], schema=schema)


def union(inputs: Mapping[str, pa.Table]) -> pa.Table:
    """The inputs as one table, as Spark's engine makes it: each packed in a struct, time on top."""
    if set(inputs) == {ONLY}:
        return inputs[ONLY]
    carried = [name for name in TIME_COLUMNS if any(name in one.column_names for one in inputs.values())]
    kinds = {n: next(t.schema.field(n).type for t in inputs.values() if n in t.column_names) for n in carried}
    packed = []
    for side, one in inputs.items():
        columns = {SIDE: pa.repeat(side, len(one))}
        columns |= {n: one[n] if n in one.column_names else pa.nulls(len(one), kinds[n]) for n in carried}
        for name, other in inputs.items():
            fields = [field for field in other.schema if field.name != TICK]
            columns[name] = _packed(one, fields) if name == side else pa.nulls(len(one), pa.struct(fields))
        packed.append(pa.table(columns))
    return pa.concat_tables(packed)


def _packed(table: pa.Table, fields: Sequence[pa.Field]) -> pa.Array:
    return pa.StructArray.from_arrays([as_array(table[field.name]) for field in fields], fields=list(fields))


def _parts(node: Applied, rows: pa.Table) -> list[tuple[int, pa.Table]]:
    """The rows of each partition, with the punctuation and ticks that are for it."""
    if node.plan.copartitioned:
        return _own_partitions(node, rows)
    program, count = node.plan.program, node.plan.options.partitions
    targets = None
    if program.time is not None:
        rows = _marked(program, rows, count)
        targets = rows[TARGET].to_numpy()
    routes = np.array([zlib.crc32(key) % count for key in _keys(program, rows)], dtype=np.int64)
    if targets is not None:
        routes = np.where(np.isnan(targets), routes, np.nan_to_num(targets)).astype(np.int64)
    return [(number, rows.filter(pa.array(routes == number))) for number in range(count)]


def _marked(program: Program, rows: pa.Table, count: int) -> pa.Table:
    """Stage one of time: each chunk is a task of its own, as the partitions of the operator in front are on Spark."""
    assert program.time is not None
    parts = []
    for task in [pa.Table.from_batches([batch]) for batch in rows.to_batches()] or [rows]:
        marker = Marker(program.time, rows.schema)
        parts += [marker.rows(task), marker.punctuation(count), marker.ticks(task, count)]
    return pa.concat_tables(parts)


def _own_partitions(node: Applied, rows: pa.Table) -> list[tuple[int, pa.Table]]:
    time = node.plan.program.time
    numbers = rows[PARTITION].combine_chunks()
    parts = []
    for number in sorted(n for n in numbers.unique().to_pylist() if n is not None):
        own = rows.filter(pc.equal(numbers, number))
        if time is not None:
            marker = Marker(time, rows.schema)
            own = pa.concat_tables([marker.rows(own), marker.punctuation(1), marker.ticks(own, 1)])
        parts.append((number, own))
    return parts


def _keys(program: Program, rows: pa.Table) -> list[bytes]:
    """Every row's key as bytes; the bytes are the same for equal keys of whatever input."""
    if not rows.num_rows:
        return []
    keys = np.full(rows.num_rows, b"", dtype=object)
    sides = None if set(program.inputs) == {ONLY} else np.asarray(rows[SIDE].to_numpy(zero_copy_only=False))
    for side, schema in program.inputs.items():
        names = program.operator.keys_of(side)
        where = np.arange(rows.num_rows) if sides is None else np.flatnonzero(sides == side)
        own = rows.take(pa.array(where))
        table = own if sides is None else pa.Table.from_struct_array(as_array(own[side]))
        codec = KeyCodec([Column(str(i), schema.field(name).type) for i, name in enumerate(names)])
        keys[where] = codec.encode({str(i): table[name] for i, name in enumerate(names)})
    return list(keys)
