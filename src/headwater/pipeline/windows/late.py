"""Rows that came too late, in the same words for every window: counted, and given out on the side if asked.

`late="drop"`     counted by producer and window start in the batch's counts, and left out
`late="side"`     counted too, and given out as rows with `_late` true: the key, the window they missed, and the row
                  as it came in `_row`; results have `_late` false and `_row` null
`late="correct"`  taken in as long as `keep_closed` says; what comes later still is dropped and counted

A row is late for a window when its own producer's low watermark, as it was when the row was written, has passed the
window's end (and `keep_closed` with "correct"). Nothing else decides, so batch boundaries leave no trace. The one
exception is a producer that joins, or returns after it was given up: it finds closed what has been closed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.emission import CORRECT, LATE, SIDE, check_late
from headwater.pipeline.errors import BadOption
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.operator import LOW, MIN_TIME, Time
from headwater.pipeline.stateful.state import State
from headwater.pipeline.time.marks import times
from headwater.pipeline.time.settings import PRODUCER, TIME, microseconds
from headwater.pipeline.windows.grouping import Numbers, distinct, each_between, keyed

__all__ = ["ROW", "Lateness", "Missed", "beside", "lows", "timed", "with_side"]

ROW = "_row"  # in side output: the late row as it came
DROPPED_SHOWN_MAX = 100  # (producer, window) pairs in a batch's counts; all are in its totals
ALERT_ROWS_MIN = 100  # rows in a batch below which a share says nothing

_log = logging.getLogger("headwater.pipeline")


@dataclass(frozen=True, slots=True)
class Missed:
    """The windows that each of some rows missed: by number, from `first` to `last`; number n starts at n * hop +
    offset, microseconds."""

    first: Numbers
    last: Numbers
    hop: int = 1
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Lateness:
    """What to do about late rows; `kept` is microseconds, 0 unless late rows correct."""

    policy: str
    kept: int
    alert_above: float

    @classmethod
    def of(cls, late: str, keep_closed: Any, alert_above: float, where: str) -> Lateness:
        check_late(late, where)
        kept = 0 if keep_closed is None else microseconds(keep_closed, f"{where}: keep_closed", zero=False)
        if (late == CORRECT) != bool(kept):
            raise BadOption(
                f"{where}: late={late!r} with keep_closed={keep_closed!r}; corrections need both: late='correct' and, "
                "for as long as closed windows can still be corrected, for example keep_closed='1 hour'"
            )
        if not 0 < alert_above <= 1:
            raise BadOption(f"{where}: alert_above is {alert_above!r}: a share of the rows, more than 0 and at most 1")
        return cls(late, kept, alert_above)

    @property
    def corrects(self) -> bool:
        return self.policy == CORRECT

    @property
    def sides(self) -> bool:
        return self.policy == SIDE

    def note(self, state: State, rows: pa.Table, late: Numbers, missed: Missed) -> None:
        """Count the rows numbered `late` against the windows that each of them `missed`, and warn above the rate."""
        notes = state.notes.setdefault("late", {"rows": 0, "late": 0, "rate": 0.0, "alert": False, "windows": []})
        notes["rows"] += rows.num_rows
        if not len(late):
            return
        notes["late"] += len(late)
        notes["rate"] = round(notes["late"] / notes["rows"], 4)
        notes["windows"] = (notes["windows"] + _by_producer(rows, late, missed))[:DROPPED_SHOWN_MAX]
        if not notes["alert"] and notes["rows"] >= ALERT_ROWS_MIN and notes["rate"] > self.alert_above:
            notes["alert"] = True
            _log.warning(
                "%d of %d rows came too late for their windows (alert_above=%s): look at the producers' clocks and "
                "delays; the most behind: %s",
                notes["late"],
                notes["rows"],
                self.alert_above,
                max(notes["windows"], key=lambda one: one["rows"]),
            )


def _by_producer(rows: pa.Table, late: Numbers, missed: Missed) -> list[dict[str, Any]]:
    """The (producer, window) pairs that most rows were late for."""
    producers = keyed(rows.take(pa.array(late)), [PRODUCER] if PRODUCER in rows.column_names else [])
    # rows that missed the same windows are counted first: one may have missed a thousand
    (producer, first, last), index = distinct(producers.index, missed.first, missed.last)
    of, number = each_between(first, last)
    (producer, number), place = distinct(producer[of], number)
    counts = np.bincount(place, weights=np.bincount(index)[of]).astype(np.int64)
    start = number * missed.hop + missed.offset
    most = np.sort(np.argsort(-counts, kind="stable")[:DROPPED_SHOWN_MAX])
    names = producers.take(producer[most]).get(PRODUCER, pa.repeat("", len(most))).to_pylist()
    return [
        {"producer": name or "", "window_start": _iso(at), "rows": count}
        for name, at, count in zip(names, start[most].tolist(), counts[most].tolist(), strict=True)
    ]


def _iso(at: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)).isoformat()


def lows(rows: pa.Table, time: Time) -> npt.NDArray[np.int64]:
    """The low watermark that each row is judged by."""
    return np.maximum(times(rows, LOW, MIN_TIME), time.previous)


def timed(rows: pa.Table, state: State) -> pa.Table:
    """The rows that have an event time; the others belong to no window and are counted."""
    untimed = rows[TIME].null_count
    if not untimed:
        return rows
    state.notes["untimed"] = state.notes.get("untimed", 0) + untimed
    return rows.filter(rows[TIME].is_valid())


def with_side(schema: pa.Schema, rows: pa.Schema) -> pa.Schema:
    """The output's schema with the columns of the side output."""
    packed = pa.struct([pa.field(one.name, one.type) for one in rows])
    return schema.append(pa.field(LATE, pa.bool_(), nullable=False)).append(pa.field(ROW, packed))


def beside(
    results: pa.Table, schema: pa.Schema, rows: pa.Table, late: npt.NDArray[np.int64], known: Mapping[str, Any]
) -> pa.Table:
    """The results, and behind them the rows numbered `late` with the columns `known` of them (one for each)."""
    kind = schema.field(ROW).type
    own = results.append_column(schema.field(LATE), pa.repeat(False, results.num_rows))
    own = own.append_column(schema.field(ROW), pa.nulls(results.num_rows, kind))
    chosen = rows.take(pa.array(late))
    columns = {name: as_array(column) for name, column in known.items()}
    columns[LATE] = pa.repeat(True, len(late))
    columns[ROW] = pa.StructArray.from_arrays([as_array(chosen[f.name], f.type) for f in kind], fields=list(kind))
    filled = [as_array(columns[f.name], f.type) if f.name in columns else _blank(len(late), f) for f in schema]
    return pa.concat_tables([own.cast(schema), pa.table(filled, schema=schema)])


def _blank(count: int, field: pa.Field) -> pa.Array:
    """Nulls; a late row's `_weight`, which is not nullable, is 1: the row itself, not a change of a result."""
    return pa.nulls(count, field.type) if field.nullable else pa.repeat(pa.scalar(1, field.type), count)
