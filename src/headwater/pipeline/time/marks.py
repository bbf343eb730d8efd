"""Stage one of time: on the source's own partitions, before the shuffle.

Every row is marked with what its lane's earlier rows say (`_mark`), and every lane's progress goes as a punctuation
row to every partition of the operator, in the same batch. A *lane* is (input, producer, topic, partition): the
rows that one producer wrote into one partition, in the order of their offsets.

    mark after a row := max(mark before it, its time - delay, its "nothing earlier than")
    low watermark of the lane at a row := max(marks of earlier batches, mark before the row in this batch)

Invariant: the low watermark at a row depends on the rows before it in its lane and on nothing else: not on batch
boundaries, not on other producers, not on when anything arrives. That is what makes lateness repeatable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.operator import MIN_TIME, ONLY, SIDE, Groups, group
from headwater.pipeline.stateful.state import EncodedKeys
from headwater.pipeline.time.settings import (
    KIND,
    MARK,
    NO_BEFORE,
    PARTITION,
    PRODUCER,
    PUNCTUATION,
    ROW,
    TARGET,
    TICK,
    TICK_ROW,
    TIME,
    TIMESTAMP,
    TOPIC,
    TimeSettings,
)

__all__ = ["LANE", "Marker", "lanes_of", "marked_schema", "times"]

Lane = tuple[str, str, str, int]

LANE = (SIDE, PRODUCER, TOPIC, PARTITION)
_LANE_TYPES = (pa.string(), pa.string(), pa.string(), pa.int32())

_UNTIMED = TimeSettings()
_ADDED = pa.schema([(MARK, pa.int64()), (KIND, pa.int8()), (TARGET, pa.int32())])


def marked_schema(schema: pa.Schema) -> pa.Schema:
    """What stage one gives for an input: the same columns, all nullable, the lane's, and its own three."""
    own = [pa.field(f.name, f.type) for f in schema if f.name not in _ADDED.names]
    lane = [pa.field(n, k) for n, k in zip(LANE, _LANE_TYPES, strict=True) if n not in schema.names]
    return pa.schema(own + lane + list(_ADDED))


def times(table: pa.Table, column: str, absent: int = MIN_TIME) -> npt.NDArray[np.int64]:
    """A time column as microseconds; `absent` for null and where there is no such column."""
    if column not in table.column_names:
        return np.full(table.num_rows, absent, dtype=np.int64)
    array = as_array(table[column])
    array = array.cast(TIMESTAMP).view(pa.int64()) if pa.types.is_timestamp(array.type) else array.cast(pa.int64())
    return np.asarray(array.fill_null(absent).to_numpy(zero_copy_only=False), dtype=np.int64)


def lanes_of(table: pa.Table) -> Groups:
    """The rows by lane; an input without sides, producers, topics or partitions has one of each."""
    present = [name for name in LANE if name in table.column_names]
    found = group(table.select(present)) if present else Groups(EncodedKeys(pa.table({})), _zeros(table))
    count = len(found) if present else min(table.num_rows, 1)
    columns = []
    for name, kind, default in zip(LANE, _LANE_TYPES, (ONLY, "", "", 0), strict=True):
        if name in present:
            columns.append(as_array(found.keys[name], kind).fill_null(default))
        else:
            columns.append(pa.repeat(pa.scalar(default, kind), count))
    return Groups(EncodedKeys(pa.table(columns, list(LANE))), found.index)


def _zeros(table: pa.Table) -> npt.NDArray[np.int64]:
    return np.zeros(table.num_rows, dtype=np.int64)


class Marker:
    """Marks one task's rows, a record batch after the other, and keeps its lanes' marks for the punctuation."""

    def __init__(self, settings: Mapping[str, TimeSettings], schema: pa.Schema) -> None:
        self._settings, self._schema = settings, marked_schema(schema)
        self._lanes: dict[Lane, int] = {}

    def rows(self, table: pa.Table) -> pa.Table:
        """The rows with their marks; ticks, and messages that say nothing but a "nothing before", are left out."""
        ticks = times(table, TICK)
        if (ticks > MIN_TIME).any():
            table = table.filter(pa.array(ticks == MIN_TIME))
        marks = self._mark(table) if table.num_rows else np.zeros(0, dtype=np.int64)
        said = (times(table, NO_BEFORE) > MIN_TIME) & (times(table, TIME) == MIN_TIME)
        if said.any():  # a message that only says "nothing before": the punctuation has it
            table, marks = table.filter(pa.array(~said)), marks[~said]
        return self._shaped(table, marks, ROW, None)

    def ticks(self, table: pa.Table, partitions: int) -> pa.Table:
        """The greatest tick of the rows, for every partition; no rows when there was none."""
        newest = int(times(table, TICK).max(initial=MIN_TIME))
        if newest == MIN_TIME:
            return self._schema.empty_table()
        one = pa.table({TICK: pa.array([newest], pa.int64()).view(TIMESTAMP)})
        return self._for_all(one, np.full(1, MIN_TIME, dtype=np.int64), TICK_ROW, partitions)

    def punctuation(self, partitions: int) -> pa.Table:
        """Every lane's mark so far, for every partition."""
        spoken = {lane: mark for lane, mark in self._lanes.items() if mark > MIN_TIME}
        if not spoken:
            return self._schema.empty_table()
        columns = zip(*spoken, strict=True)
        table = pa.table([pa.array(c, kind) for c, kind in zip(columns, _LANE_TYPES, strict=True)], list(LANE))
        marks = np.fromiter(spoken.values(), dtype=np.int64, count=len(spoken))
        return self._for_all(table, marks, PUNCTUATION, partitions)

    def _mark(self, table: pa.Table) -> npt.NDArray[np.int64]:
        lanes = lanes_of(table)
        names = list(zip(*(lanes.keys[name].to_pylist() for name in LANE), strict=True))
        delays = np.array([self._settings.get(side, _UNTIMED).delay for side, *_ in names], dtype=np.int64)
        before = np.array([self._lanes.get(name, MIN_TIME) for name in names], dtype=np.int64)
        event = times(table, TIME)
        said = np.where(event == MIN_TIME, MIN_TIME, event - delays[lanes.index])
        said = np.maximum(said, times(table, NO_BEFORE))
        marks, after = running_max(said, lanes.index, before)
        self._lanes.update(zip(names, after.tolist(), strict=True))
        return marks

    def _for_all(self, table: pa.Table, marks: npt.NDArray[Any], kind: int, partitions: int) -> pa.Table:
        rows = np.repeat(np.arange(table.num_rows), partitions)
        targets = np.tile(np.arange(partitions, dtype=np.int32), table.num_rows)
        return self._shaped(table.take(pa.array(rows)), marks[rows], kind, targets)

    def _shaped(self, table: pa.Table, marks: Any, kind: int, targets: Any) -> pa.Table:
        count = table.num_rows
        added = {
            MARK: pa.array(marks, pa.int64()),
            KIND: pa.repeat(pa.scalar(kind, pa.int8()), count),
            TARGET: pa.nulls(count, pa.int32()) if targets is None else pa.array(targets, pa.int32()),
        }
        columns = []
        for field in self._schema:
            column = added.get(field.name)
            if column is None and field.name in table.column_names:
                column = as_array(table[field.name], field.type)
            columns.append(pa.nulls(count, field.type) if column is None else column)
        return pa.table(columns, schema=self._schema)


def running_max(
    values: npt.NDArray[np.int64], lanes: npt.NDArray[np.int64], before: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each row the greatest value before it in its lane (at least `before`), and each lane's at the end."""
    after = before.copy()
    np.maximum.at(after, lanes, values)
    if len(before) == 1:
        running = np.maximum.accumulate(np.concatenate([before, values]))
        return running[:-1], after
    order = np.argsort(lanes.astype(np.uint16) if len(before) < 1 << 16 else lanes, kind="stable")
    starts = np.searchsorted(lanes[order], np.arange(len(before) + 1))
    marks = np.empty_like(values)
    for lane, (start, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        rows = order[start:end]
        running = np.maximum.accumulate(np.concatenate([before[lane : lane + 1], values[rows]]))
        marks[rows] = running[:-1]
    return marks, after


def mark_batches(
    batches: Iterable[pa.RecordBatch], marker: Marker, partitions: int, *, at_once: bool
) -> Iterator[pa.RecordBatch]:
    """A task of stage one. Punctuation follows the task's last row; `at_once` (Real-time Mode) follows every batch."""
    newest: pa.Table | None = None
    for batch in batches:
        table = pa.Table.from_batches([batch])
        yield from marker.rows(table).to_batches()
        ticks = marker.ticks(table, partitions)
        newest = ticks if ticks.num_rows else newest
        if at_once:
            yield from marker.punctuation(partitions).to_batches()
            yield from ticks.to_batches()
    if not at_once:
        yield from marker.punctuation(partitions).to_batches()
        yield from newest.to_batches() if newest is not None else ()
