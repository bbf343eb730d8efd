"""Stream-stream join within a time interval: searches with the clicks of the next hour; also a stream with itself.

A left row at t meets the right rows of its key with times from t + lower to t + upper. Either may come first. A row
expires when the low watermark says that no partner can come any more; then, if its side is kept (`how`), it comes out
alone if it never met one: "search not clicked".

    left, right   (key, time, identity) -> how many, what was said of it, the row
    due           (when, stage, key, identity)      rows by when they expire, then by when they are forgotten
    newest        side -> the greatest time stored: nobody looks for partners that are later

`emit="change"`: pairs in the batch that brings the second of them, rows without a partner when they expire.
`emit="close"`: both in the order of time, when the low watermark has passed them; see `timed`.
`late="correct"`: rows stay `keep_closed` after they expired. A straggler meets them, and one that was said to have no
partner is retracted.
Rows that expire within the batch that brings them never touch the state: a backlog goes at the speed of columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.changelogs.rows import COUNT, IDENTITY, Ints, meet, null_keys, own_fields, take
from headwater.pipeline.changelogs.sides import LEFT, RIGHT, On, key_pairs
from headwater.pipeline.emission import CLOSE, CORRECT
from headwater.pipeline.errors import BadOption
from headwater.pipeline.joins.columns import Shape
from headwater.pipeline.joins.speech import Said, Speech
from headwater.pipeline.joins.timed import AT, Arrivals, Kept, Timed, alike, check_stream, within
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.operator import MIN_TIME, Batch, Operator, Time
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import Rows, State
from headwater.pipeline.time.settings import microseconds

__all__ = ["IntervalJoin", "interval"]

S = TypeVar("S")
Duration = str | float | timedelta

TOLD = "_told"  # state column: what was said of a row so far
NOTHING, MET, ALONE = 0, 1, 2
EXPIRES, FORGOTTEN = 0, 2  # stages of a row in `due`; added to the number of its side
SIDES = (LEFT, RIGHT)


def interval(
    left: S,
    right: S,
    on: On,
    *,
    lower: Duration,
    upper: Duration,
    how: str = "inner",
    emit: str = "change",
    output: str = "append",
    late: str = "drop",
    keep_closed: Duration | None = None,
    alert_above: float = 0.05,
    **where: Unpack[StatefulKeywords],
) -> S:
    """Pairs of rows with equal keys whose times differ (right less left) by `lower` to `upper`; "-5 minutes" is a time.

    `on`: the key columns' names, or {left name: right name}. `how`: "inner", "left", "right", "full": whose rows come
    out, with nulls, also if they meet nobody. The result has the key under its left name, the other columns of both
    sides, and in `_time` the later of both times. `emit`, `output`, `late`: see `headwater.pipeline.emission`.
    """
    revises = how != "inner" and late == CORRECT
    words = Speech.of("interval", emit, output, late, keep_closed=keep_closed, alert_above=alert_above, revises=revises)
    inputs: Any = {LEFT: left, RIGHT: right}
    result: S = stateful(inputs, IntervalJoin(on, lower, upper, how=how, words=words), **where)
    return result


class IntervalJoin(Operator):
    """See the module."""

    needs_time = True

    def __init__(self, on: On, lower: Duration, upper: Duration, *, how: str, words: Speech) -> None:
        self._on = key_pairs(on, "interval")
        self.key = {LEFT: tuple(self._on), RIGHT: tuple(self._on.values())}
        self._lower, self._upper = _signed(lower, "lower"), _signed(upper, "upper")
        if self._lower > self._upper:
            raise BadOption(f"interval: lower is {lower!r} and upper {upper!r}: lower must not be the later one")
        self._how, self._words = how, words
        self._expiry = {LEFT: self._upper, RIGHT: -self._lower}  # from a row's time to when nobody can meet it

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        for side in SIDES:
            check_stream(inputs[side], f"interval: {side}")
        left, right = inputs[LEFT], inputs[RIGHT]
        self._shape = Shape.of(own_fields(left), own_fields(right), self._on, self._how, "interval")
        told = [Column(TOLD, pa.int8(), NOTHING)]
        wait = self._words.emission.emit == CLOSE
        self._kept = {side: Kept(side, inputs[side], self.keys_of(side), told) for side in SIDES}
        self._arrivals = {
            side: Arrivals(side, inputs[side], self.keys_of(side), self._words.lateness, wait=wait) for side in SIDES
        }
        keys = [Column(name, left.field(name).type) for name in self._on]
        ids = [Column(name, pa.uint64()) for name in IDENTITY]
        due = TableSpec.of("due", [Column(AT, pa.int64()), Column("stage", pa.int8()), *keys, *ids], [])
        waiting = [spec for side in SIDES for spec in self._arrivals[side].state]
        newest = TableSpec.of("newest", [("side", pa.string())], [Column(AT, pa.int64(), MIN_TIME)])
        self.state = (self._kept[LEFT].spec, self._kept[RIGHT].spec, due, newest, *waiting)
        return self._words.schema(self._shape)

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        arrived = {side: self._arrivals[side].take(state, batch[side], time) for side in SIDES}
        said = Said(self._shape, self._words)
        new = {side: rows for side, (rows, _) in arrived.items()}
        self._meet(state, new, said, time.low)
        self._expire(state, said, time.low)
        late = {side: rows for side, (_, rows) in arrived.items()}
        return said.table(late)

    def _meet(self, state: State, new: dict[str, Timed], said: Said, low: int) -> None:
        """The pairs that the new rows make with those in the state and among themselves; then they are kept."""
        key_of = {side: new[side].table.select(list(self._kept[side].key)) for side in SIDES}
        keys, of_left, of_right = meet(key_of[LEFT], key_of[RIGHT])
        of = {LEFT: of_left, RIGHT: of_right}
        met = {side: np.zeros(len(new[side]), dtype=np.bool_) for side in SIDES}
        for side, other in (SIDES, SIDES[::-1]):
            old, told, of_old = self._near(state, other, keys.keys.columns, of[side], new[side].at)
            i, j = self._pairs(side, (of[side], new[side].at), (of_old, old.at))
            said.pairs(side, new[side], i, old, j)
            met[side][i] = True
            self._mark_met(state, other, old, told, np.unique(j), said=said)
        i, j = within((of_left, new[LEFT].at), (of_right, new[RIGHT].at), self._lower, self._upper)
        null = null_keys(keys.keys.columns)
        i, j = i[~null[of_left[i]]], j[~null[of_left[i]]]
        said.pairs(LEFT, new[LEFT], i, new[RIGHT], j)
        met[LEFT][i], met[RIGHT][j] = True, True
        for side in SIDES:
            self._keep(state, side, new[side], of[side], met[side], said=said, low=low)

    def _pairs(self, side: str, mine: tuple[Ints, Ints], theirs: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
        if side == LEFT:
            return within(mine, theirs, self._lower, self._upper)
        return within(mine, theirs, -self._upper, -self._lower)

    def _near(self, state: State, side: str, keys: pa.Table, of: Ints, at: Ints) -> tuple[Timed, Ints, Ints]:
        """A side's stored rows that the other side's new rows may meet: rows, what was said of them, key numbers."""
        chosen, first, last = _spans(of, at)
        before, after = (self._lower, self._upper) if side == RIGHT else (-self._upper, -self._lower)
        newest = state["newest"].get({"side": [side]}).numpy(AT)[0]
        usable = ~null_keys(keys)[chosen] & (first + before <= newest)
        chosen, first, last = chosen[usable], first[usable], last[usable]
        asked = take(keys, chosen).rename_columns(list(self._kept[side].key))
        rows = state[side].scan(asked, list(self._kept[side].key), first + before, last + after + 1)
        return self._kept[side].read(rows), rows.numpy(TOLD), chosen[rows.source]

    def _mark_met(self, state: State, side: str, old: Timed, told: Ints, met: Ints, *, said: Said) -> None:
        """Stored rows that have met somebody: said so, and retracted if they were said to be alone."""
        if not self._shape.keeps(side):
            return
        changed = met[told[met] != MET]
        if len(changed):
            rows, before = old.pick(changed), told[changed]
            said.alone(side, rows.pick(before == ALONE), -1)
            self._kept[side].put(state, rows, **{TOLD: np.full(len(rows), MET)})

    def _keep(
        self, state: State, side: str, rows: Timed, of: Ints, met: npt.NDArray[np.bool_], *, said: Said, low: int
    ) -> None:
        """Rows that may still meet somebody are stored; those that expire at once are not, and may be alone."""
        expires = rows.at + self._expiry[side]
        forgotten = expires + self._words.lateness.kept
        over = (expires < low) & ~met
        if self._shape.keeps(side):
            said.alone(side, rows.pick(over), 1, expires[over])
        stay = np.flatnonzero(forgotten >= low)
        if not len(stay):
            return
        stay = stay[np.lexsort((rows.at[stay], of[stay]))]  # the state's order, in which rows are cheap to keep
        told = np.where(met, MET, np.where(over, ALONE, NOTHING))[stay]
        self._store(state, side, rows.pick(stay), told, np.where(expires < low, FORGOTTEN, EXPIRES)[stay])

    def _store(self, state: State, side: str, rows: Timed, told: Ints, stage: Ints) -> None:
        rows = rows.identified()
        kept = alike(rows)
        if len(kept) < len(rows):  # equal rows at one time meet the same others, so one word holds for all
            order = np.lexsort((rows.ids[:, 1], rows.ids[:, 0], rows.at))
            places = order[np.searchsorted(_records(rows, order), _records(kept, np.arange(len(kept))))]
            told, stage = told[places], stage[places]
        known = state[side].get(self._kept[side].keys(kept))
        told = np.where(known.found, np.maximum(known.numpy(TOLD), told), told)
        counted = Timed(kept.table, kept.at, kept.ids, kept.count + known.numpy(COUNT))
        self._kept[side].put(state, counted, **{TOLD: told})
        self._await(state, side, counted, stage)
        newest = max(int(kept.at.max()), int(state["newest"].get({"side": [side]}).numpy(AT)[0]))
        state["newest"].put({"side": [side]}, {AT: [newest]})

    def _await(self, state: State, side: str, rows: Timed, stage: Ints) -> None:
        order = np.argsort(rows.at, kind="stable")
        state["due"].put(self._due(side, rows.pick(order), stage[order]), {})

    def _due(self, side: str, rows: Timed, stage: Ints) -> pa.Table:
        at = rows.at + self._expiry[side] + np.where(stage == FORGOTTEN, self._words.lateness.kept, 0)
        keys = {n: rows.table[m] for n, m in zip(self._on, self._kept[side].key, strict=True)}
        ids = {name: rows.ids[:, i] for i, name in enumerate(IDENTITY)}
        return pa.table({AT: at, "stage": pa.array(stage + SIDES.index(side), pa.int8()), **keys, **ids})

    def _expire(self, state: State, said: Said, low: int) -> None:
        """Rows that the low watermark has passed: alone if they met nobody; forgotten after `keep_closed`."""
        entries = state["due"].range(high=low)
        if not len(entries):
            return
        state["due"].delete(entries.columns)
        stages = entries.numpy("stage")
        for number, side in enumerate(SIDES):
            if self._shape.keeps(side) or self._words.lateness.kept:
                rows, told = self._entries(state, side, entries, stages == number + EXPIRES)
                self._expired(state, side, rows, told, said=said, low=low)
            else:
                self._drop(state, side, entries, stages == number + EXPIRES, 0)
            self._drop(state, side, entries, stages == number + FORGOTTEN, self._words.lateness.kept)

    def _entries(self, state: State, side: str, entries: Rows, chosen: Any) -> tuple[Timed, Ints]:
        keys = self._row_keys(side, entries, chosen, 0)
        rows = state[side].get(keys)
        columns = [keys[n] if n in keys.column_names else rows[n] for n in self._kept[side].columns]
        ids = np.stack([np.asarray(keys[name]) for name in IDENTITY], axis=1).astype(np.uint64)
        table = pa.table(columns, self._kept[side].columns)
        return Timed(table, np.asarray(keys[AT]), ids, rows.numpy(COUNT)), rows.numpy(TOLD)

    def _expired(self, state: State, side: str, rows: Timed, told: Ints, *, said: Said, low: int) -> None:
        lonely = told == NOTHING
        if self._shape.keeps(side):
            said.alone(side, rows.pick(lonely), 1, rows.at[lonely] + self._expiry[side])
        stay = rows.at + self._expiry[side] + self._words.lateness.kept >= low
        self._kept[side].delete(state, rows.pick(~stay))
        if self._words.lateness.kept and stay.any():
            kept = rows.pick(stay)
            self._kept[side].put(state, kept, **{TOLD: np.where(lonely, ALONE, told)[stay]})
            self._await(state, side, kept, np.full(len(kept), FORGOTTEN))

    def _drop(self, state: State, side: str, entries: Rows, chosen: npt.NDArray[np.bool_], kept: int) -> None:
        if chosen.any():
            state[side].delete(self._row_keys(side, entries, chosen, kept))

    def _row_keys(self, side: str, entries: Rows, chosen: npt.NDArray[np.bool_], kept: int) -> pa.Table:
        mask = pa.array(chosen)
        keys = {m: entries[n].filter(mask) for n, m in zip(self._on, self._kept[side].key, strict=True)}
        ids = {name: entries[name].filter(mask) for name in IDENTITY}
        return pa.table({**keys, AT: entries.numpy(AT)[chosen] - self._expiry[side] - kept, **ids})


def _spans(of: Ints, at: Ints) -> tuple[Ints, Ints, Ints]:
    """For each key number that occurs its first and last time."""
    chosen, place = np.unique(of, return_inverse=True)
    first, last = np.full(len(chosen), np.iinfo(np.int64).max), np.full(len(chosen), np.iinfo(np.int64).min)
    np.minimum.at(first, place, at)
    np.maximum.at(last, place, at)
    return chosen, first, last


def _records(rows: Timed, order: Ints) -> Any:
    """(time, identity) of the rows as records, for searching."""
    found = np.empty(len(order), dtype=[("at", "<i8"), ("a", "<u8"), ("b", "<u8")])
    found["at"], found["a"], found["b"] = rows.at[order], rows.ids[order, 0], rows.ids[order, 1]
    return found


def _signed(duration: Duration, what: str) -> int:
    """A duration that may be negative."""
    if isinstance(duration, str) and duration.strip().startswith("-"):
        return -microseconds(duration.strip()[1:], f"interval: {what}")
    if not isinstance(duration, str) and (duration < timedelta() if isinstance(duration, timedelta) else duration < 0):
        return -microseconds(-duration, f"interval: {what}")
    return microseconds(duration, f"interval: {what}")
