"""Windows with fixed boundaries: tumbling (each row in one) and hopping (in every one that covers it).

A window is [start, start + size); starts are `offset` plus multiples of `hop`. Rows are first added up by pane (the
rows of a key that are in the same windows), panes then by window, so a row costs the same however often windows hop.

    windows   (start, key) -> rows, accumulators      ordered by time: closing reads what closes and nothing else

A window closes when the low watermark passes its end, and is forgotten `keep_closed` after that.
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
from headwater.pipeline.errors import BadOption
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.operator import MIN_TIME, ONLY, Batch, Operator, Time
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import Rows, State, StateTable
from headwater.pipeline.time.marks import times
from headwater.pipeline.time.settings import TIME, TIMESTAMP, microseconds
from headwater.pipeline.windows.definition import (
    END,
    START,
    Words,
    bounded,
    check_input,
    check_retracts,
    checked_key,
    columns_of,
    window_fields,
    within,
)
from headwater.pipeline.windows.grouping import Keyed, distinct, each_between, grouped, keyed, row_counts
from headwater.pipeline.windows.late import Missed, beside, lows, timed, with_side
from headwater.pipeline.windows.publishing import Publisher, Results

__all__ = ["FixedWindows", "hopping", "tumbling"]

WINDOWS_PER_ROW_MAX = 1_000  # a key's state and the work for a batch are so many times what one window takes

S = TypeVar("S")

Duration = str | float | timedelta

Numbers = npt.NDArray[np.int64]


def tumbling(
    df: S,
    size: Duration,
    *,
    aggregates: Mapping[str, Aggregate],
    key: Sequence[str] = (),
    offset: Duration = 0,
    emit: str = "close",
    output: str = "append",
    late: str = "drop",
    keep_closed: Duration | None = None,
    alert_above: float = 0.05,
    **where: Unpack[StatefulKeywords],
) -> S:
    """Aggregates per key and window of `size`: 10:03:00 to 10:03:59, each row in one.

    Gives the key, `window_start`, `window_end` and the aggregates. `emit`, `output` and `late`: see
    `headwater.pipeline.emission`. `keep_closed`: how long after its end a window can be corrected (late="correct").
    `alert_above`: the share of late rows in a batch that is warned of. `offset`: where windows start after 1970 began.
    `where`: see `StatefulKeywords`.
    """
    words = Words(emit, output, late, keep_closed, alert_above)
    return stateful(
        df, FixedWindows("tumbling", size, size, offset=offset, key=key, aggregates=aggregates, words=words), **where
    )


def hopping(
    df: S,
    size: Duration,
    hop: Duration,
    *,
    aggregates: Mapping[str, Aggregate],
    key: Sequence[str] = (),
    offset: Duration = 0,
    emit: str = "close",
    output: str = "append",
    late: str = "drop",
    keep_closed: Duration | None = None,
    alert_above: float = 0.05,
    **where: Unpack[StatefulKeywords],
) -> S:
    """Aggregates per key and window of `size`, one starting every `hop`: the last 5 minutes, every minute.

    As `tumbling`, but a row is in every window that covers it. With a `hop` longer than `size` some are in none.
    """
    words = Words(emit, output, late, keep_closed, alert_above)
    return stateful(
        df, FixedWindows("hopping", size, hop, offset=offset, key=key, aggregates=aggregates, words=words), **where
    )


@dataclass(frozen=True)
class _Touched:
    """The windows that a batch adds to: their starts and keys, in order, and what it adds."""

    start: Numbers
    keys: dict[str, pa.Array]
    rows: Numbers
    added: Mapping[str, pa.Array]

    def columns(self) -> dict[str, Any]:
        return {START: self.start, **self.keys}


class FixedWindows(Operator):
    """See the module."""

    needs_time = True
    keyless = True

    def __init__(
        self,
        where: str,
        size: Any,
        hop: Any,
        *,
        aggregates: Mapping[str, Aggregate],
        key: Sequence[str] = (),
        offset: Any = 0,
        words: Words,
    ) -> None:
        self._where, self.key = where, checked_key(key, where)
        self._size = microseconds(size, f"{where}: size", zero=False)
        self._named = within(aggregates, self._size)
        self._hop = microseconds(hop, f"{where}: hop", zero=False)
        self._offset = microseconds(offset, f"{where}: offset")
        if self._size > self._hop * WINDOWS_PER_ROW_MAX:
            raise BadOption(
                f"{where}: a row would be in {self._size // self._hop} windows, at most {WINDOWS_PER_ROW_MAX} are "
                "sensible: a longer hop, or sliding() for a result with every row"
            )
        self._emission, self._late = words.parsed(where)

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        (schema,) = inputs.values()
        check_input(schema, self.keys_of(), self._named, self._where)
        self._aggregates = Aggregates(self._named, schema, self._where)
        check_retracts(schema, self._aggregates.named, self._where)
        keys = [schema.field(name) for name in self.keys_of()]
        self._publisher = Publisher([*keys, *window_fields()], self._aggregates.fields, self._emission)
        columns = [Column(START, TIMESTAMP), *(Column(f.name, f.type) for f in keys)]
        windows = TableSpec.of("windows", columns, [Column("rows", pa.int64(), 0), *self._aggregates.state])
        self.state = (windows, *self._publisher.state)
        self._schema = with_side(self._publisher.schema, schema) if self._late.sides else self._publisher.schema
        return self._schema

    def reads(self, side: str = ONLY) -> Sequence[str] | None:
        return None if self._late.sides else (WEIGHT, *columns_of(self._named))

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        rows = timed(batch.table, state)
        at = times(rows, TIME)
        last = (at - self._offset) // self._hop
        first = (at - self._offset - self._size) // self._hop + 1
        closed = (lows(rows, time) - self._late.kept - self._offset - self._size) // self._hop
        taken = np.maximum(first, closed + 1)
        keys = keyed(rows, self.keys_of())
        missed = np.minimum(last, closed)
        late = np.flatnonzero(first <= missed)
        self._late.note(state, rows, late, Missed(first[late], missed[late], self._hop, self._offset))
        results = self._results(state, self._touched(rows, keys, taken, last), time)
        if not self._late.sides:
            return results
        late, number = each_between(first, missed)
        starts = self._start(number)
        known = {START: starts, END: starts + self._size, **keys.take(keys.index[late])}
        return beside(results, self._schema, rows, late, known)

    def _start(self, number: Numbers) -> Numbers:
        return number * self._hop + self._offset

    def _touched(self, rows: pa.Table, keys: Keyed, first: Numbers, last: Numbers) -> _Touched:
        """The batch's rows by pane, and the panes by window."""
        some = first <= last
        if not some.all():
            rows, first, last = rows.filter(pa.array(some)), first[some], last[some]
        index = keys.index if some.all() else keys.index[some]
        (pane_first, pane_last, pane_key), pane = distinct(first, last, index)
        panes = grouped(rows, pane, len(pane_key))
        added, counts = self._aggregates.partial(panes), row_counts(panes)
        of, number = each_between(pane_first, pane_last)
        (window, key), place = distinct(number, pane_key[of])
        if len(of) > len(pane_key) or len(window) < len(of):
            added = {name: as_array(column).take(pa.array(of)) for name, column in added.items()}
            added = self._aggregates.reduce(added, place, len(window))
            counts = np.bincount(place, weights=counts[of], minlength=len(window)).astype(np.int64)
        else:
            back = np.argsort(place)
            added = {name: as_array(column).take(pa.array(back)) for name, column in added.items()}
            counts = counts[back]
        return _Touched(self._start(window), keys.take(key), counts, added)

    def _results(self, state: State, touched: _Touched, time: Time) -> pa.Table:
        table, columns = state["windows"], touched.columns()
        before = table.get(columns)
        count = before.numpy("rows") + touched.rows
        after = {"rows": count, **self._aggregates.merge(before.columns, touched.added)}
        over = touched.start + self._size + self._late.kept <= time.low  # nothing can be added to them any more
        table.put(_only(~over, columns), _only(~over, after))
        table.delete(_only(over & before.found, columns))
        closing = self._emission.emit == CLOSE
        said = touched.start + self._size <= time.previous if closing else np.ones(len(count), dtype=np.bool_)
        results = Results(
            self._shown(_only(said, columns), _only(said, before.columns)),
            (before.numpy("rows") > 0)[said],
            self._shown(_only(said, columns), _only(said, after)),
            (count > 0)[said],
        )
        gone = self._until(table, time.low - self._late.kept)
        if closing:
            stored = self._until(table, time.low, time.previous) if self._late.kept else gone
            results = self._with_closing(results, stored, _only(over & ~said, {**columns, **after}))
        table.delete(gone.columns)
        return self._publisher.say(state, results, time.now)

    def _with_closing(self, corrected: Results, stored: Rows, unstored: Mapping[str, pa.Array]) -> Results:
        """Corrections of windows that were closed before, and the windows that close now: those in the state, and
        those of this batch that never got there."""
        closing = {
            name: pa.concat_arrays([column, as_array(unstored[name], column.type)])
            for name, column in stored.columns.items()
        }
        some = np.asarray(pa.compute.greater(closing["rows"], 0))
        shown = self._shown(closing, closing)
        order = pa.compute.sort_indices(shown, [(name, "ascending") for name in (START, *self.keys_of())])
        shown, some = shown.take(order), some[np.asarray(order)]
        return Results(
            pa.concat_tables([corrected.old, shown]),
            np.concatenate([corrected.had, np.zeros(len(some), dtype=np.bool_)]),
            pa.concat_tables([corrected.new, shown]),
            np.concatenate([corrected.has, some]),
        )

    def _until(self, table: StateTable, high: int, low: int = MIN_TIME) -> Rows:
        """The windows in the state whose end is after `low` and not after `high`."""
        if high <= low:
            return table.range(limit=0)
        return table.range(low=bounded(low - self._size + 1), high=bounded(high - self._size + 1))

    def _shown(self, columns: Mapping[str, Any], state: Mapping[str, Any]) -> pa.Table:
        """Results as they go out, for the windows in `columns` with these accumulators."""
        starts = as_array(columns[START], TIMESTAMP)
        ends = pa.compute.add(starts, pa.scalar(self._size, pa.duration("us")))
        shown = {name: columns[name] for name in self.keys_of()} | {START: starts, END: ends}
        shown |= self._aggregates.values(state)
        schema = self._publisher.results
        return pa.table([as_array(shown[f.name], f.type) for f in schema], schema=schema)


def _only(kept: npt.NDArray[np.bool_], columns: Mapping[str, Any]) -> dict[str, pa.Array]:
    """The rows of some columns that are kept."""
    mask = pa.array(kept)
    return {name: as_array(column).filter(mask) for name, column in columns.items()}
