"""Stage two of time: in every partition of the operator, in its state.

Each partition is told of every lane (see `marks`), so each knows the whole table of lanes and finds the same low
watermark. The lanes are kept three times, by name and in two orders, so that neither the minimum nor the idle ones
cost more with many lanes:

    _lanes       (side, producer, topic, partition) -> mark, seen, idle
    _lanes_low   (mark, lane)    the lanes that are waited for: the first one is the low watermark
    _lanes_seen  (seen, lane)    the same lanes by when they last had rows, on the running clock
    _clock       low watermark, tick, running clock

A lane joins with its first row, leaves when its producer says that nothing earlier than LEFT will follow, is idle
after `idle_after` of running time without rows, and returns with its next row. The running clock moves with the ticks,
at most a third of `idle_after` per batch: a query that was down for an hour does not find everybody idle.

An input in processing time has no lanes: what it says is what time it is, as ticks do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.stateful.operator import LOW, MAX_TIME, MIN_TIME, ONLY, SIDE, Groups, Time, group
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import Rows, State
from headwater.pipeline.time.marks import LANE, lanes_of, times
from headwater.pipeline.time.settings import (
    KIND,
    MARK,
    PARTITION,
    PRODUCER,
    PUNCTUATION,
    ROW,
    TARGET,
    TICK,
    TIME,
    TOPIC,
    TimeSettings,
)

__all__ = ["LEFT", "TimeKeeper"]

LEFT = 253_370_764_800_000_000  # microseconds of the year 9999: "nothing before this" from a producer is its good-bye
IDLE_BATCHES_MIN = 3  # batches without rows before a lane can be idle, however long they took
LANES_SHOWN_MAX = 50  # lanes in a batch's counts: enough for a page, bounded for a fleet of devices

_LANE = (
    Column(SIDE, pa.string()),
    Column(PRODUCER, pa.string()),
    Column(TOPIC, pa.string()),
    Column(PARTITION, pa.int32()),
)
_CLOCK = {"k": pa.array([0], pa.int8())}
_NO_PARTITION = -1  # the lane that stands for a producer that is expected and has not spoken


class TimeKeeper:
    """Keeps time in the state of one step: takes punctuation and ticks out of the rows, and gives both to the step."""

    tables: ClassVar[tuple[TableSpec, ...]] = (
        TableSpec.of(
            "_lanes",
            _LANE,
            [Column("mark", pa.int64(), 0), Column("seen", pa.int64(), 0), Column("idle", pa.int8(), 0)],
        ),
        TableSpec.of("_lanes_low", [("mark", pa.int64()), *_LANE], []),
        TableSpec.of("_lanes_seen", [("seen", pa.int64()), *_LANE], []),
        TableSpec.of(
            "_clock",
            [("k", pa.int8())],
            [
                Column("low", pa.int64(), MIN_TIME),
                Column("tick", pa.int64(), MIN_TIME),
                Column("running", pa.int64(), 0),
            ],
        ),
    )

    def __init__(self, settings: Mapping[str, TimeSettings], state: State) -> None:
        self._settings = {side: one for side, one in settings.items() if not one.processing}
        self._processing = frozenset(side for side, one in settings.items() if one.processing)
        self._state = state
        self._late: Counter[str] = Counter()
        self._expect()

    def take(self, table: pa.Table) -> tuple[pa.Table, Time]:
        """The rows with the low watermark of their lane, without what only carries time; and how far time has got."""
        kinds = np.asarray(table[KIND].to_numpy())
        rows = table.filter(pa.array(kinds == ROW)) if (kinds != ROW).any() else table
        rows = self._with_low(rows)
        clock = self._state["_clock"].get(_CLOCK)
        previous, tick, running = (int(clock.numpy(name)[0]) for name in ("low", "tick", "running"))
        said = table.filter(pa.array(kinds == PUNCTUATION))
        processed = self._is_processing(said)
        now = max(tick, int(times(table, TICK).max(initial=MIN_TIME)))
        now = max(now, int(times(said, MARK)[processed].max(initial=MIN_TIME)))
        running += self._passed(tick, now)
        self._lanes_spoke(said.filter(pa.array(~processed)), running)
        self._lanes_fell_silent(running)
        low = max(previous, self._low(now))
        self._state["_clock"].put(_CLOCK, {"low": [low], "tick": [now], "running": [running]})
        return rows, Time(low=low, previous=previous, now=now)

    def counts(self) -> dict[str, Any]:
        """The low watermark and the lanes that hold it back, for the watch page."""
        clock = self._state["_clock"].get(_CLOCK)
        slowest = self._state["_lanes_low"].range(limit=LANES_SHOWN_MAX)
        lanes = zip(*(slowest[name].to_pylist() for name in (*LANE, "mark")), strict=True)
        return {
            "low": int(clock.numpy("low")[0]),
            "tick": int(clock.numpy("tick")[0]),
            "lanes": [dict(zip(("side", "producer", "topic", "partition", "low"), one, strict=True)) for one in lanes],
            "late": dict(self._late.most_common(LANES_SHOWN_MAX)),
        }

    def _is_processing(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """The rows of inputs in processing time."""
        if SIDE not in table.column_names:
            return np.full(table.num_rows, ONLY in self._processing)
        sides = table[SIDE].to_pylist() if self._processing else ()
        return np.array([side in self._processing for side in sides] or [False] * table.num_rows, dtype=np.bool_)

    def _with_low(self, rows: pa.Table) -> pa.Table:
        low = times(rows, MARK)
        if rows.num_rows:
            lanes = lanes_of(rows)
            known = self._state["_lanes"].get(lanes.keys)
            marks = np.where(known.found, known.numpy("mark"), MIN_TIME)
            low = np.maximum(low, marks[lanes.index])
            low[self._is_processing(rows)] = MIN_TIME  # whatever is processed now is not late
            self._count_late(lanes, times(rows, TIME, MAX_TIME) < low)
        hidden = [name for name in (KIND, MARK, TARGET, TICK) if name in rows.column_names]
        return rows.drop_columns(hidden).append_column(LOW, pa.array(low))

    def _count_late(self, lanes: Groups, late: npt.NDArray[np.bool_]) -> None:
        counts = np.bincount(lanes.index[late], minlength=len(lanes))
        names = lanes.keys[PRODUCER].to_pylist()
        for lane in np.flatnonzero(counts).tolist():
            self._late[names[lane]] += int(counts[lane])

    def _passed(self, tick: int, now: int) -> int:
        """How far the running clock moves: the time between two ticks, less what looks like a time of being down."""
        if MIN_TIME in (tick, now):
            return 0
        longest = min((s.idle_after // IDLE_BATCHES_MIN for s in self._settings.values() if s.idle_after), default=0)
        return min(now - tick, longest)

    def _lanes_spoke(self, table: pa.Table, running: int) -> None:
        if not table.num_rows:
            return
        lanes = lanes_of(table)
        said = np.full(len(lanes), MIN_TIME, dtype=np.int64)
        np.maximum.at(said, lanes.index, times(table, MARK))
        known = self._state["_lanes"].get(lanes.keys)
        marks = np.maximum(said, np.where(known.found, known.numpy("mark"), MIN_TIME))
        self._unindex(known, lanes)
        self._state["_lanes"].put(lanes.keys, {"mark": marks, "seen": _same(running, lanes), "idle": _same(0, lanes)})
        self._index(lanes, marks, running)
        self._met(lanes)
        self._left(lanes, marks)

    def _lanes_fell_silent(self, running: int) -> None:
        for side, settings in self._settings.items():
            if not settings.idle_after:
                continue
            silent = self._state["_lanes_seen"].range(high=running - settings.idle_after + 1)
            chosen = np.flatnonzero(np.asarray(silent[SIDE].to_numpy(zero_copy_only=False)) == side)
            if len(chosen):
                self._set_idle(group(pa.table([silent[name].take(pa.array(chosen)) for name in LANE], list(LANE))))

    def _set_idle(self, lanes: Groups) -> None:
        known = self._state["_lanes"].get(lanes.keys)
        self._unindex(known, lanes)
        values = {"mark": known["mark"], "seen": known["seen"], "idle": _same(1, lanes)}
        self._state["_lanes"].put(lanes.keys, values)

    def _low(self, now: int) -> int:
        """The least mark of the lanes waited for; when nobody is, time goes on by the ticks. Ticks also bound it: a
        clock that is ahead of them closes nothing for the others."""
        if not self._settings:
            return now
        first = self._state["_lanes_low"].range(limit=1)
        bound = MAX_TIME if now == MIN_TIME else now - max(s.delay for s in self._settings.values())
        if len(first):
            return min(int(first.numpy("mark")[0]), bound)
        idle_after = max(s.idle_after for s in self._settings.values())
        return MIN_TIME if now == MIN_TIME or not idle_after else bound - idle_after

    def _index(self, lanes: Groups, marks: npt.NDArray[np.int64], running: int) -> None:
        names = {name: lanes.keys[name] for name in LANE}
        self._state["_lanes_low"].put({"mark": marks, **names}, {})
        if any(s.idle_after for s in self._settings.values()):
            self._state["_lanes_seen"].put({"seen": _same(running, lanes), **names}, {})

    def _unindex(self, known: Rows, lanes: Groups) -> None:
        listed = pa.array(known.found & (known.numpy("idle") == 0))
        names = {name: lanes.keys[name].filter(listed) for name in LANE}
        self._state["_lanes_low"].delete({"mark": known["mark"].filter(listed), **names})
        self._state["_lanes_seen"].delete({"seen": known["seen"].filter(listed), **names})

    def _left(self, lanes: Groups, marks: npt.NDArray[np.int64]) -> None:
        gone = np.flatnonzero(marks >= LEFT)
        if not len(gone):
            return
        left = group(pa.table([lanes.keys[name].take(pa.array(gone)) for name in LANE], list(LANE)))
        self._unindex(self._state["_lanes"].get(left.keys), left)
        self._state["_lanes"].delete(left.keys)

    def _expected(self) -> list[tuple[str, str]]:
        """The producers waited for before they have spoken. Where inputs meet, an input that names none waits for
        anybody: its rows are not late because another input spoke first."""
        anybody = ("",) if len(self._settings) > 1 else ()
        return [(side, producer) for side, s in self._settings.items() for producer in s.expect or anybody]

    def _expect(self) -> None:
        """At the very first step, a lane that has said nothing for every producer that is expected."""
        names = self._expected()
        if not names or self._state["_clock"].get(_CLOCK).found[0]:
            return
        lanes = group(_lane_table(names))
        start = np.full(len(lanes), MIN_TIME, dtype=np.int64)
        values = {"mark": start, "seen": _same(0, lanes), "idle": _same(0, lanes)}
        self._state["_lanes"].put(lanes.keys, values)
        self._index(lanes, start, 0)

    def _met(self, lanes: Groups) -> None:
        """Producers that were expected and have spoken are waited for by their real lanes from now on."""
        spoken = zip(lanes.keys[SIDE].to_pylist(), lanes.keys[PRODUCER].to_pylist(), strict=True)
        named = {(side, producer if self._settings[side].expect else "") for side, producer in spoken}
        names = sorted(named & set(self._expected()))
        if names:
            met = group(_lane_table(names))
            self._unindex(self._state["_lanes"].get(met.keys), met)
            self._state["_lanes"].delete(met.keys)


def _lane_table(names: list[tuple[str, str]]) -> pa.Table:
    return pa.table(
        [
            pa.array([side for side, _ in names], pa.string()),
            pa.array([producer for _, producer in names], pa.string()),
            pa.repeat("", len(names)),
            pa.repeat(pa.scalar(_NO_PARTITION, pa.int32()), len(names)),
        ],
        list(LANE),
    )


def _same(value: int, lanes: Groups) -> npt.NDArray[np.int64]:
    return np.full(len(lanes), value, dtype=np.int64)
