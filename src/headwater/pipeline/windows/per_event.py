"""Sliding windows: with every row, the aggregates of all its key's rows within the interval before it.

A row at t sees the rows of its key from t - size to t, both included, itself and others at t among them (as SQL's
RANGE BETWEEN ... PRECEDING AND CURRENT ROW). No boundary separates 10:03:39 from 10:08:12: within 5 minutes of each
other, they are seen together. A row that comes out of order changes what the rows behind it see: they are corrected.

    rows     (key, time, identity) -> the other columns     what later rows will see
    by_time  (time, key, identity) ->                       the same by time: what closes, and what can be forgotten

A row's identity is what its input has of producer, topic, partition and offset, and a number where that is the same.
A row's window closes when the low watermark has passed its time. With emit="close" it comes out then, once; with
"change" it comes out at once and again whenever it changes. A row behind its producer's low watermark (and
`keep_closed`) is late: it is in no window at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.aggregates.aggregate import Aggregate, Aggregates, Grouped
from headwater.pipeline.columns import OFFSET, PARTITION, TOPIC, WEIGHT
from headwater.pipeline.emission import CLOSE
from headwater.pipeline.errors import BadOption, DefinitionError
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.operator import Batch, Operator, Time, group
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import State
from headwater.pipeline.time.marks import times
from headwater.pipeline.time.settings import PRODUCER, TIME, TIMESTAMP, microseconds
from headwater.pipeline.windows.definition import Words, bounded, check_input, checked_key, within
from headwater.pipeline.windows.grouping import keyed, scanned
from headwater.pipeline.windows.late import Missed, beside, lows, timed, with_side
from headwater.pipeline.windows.publishing import Publisher, Results

__all__ = ["Sliding", "sliding"]

NUMBER = "_number"  # tells rows apart that have the same identity otherwise
IDENTITY = (PRODUCER, TOPIC, PARTITION, OFFSET)

S = TypeVar("S")
Duration = str | float | timedelta
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def sliding(
    df: S,
    size: Duration,
    *,
    aggregates: Mapping[str, Aggregate],
    key: Sequence[str] = (),
    emit: str = "close",
    output: str = "append",
    late: str = "drop",
    keep_closed: Duration | None = None,
    alert_above: float = 0.05,
    **where: Unpack[StatefulKeywords],
) -> S:
    """Every row with aggregates over its key's rows in the `size` before it.

    Gives the rows' own columns and the aggregates. The other words are those of `tumbling`.
    """
    words = Words(emit, output, late, keep_closed, alert_above)
    return stateful(df, Sliding(size, key=key, aggregates=aggregates, words=words), **where)


@dataclass(frozen=True)
class _Seen:
    """Rows by (key number, time): those in the state and those that came, in order."""

    rows: pa.Table
    key: Numbers
    at: Numbers
    came: Flags

    def only(self, kept: Flags) -> _Seen:
        return _Seen(self.rows.filter(pa.array(kept)), self.key[kept], self.at[kept], self.came[kept])


class Sliding(Operator):
    """See the module."""

    needs_time = True
    keyless = True

    def __init__(
        self, size: Any, *, key: Sequence[str] = (), aggregates: Mapping[str, Aggregate], words: Words
    ) -> None:
        self.key = checked_key(key, "sliding")
        self._size = microseconds(size, "sliding: size", zero=False)
        self._named = within(aggregates, self._size)
        self._emission, self._late = words.parsed("sliding")

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        (schema,) = inputs.values()
        check_input(schema, self.keys_of(), self._named, "sliding")
        for name in self._named:
            if name in schema.names:
                raise BadOption(f"sliding: an aggregate cannot be called {name!r}: the rows have a column of that name")
        if WEIGHT in schema.names:
            raise DefinitionError(f"sliding: rows with {WEIGHT} are a changelog; only rows that stay can be seen")
        self._aggregates = Aggregates(self._named, schema, "sliding")
        identity = [schema.field(name) for name in IDENTITY if name in schema.names]
        keys = [schema.field(name) for name in self.keys_of()]
        time, number = pa.field(TIME, TIMESTAMP), pa.field(NUMBER, pa.int32())
        names = list(dict.fromkeys([*self.keys_of(), TIME, *(f.name for f in identity)]))
        known = {f.name: f for f in (*keys, time, *identity)}
        self._ids = [*(known[name] for name in names), number]
        self._others = [pa.field(f.name, f.type) for f in schema if f.name not in names]
        self._publisher = Publisher(
            self._ids, [*self._others, *self._aggregates.fields], self._emission, compared=list(self._named)
        )
        self.state = (*self._tables(), *self._publisher.state)
        return self._shown_schema(schema)

    def _tables(self) -> tuple[TableSpec, TableSpec]:
        ids = [Column(f.name, f.type) for f in self._ids]
        at = next(column for column in ids if column.name == TIME)
        by_time = [at, *(column for column in ids if column is not at)]
        rows = TableSpec.of("rows", ids, [Column(f.name, f.type) for f in self._others])
        return rows, TableSpec.of("by_time", by_time, [])

    def _shown_schema(self, schema: pa.Schema) -> pa.Schema:
        """The rows as they came, the aggregates, and what the words add."""
        own = [pa.field(f.name, TIMESTAMP if f.name == TIME else f.type) for f in schema]
        weight = [f for f in self._publisher.schema if f.name == WEIGHT]
        self._shown = pa.schema([*own, *self._aggregates.fields, *weight])
        self._schema = with_side(self._shown, schema) if self._late.sides else self._shown
        return self._schema

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        rows = timed(batch.table, state)
        at = times(rows, TIME)
        too_late = at < lows(rows, time) - self._late.kept
        late = np.flatnonzero(too_late)
        self._late.note(state, rows, late, Missed(at[late], at[late]))
        taken = rows.filter(pa.array(~too_late)) if len(late) else rows
        results = self._publisher.say(state, self._results(state, taken, time), time.now).select(self._shown.names)
        self._forget(state, time)
        if not self._late.sides:
            return results
        own = {name: rows[name].take(pa.array(late)) for name in rows.column_names if name in self._shown.names}
        return beside(results.cast(self._shown), self._schema, rows, late, own)

    def _results(self, state: State, rows: pa.Table, time: Time) -> Results:
        closing = self._emission.emit == CLOSE
        due = self._due(state, time) if closing else None
        seen = self._numbered(self._near(state, rows, due))
        self._put(state, seen)
        wanted = self._touched(seen)
        if closing:
            wanted = (wanted & (seen.at < time.previous)) | ((seen.at >= time.previous) & (seen.at < time.low))
        return self._seen_by(seen, wanted, time, closing)

    def _due(self, state: State, time: Time) -> pa.Table:
        """The rows in the state whose windows close now."""
        found = state["by_time"].range(low=bounded(time.previous), high=bounded(time.low))
        return pa.table({name: found[name] for name in (*self.keys_of(), TIME)})

    def _near(self, state: State, rows: pa.Table, due: pa.Table | None) -> _Seen:
        """The rows that came, and those in the state that see them or are seen by them or by the ones that are due."""
        taken = [*self.keys_of(), TIME]
        asked = rows.select(taken).cast(pa.schema([(f.name, f.type) for f in self._ids if f.name in taken]))
        asked = asked if due is None else pa.concat_tables([asked, due.cast(asked.schema)])
        keys, at = keyed(asked, self.keys_of()), times(asked, TIME)
        low, high = _bounds(keys.index, at, keys.count)
        found = scanned(state["rows"], keys, low - self._size, high + self._size + 1)
        names = [f.name for f in (*self._ids, *self._others)]
        came = rows.append_column(NUMBER, pa.nulls(rows.num_rows, pa.int32())).select(names)
        both = pa.concat_tables([found.table().select(names), came.cast(found.table().select(names).schema)])
        key = np.concatenate([found.source, keys.index[: rows.num_rows]])
        is_new = np.arange(len(key)) >= len(found)
        return _Seen(both, key, times(both, TIME), is_new)

    def _numbered(self, seen: _Seen) -> _Seen:
        """In order, each new row with the next number among the rows that are its equals otherwise."""
        names = [f.name for f in self._ids if f.name != NUMBER]
        equals = group(seen.rows.select(names)).index
        order = np.argsort(equals, kind="stable")
        starts = np.searchsorted(equals[order], equals[order])
        number = np.empty(len(equals), dtype=np.int32)
        number[order] = np.arange(len(equals)) - starts
        at = seen.rows.column_names.index(NUMBER)
        rows = seen.rows.set_column(at, pa.field(NUMBER, pa.int32()), pa.array(number))
        order = np.lexsort((number, equals, seen.at, seen.key))  # `equals` is in the order of the identities
        return _Seen(rows.take(pa.array(order)), seen.key[order], seen.at[order], seen.came[order])

    def _put(self, state: State, seen: _Seen) -> None:
        new = seen.rows.filter(pa.array(seen.came))
        state["rows"].put(new, new)
        state["by_time"].put(new, {})

    def _touched(self, seen: _Seen) -> Flags:
        """The rows that came, and the rows whose windows have one that came."""
        low, high = self._windows(seen)
        before = np.concatenate([[0], np.cumsum(seen.came)])
        touched: Flags = before[high] > before[low]
        return touched

    def _windows(self, seen: _Seen) -> tuple[Numbers, Numbers]:
        """For each row the range of rows that it sees."""
        ranks = np.unique(np.concatenate([seen.at, seen.at - self._size]))
        span = len(ranks) + 1
        place = seen.key * span + np.searchsorted(ranks, seen.at)
        first = seen.key * span + np.searchsorted(ranks, seen.at - self._size)
        return np.searchsorted(place, first, side="left"), np.searchsorted(place, place, side="right")

    def _seen_by(self, seen: _Seen, wanted: Flags, time: Time, closing: bool) -> Results:
        """What the wanted rows see now, and saw before the batch if they were published then."""
        targets = np.flatnonzero(wanted)
        names = {f.name: seen.rows[f.name].take(pa.array(targets)) for f in (*self._ids, *self._others)}
        new = self._result(names, seen, targets)
        published = ~seen.came & (seen.at < time.previous) if closing else ~seen.came
        had = published[targets]
        old = new
        if had.any():
            before = seen.only(~seen.came)
            where = np.cumsum(~seen.came) - 1
            known = {name: column.filter(pa.array(had)) for name, column in names.items()}
            was = self._result(known, before, where[targets[had]])
            places = np.where(had, np.cumsum(had) - 1 + len(targets), np.arange(len(targets)))
            old = pa.concat_tables([new, was]).take(pa.array(places))
        order = pa.compute.sort_indices(new, [(TIME, "ascending"), *((n, "ascending") for n in self._order())])
        return Results(old.take(order), had[np.asarray(order)], new.take(order), np.ones(len(targets), dtype=np.bool_))

    def _order(self) -> list[str]:
        return [f.name for f in self._ids if f.name != TIME]

    def _result(self, names: Mapping[str, Any], seen: _Seen, targets: Numbers) -> pa.Table:
        low, high = self._windows(seen)
        rows = Grouped(seen.rows, np.zeros(len(seen.at), dtype=np.int64), 1)
        values = self._aggregates.values(self._aggregates.over(rows, low[targets], high[targets]))
        schema = self._publisher.results
        return pa.table([as_array({**names, **values}[f.name], f.type) for f in schema], schema=schema)

    def _forget(self, state: State, time: Time) -> None:
        gone = state["by_time"].range(high=bounded(time.low - self._late.kept - self._size))
        state["rows"].delete(gone.columns)
        state["by_time"].delete(gone.columns)


def _bounds(index: Numbers, values: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """The least and the greatest value of each number."""
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(low, index, values)
    np.maximum.at(high, index, values)
    return low, high
