"""Windows against windows before them: the same time last week, or what the last thirty were like.

The input is the result of a window: a key, `window_start`, and numbers; rows only (append) or with `_weight`. For each
window its earlier ones are looked up by time. When a window is corrected, so is everything that was compared with it.

    past     (window_start, key) -> the other columns      for as long as a later window may look back
    newest   -> the latest window_start so far             older than it by the longest look back is forgotten
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.columns import WEIGHT
from headwater.pipeline.emission import APPEND, CHANGE, CHANGELOG, CLOSE, Emission
from headwater.pipeline.errors import BadOption, WrongType
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.operator import MIN_TIME, Batch, Operator, Time, require
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import Rows, State
from headwater.pipeline.time.marks import times
from headwater.pipeline.time.settings import TIMESTAMP, microseconds
from headwater.pipeline.windows.definition import START, bounded
from headwater.pipeline.windows.grouping import Keyed, distinct, keyed
from headwater.pipeline.windows.publishing import Publisher, Results

__all__ = ["Compared", "Deviations", "compare", "deviations"]

HISTORY_MAX = 1_000  # windows that one is measured against
HISTORY_MIN = 5  # below this a deviation says nothing

_NEWEST = {"k": pa.array([0], pa.int8())}

S = TypeVar("S")
Duration = str | float | timedelta
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def compare(
    df: S,
    before: Duration,
    *,
    values: Sequence[str],
    key: Sequence[str] = (),
    keep_closed: Duration = 0,
    **where: Unpack[StatefulKeywords],
) -> S:
    """Each window beside the same window `before`: "1 minute", or "7 days" for the same time last week.

    Adds `<value>_before` and `<value>_change` for each of the `values`; null where there was no such window.
    `keep_closed`: how long windows are corrected for (as in the window's own `keep_closed`).
    """
    return stateful(df, Compared(before, values=values, key=key, keep_closed=keep_closed), **where)


def deviations(
    df: S,
    value: str,
    *,
    every: Duration,
    history: int = 30,
    threshold: float = 3.0,
    key: Sequence[str] = (),
    keep_closed: Duration = 0,
    **where: Unpack[StatefulKeywords],
) -> S:
    """Each window measured by the `history` windows before it; windows start `every` so long.

    Adds `expected` (their mean), `deviation` (how many of their standard deviations `value` is from it) and `alert`
    (whether that is more than `threshold`, either way). Null and false while fewer than five of them are known.
    """
    operator = Deviations(value, every, history, threshold, key=key, keep_closed=keep_closed)
    return stateful(df, operator, **where)


class _Against(Operator):
    """Windows and, for each, the windows that are `lags` before it."""

    keyless = True

    def __init__(self, where: str, lags: Sequence[int], values: Sequence[str], key: Sequence[str], keep: Any) -> None:
        self._where, self._lags, self._values = where, tuple(lags), tuple(values)
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self._kept = max(lags) + microseconds(keep, f"{where}: keep_closed")

    @abstractmethod
    def _added(self, kinds: Mapping[str, pa.DataType]) -> list[pa.Field]:
        """The columns that the comparison gives."""

    @abstractmethod
    def _measured(self, own: Mapping[str, pa.Array], earlier: Sequence[Rows]) -> dict[str, pa.Array]:
        """Those columns, for windows with these values; `earlier` has the windows of each lag."""

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        (schema,) = inputs.values()
        require(schema, [*self.keys_of(), START, *self._values], self._where)
        for name in self._values:
            kind = schema.field(name).type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                raise WrongType(name, str(kind), "a number", self._where)
        taken = (*self.keys_of(), START, WEIGHT)
        self._others = [pa.field(f.name, f.type) for f in schema if f.name not in taken]
        added = self._added({name: schema.field(name).type for name in self._values})
        for one in added:
            if one.name in schema.names:
                raise BadOption(f"{self._where}: the rows have a column {one.name!r} already; rename it first")
        emission = Emission(CHANGE, CHANGELOG) if WEIGHT in schema.names else Emission(CLOSE, APPEND)
        self._weighted = emission.weighted
        ids = [*(pa.field(n, schema.field(n).type) for n in self.keys_of()), pa.field(START, TIMESTAMP)]
        self._publisher = Publisher(ids, [*self._others, *added], emission)
        columns = [Column(f.name, f.type) for f in (ids[-1], *ids[:-1])]
        past = TableSpec.of("past", columns, [Column(f.name, f.type) for f in self._others])
        newest = TableSpec.of("newest", [("k", pa.int8())], [Column("start", pa.int64(), MIN_TIME)])
        self.state = (past, newest)
        return self._publisher.schema

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        rows, past = batch.table, state["past"]
        keys, start = keyed(rows, self.keys_of()), times(rows, START)
        ids, touched = self._affected(keys, start)
        old, had = self._looked_up(state, ids)
        gone = self._take_in(state, rows)
        new, has = self._looked_up(state, ids)
        if not self._weighted:
            had, has = np.zeros(len(had), dtype=np.bool_), has & touched
        out = self._publisher.say(state, Results(old, had, new, has), time.now)
        past.delete(gone.columns)
        return out

    def _affected(self, keys: Keyed, start: Numbers) -> tuple[dict[str, Any], npt.NDArray[np.bool_]]:
        """The windows that came and those that look back at them, by time and key; and which of them came."""
        shifts = np.array([0, *self._lags], dtype=np.int64)
        at = (start[None, :] + shifts[:, None]).ravel()
        (window, key), place = distinct(at, np.tile(keys.index, len(shifts)))
        came = np.zeros(len(window), dtype=np.bool_)
        came[place[: len(start)]] = True
        return {START: window, **keys.take(key)}, came

    def _looked_up(self, state: State, ids: Mapping[str, Any]) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """The results of these windows as the state has it now, and which of them there are."""
        past = state["past"]
        own = past.get(ids)
        earlier = [past.get({**ids, START: ids[START] - lag}) for lag in self._lags]
        columns = {**ids, **own.columns, **self._measured(own.columns, earlier)}
        schema = self._publisher.results
        return pa.table([as_array(columns[f.name], f.type) for f in schema], schema=schema), own.found

    def _take_in(self, state: State, rows: pa.Table) -> Rows:
        """The rows into the state, the last word on each window counting; what is now too old to be looked back at."""
        past = state["past"]
        rows = rows.set_column(rows.column_names.index(START), START, rows[START].cast(TIMESTAMP))
        past.put(rows, rows)
        if WEIGHT in rows.column_names:
            past.delete(self._gone(rows))
        newest = int(state["newest"].get(_NEWEST).numpy("start")[0])
        newest = max(newest, int(times(rows, START).max(initial=MIN_TIME)))
        state["newest"].put(_NEWEST, {"start": [newest]})
        return past.range(high=bounded(newest - self._kept))

    def _gone(self, rows: pa.Table) -> pa.Table:
        """The windows whose last word is that they are gone."""
        ids = [START, *self.keys_of()]
        numbered = rows.select([*ids, WEIGHT]).append_column("row", pa.array(np.arange(rows.num_rows)))
        last = numbered.group_by(ids, use_threads=False).aggregate([("row", "max")])["row_max"]
        final = numbered.take(last)
        return final.filter(pc.less(final[WEIGHT], 0))


class Compared(_Against):
    """See `compare`."""

    def __init__(self, before: Any, *, values: Sequence[str], key: Sequence[str] = (), keep_closed: Any = 0) -> None:
        names = (values,) if isinstance(values, str) else tuple(values)
        if not names:
            raise BadOption("compare: say which values, for example values=['n']")
        super().__init__("compare", [microseconds(before, "compare: before", zero=False)], names, key, keep_closed)

    def _added(self, kinds: Mapping[str, pa.DataType]) -> list[pa.Field]:
        return [pa.field(f"{name}_{what}", kind) for name, kind in kinds.items() for what in ("before", "change")]

    def _measured(self, own: Mapping[str, pa.Array], earlier: Sequence[Rows]) -> dict[str, pa.Array]:
        (before,) = earlier
        found = {}
        for name in self._values:
            found[f"{name}_before"] = before[name]
            found[f"{name}_change"] = pc.subtract(own[name], before[name])
        return found


class Deviations(_Against):
    """See `deviations`."""

    def __init__(
        self, value: str, every: Any, history: int, threshold: float, *, key: Sequence[str] = (), keep_closed: Any = 0
    ) -> None:
        if not HISTORY_MIN <= history <= HISTORY_MAX:
            raise BadOption(f"deviations: history is {history}; say {HISTORY_MIN} to {HISTORY_MAX} windows")
        if threshold <= 0:
            raise BadOption(f"deviations: threshold is {threshold}; say how many standard deviations, 3 for example")
        step = microseconds(every, "deviations: every", zero=False)
        self._threshold = threshold
        super().__init__("deviations", [step * (i + 1) for i in range(history)], [value], key, keep_closed)

    def _added(self, kinds: Mapping[str, pa.DataType]) -> list[pa.Field]:
        floats = [pa.field(name, pa.float64()) for name in ("expected", "deviation")]
        return [*floats, pa.field("alert", pa.bool_())]

    def _measured(self, own: Mapping[str, pa.Array], earlier: Sequence[Rows]) -> dict[str, pa.Array]:
        (name,) = self._values
        past = np.stack([_floats(one[name]) for one in earlier])
        known = ~np.isnan(past)
        count = known.sum(axis=0)
        enough = count >= HISTORY_MIN
        total = np.where(known, past, 0.0).sum(axis=0)
        mean = total / np.maximum(count, 1)
        squares = np.where(known, past - mean, 0.0) ** 2
        spread = np.sqrt(squares.sum(axis=0) / np.maximum(count - 1, 1))
        value = _floats(own[name])
        away = np.where(spread > 0, (value - mean) / np.where(spread > 0, spread, 1.0), _direction(value - mean))
        return {
            "expected": pa.array(mean, mask=~enough),
            "deviation": pa.array(away, mask=~enough | np.isnan(away)),
            "alert": pa.array(enough & (np.abs(np.nan_to_num(away)) > self._threshold)),
        }


def _floats(column: pa.Array) -> Floats:
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)


def _direction(difference: Floats) -> Floats:
    """Where all windows before were alike, any difference is infinitely far."""
    return np.where(difference == 0, 0.0, np.copysign(np.inf, difference))
