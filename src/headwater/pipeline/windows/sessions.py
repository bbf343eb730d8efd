"""Session windows: a key's rows until nothing has come for `gap`; a late row may bridge two sessions into one.

A session is [first row, last row + gap); rows exactly `gap` apart are still in one session, as in Spark and Flink. It
closes when the low watermark has passed its end, and is forgotten `keep_closed` after that.

    sessions   (key, last) -> start, rows, accumulators     a key's sessions in order; they never overlap or touch
    due        (last, key) -> start                         the same by time: closing reads what closes

A row is late when it is behind its producer's low watermark, whether or not its session still goes on: what is taken
depends on nothing but the row and its producer, so batch boundaries and interleavings leave no trace. Rows out of
order within the producer's `delay` are not late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.aggregates.aggregate import Aggregate, Aggregates
from headwater.pipeline.columns import WEIGHT
from headwater.pipeline.emission import CLOSE
from headwater.pipeline.errors import DefinitionError
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.operator import ONLY, Batch, Operator, Time
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import State
from headwater.pipeline.time.marks import times
from headwater.pipeline.time.settings import TIME, TIMESTAMP, microseconds
from headwater.pipeline.windows.definition import END, START, Words, bounded, check_input, checked_key, columns_of
from headwater.pipeline.windows.grouping import Keyed, distinct, grouped, keyed, row_counts, scanned
from headwater.pipeline.windows.late import Missed, beside, lows, timed, with_side
from headwater.pipeline.windows.publishing import Publisher, Results

__all__ = ["Sessions", "session"]

LAST = "last"  # the time of a session's last row

S = TypeVar("S")
Duration = str | float | timedelta
Numbers = npt.NDArray[np.int64]


def session(
    df: S,
    gap: Duration,
    *,
    key: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    emit: str = "close",
    output: str = "append",
    late: str = "drop",
    keep_closed: Duration | None = None,
    alert_above: float = 0.05,
    **where: Unpack[StatefulKeywords],
) -> S:
    """Aggregates per key and session: a user's rows until `gap` of silence.

    Gives the key, `window_start` (the first row's time), `window_end` (the last row's time and `gap`) and the
    aggregates. The other words are those of `tumbling`.
    """
    words = Words(emit, output, late, keep_closed, alert_above)
    return stateful(df, Sessions(gap, key=key, aggregates=aggregates, words=words), **where)


@dataclass(frozen=True)
class _Spans:
    """Sessions, or pieces of them: whose (a key's number), from when to when, and what is in them."""

    key: Numbers
    start: Numbers
    last: Numbers
    rows: Numbers
    state: Mapping[str, pa.Array]

    def take(self, chosen: Any) -> _Spans:
        rows = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        state = {name: column.take(pa.array(rows)) for name, column in self.state.items()}
        return _Spans(self.key[rows], self.start[rows], self.last[rows], self.rows[rows], state)


class Sessions(Operator):
    """See the module."""

    needs_time = True
    keyless = True

    def __init__(self, gap: Any, *, key: Sequence[str], aggregates: Mapping[str, Aggregate], words: Words) -> None:
        self.key, self._named = checked_key(key, "session"), dict(aggregates)
        self._gap = microseconds(gap, "session: gap", zero=False)
        self._emission, self._late = words.parsed("session")

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        (schema,) = inputs.values()
        check_input(schema, self.keys_of(), self._named, "session")
        if WEIGHT in schema.names:
            raise DefinitionError(f"session: rows with {WEIGHT} are a changelog; taking one back could split a session")
        self._aggregates = Aggregates(self._named, schema, "session")
        keys = [Column(name, schema.field(name).type) for name in self.keys_of()]
        start, last = Column(START, TIMESTAMP), Column(LAST, TIMESTAMP)
        ids = [*(pa.field(c.name, c.type) for c in keys), pa.field(START, TIMESTAMP)]
        self._publisher = Publisher(ids, [pa.field(END, TIMESTAMP), *self._aggregates.fields], self._emission)
        values = [start, Column("rows", pa.int64(), 0), *self._aggregates.state]
        sessions = TableSpec.of("sessions", [*keys, last], values)
        self.state = (sessions, TableSpec.of("due", [last, *keys], [start]), *self._publisher.state)
        self._schema = with_side(self._publisher.schema, schema) if self._late.sides else self._publisher.schema
        return self._schema

    def reads(self, side: str = ONLY) -> Sequence[str] | None:
        return None if self._late.sides else (WEIGHT, *columns_of(self._named))

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        rows = timed(batch.table, state)
        at = times(rows, TIME)
        too_late = at < lows(rows, time) - self._late.kept
        late = np.flatnonzero(too_late)
        self._late.note(state, rows, late, Missed(at[late], at[late]))
        taken = rows.filter(pa.array(~too_late)) if len(late) else rows
        results = self._results(state, taken, at[~too_late], time)
        if not self._late.sides:
            return results
        known = {name: rows[name].take(pa.array(late)) for name in self.keys_of()}
        return beside(results, self._schema, rows, late, {**known, START: at[late], END: at[late] + self._gap})

    def _results(self, state: State, rows: pa.Table, at: Numbers, time: Time) -> pa.Table:
        keys = keyed(rows, self.keys_of())
        pieces = self._pieces(rows, at, keys)
        old, new = self._merged(self._near(state, keys, pieces), pieces)
        self._delete(state, self._named_by(keys, old))
        closing = self._closing(state, time) if self._emission.emit == CLOSE else None
        self._put(state, keys, new)
        results = self._said(keys, old, new, closing, time)
        out = self._publisher.say(state, results, time.now)
        gone = state["due"].range(high=bounded(time.low - self._late.kept - self._gap))
        self._delete(state, gone.columns)
        return out

    def _pieces(self, rows: pa.Table, at: Numbers, keys: Keyed) -> _Spans:
        """The batch's own sessions, as if there were no others."""
        order = np.lexsort((at, keys.index))
        key, time = keys.index[order], at[order]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = (key[1:] != key[:-1]) | (time[1:] - time[:-1] > self._gap)
        index = np.empty(len(order), dtype=np.int64)
        index[order] = np.cumsum(first) - 1
        starts = np.flatnonzero(first)
        ends = np.append(starts[1:], len(order)) - 1 if len(starts) else starts
        of = grouped(rows, index, len(starts))
        return _Spans(key[starts], time[starts], time[ends], row_counts(of), self._aggregates.partial(of))

    def _near(self, state: State, keys: Keyed, pieces: _Spans) -> _Spans:
        """The sessions in the state that may meet the batch's: of the same keys, not over before these began."""
        firsts = np.flatnonzero(np.diff(pieces.key, prepend=-1))  # they are ordered by key, and each key has some
        found = scanned(state["sessions"], keys, pieces.start[firsts] - self._gap)
        columns = {c.name: found[c.name] for c in self._aggregates.state}
        start, last, count = (found.numpy(name) for name in (START, LAST, "rows"))
        return _Spans(found.source, start, last, count, columns)

    def _merged(self, old: _Spans, pieces: _Spans) -> tuple[_Spans, _Spans]:
        """The old sessions that the pieces change, and what they all become."""
        key = np.concatenate([old.key, pieces.key])
        start, last = np.concatenate([old.start, pieces.start]), np.concatenate([old.last, pieces.last])
        order = np.lexsort((start, key))
        reach = running_max_by_key(last[order], key[order])
        first = np.ones(len(order), dtype=np.bool_)
        apart = start[order][1:] - reach[:-1] > self._gap
        first[1:] = (key[order][1:] != key[order][:-1]) | apart
        index = np.empty(len(order), dtype=np.int64)
        index[order] = np.cumsum(first) - 1
        changed = np.zeros(int(first.sum()), dtype=np.bool_)
        changed[index[len(old.key) :]] = True
        mine = np.flatnonzero(changed[index])
        both = _Spans(key, start, last, np.concatenate([old.rows, pieces.rows]), self._together(old, pieces)).take(mine)
        return old.take(changed[index[: len(old.key)]]), self._one_each(both, (np.cumsum(changed) - 1)[index[mine]])

    def _together(self, old: _Spans, pieces: _Spans) -> dict[str, pa.Array]:
        return {
            c.name: pa.concat_arrays([old.state[c.name], as_array(pieces.state[c.name], c.type)])
            for c in self._aggregates.state
        }

    def _one_each(self, spans: _Spans, index: Numbers) -> _Spans:
        """The spans put together that have the same number."""
        count = int(index.max(initial=-1)) + 1
        start, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
        np.minimum.at(start, index, spans.start)
        np.maximum.at(last, index, spans.last)
        key, rows = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        key[index] = spans.key
        np.add.at(rows, index, spans.rows)
        return _Spans(key, start, last, rows, self._aggregates.reduce(spans.state, index, count))

    def _named_by(self, keys: Keyed, spans: _Spans) -> dict[str, Any]:
        return {**keys.take(spans.key), LAST: spans.last, START: spans.start}

    def _delete(self, state: State, names: Mapping[str, Any]) -> None:
        state["sessions"].delete(names)
        state["due"].delete(names)

    def _put(self, state: State, keys: Keyed, spans: _Spans) -> None:
        names = self._named_by(keys, spans)
        state["sessions"].put(names, {START: spans.start, "rows": spans.rows, **spans.state})
        state["due"].put(names, {START: spans.start})

    def _closing(self, state: State, time: Time) -> pa.Table:
        """The sessions that the batch did not touch and that close now, as they go out."""
        due = state["due"].range(low=bounded(time.previous - self._gap), high=bounded(time.low - self._gap))
        found = state["sessions"].get(due.columns)
        return self._shown(due.columns, due.numpy(LAST), found.columns)

    def _said(self, keys: Keyed, old: _Spans, new: _Spans, closing: pa.Table | None, time: Time) -> Results:
        """What became of every session by (key, start), ordered by their ends."""
        (key, start), index = distinct(np.concatenate([old.key, new.key]), np.concatenate([old.start, new.start]))
        before, after = (self._aligned(keys, key, start, spans, part) for spans, part in
                         ((old, index[: len(old.key)]), (new, index[len(old.key) :])))  # fmt: skip
        had, has = _places(index[: len(old.key)], len(key)) >= 0, _places(index[len(old.key) :], len(key)) >= 0
        if closing is not None:
            had &= _true_at(index[: len(old.key)], old.last + self._gap < time.previous, len(key))
            has &= _true_at(index[len(old.key) :], new.last + self._gap < time.low, len(key))
            before, after = pa.concat_tables([before, closing]), pa.concat_tables([after, closing])
            none, all_ = np.zeros(len(closing), dtype=np.bool_), np.ones(len(closing), dtype=np.bool_)
            had, has = np.concatenate([had, none]), np.concatenate([has, all_])
        ends = pa.compute.coalesce(after[END], before[END])
        by_end = after.select([*self.keys_of(), START]).append_column(END, ends)
        order = pa.compute.sort_indices(by_end, [(name, "ascending") for name in (END, *self.keys_of(), START)])
        at = np.asarray(order)
        return Results(before.take(order), had[at], after.take(order), has[at])

    def _aligned(self, keys: Keyed, key: Numbers, start: Numbers, spans: _Spans, index: Numbers) -> pa.Table:
        """The spans as they go out, one row for each (key, start); nulls where there is none."""
        shown = self._shown({**keys.take(spans.key), START: spans.start}, spans.last, spans.state)
        at = _places(index, len(key))
        shown = shown.take(pa.array(at, mask=at < 0))
        for name, column in {**keys.take(key), START: as_array(start, TIMESTAMP)}.items():
            shown = shown.set_column(shown.column_names.index(name), shown.schema.field(name), column)
        return shown

    def _shown(self, names: Mapping[str, Any], last: Numbers, state: Mapping[str, pa.Array]) -> pa.Table:
        schema = self._publisher.results
        columns = {**names, END: last + self._gap, **self._aggregates.values(state)}
        return pa.table([as_array(columns[f.name], f.type) for f in schema], schema=schema)


def running_max_by_key(values: Numbers, key: Numbers) -> Numbers:
    """The greatest value so far of the same key; rows come by key."""
    steps, rank = np.unique(values, return_inverse=True)
    within = len(steps) + 1
    reached: Numbers = steps[np.maximum.accumulate(key * within + rank) % within] if len(values) else values
    return reached


def _places(index: Numbers, count: int) -> Numbers:
    """Where in a list of rows with these numbers each number is; -1 where it is not."""
    places = np.full(count, -1, dtype=np.int64)
    places[index] = np.arange(len(index))
    return places


def _true_at(index: Numbers, flags: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.bool_]:
    found = np.zeros(count, dtype=np.bool_)
    found[index] = flags
    return found
