"""Joins of events with a table as it was: as of the event's time, whatever comes when.

`as_of` keeps all versions of the table: the tax rate at the time of the sale, also when history is processed again, and
a version that comes late can correct what was said. `stream_table` keeps the table as it is, and what it was for
as long as events can still ask for it.

What makes it deterministic: an event meets the version that held at the event's own time, and (emit="close") it
is answered when the low watermark of both inputs has passed that time, so that every version that could matter
is known. Whether the table's topic or the events' is read first, faster, or again from the start makes no difference:
the snapshot in the table's topic comes before the events because its times do. Where a compacted topic has lost old
versions, `snapshot` names the time of the first complete state: earlier events see the table as it was then.

    versions, stale    see `headwater.pipeline.changelogs.history`
    waiting_left       events whose turn has not come yet (emit="close"), see `timed`
    events             (key, time, identity) -> how many, the event: those that can still be corrected
    due                (when, key, time, identity): when they are forgotten
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.changelogs.history import NONE, History, Versions, version_ids
from headwater.pipeline.changelogs.rows import COUNT, IDENTITY, Ints, check_weight, meet, null_keys, own_fields, take
from headwater.pipeline.changelogs.sides import LEFT, RIGHT, On, key_pairs
from headwater.pipeline.emission import CHANGE, CLOSE, CORRECT
from headwater.pipeline.errors import BadOption, DefinitionError
from headwater.pipeline.joins.columns import Shape
from headwater.pipeline.joins.speech import Said, Speech
from headwater.pipeline.joins.timed import AT, Arrivals, Kept, Timed, alike, check_stream
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.operator import MAX_TIME, MIN_TIME, Batch, Operator, Time
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import State
from headwater.pipeline.time.marks import times
from headwater.pipeline.time.settings import TIME
from headwater.pipeline.windows.late import Missed, lows, timed

__all__ = ["AsOf", "as_of", "stream_table"]

S = TypeVar("S")
Duration = str | float | timedelta
Mask = npt.NDArray[np.bool_]


def as_of(
    events: S,
    versions: S,
    on: On,
    *,
    how: str = "inner",
    version: str | None = None,
    emit: str = "close",
    output: str = "append",
    late: str = "drop",
    keep_closed: Duration | None = None,
    alert_above: float = 0.05,
    **where: Unpack[StatefulKeywords],
) -> S:
    """Each event with the row that held for its key at the event's time; all versions are kept.

    `versions`: the history of a table, each row holding from its event time on; a row with a `_weight` of -1, or a
    tombstone (only the key is not null), ends the one before. `how`: "inner" or "left" (events without a row as well).
    `version`: a column for the version's id, the same whenever and wherever history is processed.
    `emit="change"` answers at once and revises as versions come; `late="correct"` revises for late versions as well,
    for as long as `keep_closed` keeps the events. See `headwater.pipeline.emission`.
    """
    words = Speech.of(
        "as_of",
        emit,
        output,
        late,
        keep_closed=keep_closed,
        alert_above=alert_above,
        revises=emit == CHANGE or late == CORRECT,
    )
    inputs: Any = {LEFT: events, RIGHT: versions}
    result: S = stateful(inputs, AsOf(on, how, version, words, history=None), **where)
    return result


def stream_table(
    events: S,
    table: S,
    on: On,
    *,
    how: str = "inner",
    snapshot: datetime | None = None,
    late: str = "drop",
    output: str = "append",
    keep_closed: Duration | None = None,
    alert_above: float = 0.05,
    **where: Unpack[StatefulKeywords],
) -> S:
    """Each event with its key's row in a table that changes, as of the event's time.

    `table`: the table's changelog topic: rows by key, tombstones (only the key is not null) or rows with a `_weight` of
    -1 delete. `snapshot`: events before this time see the table as of this time; for topics that were compacted, or
    captured from then on. The state is the table, and its past as far as events still ask for it. Otherwise as `as_of`.
    """
    words = Speech.of(
        "stream_table", CLOSE, output, late, keep_closed=keep_closed, alert_above=alert_above, revises=late == CORRECT
    )
    start = MIN_TIME if snapshot is None else _moment(snapshot)
    operator = AsOf(on, how, None, words, history=words.lateness.kept, start=start)
    inputs: Any = {LEFT: events, RIGHT: table}
    result: S = stateful(inputs, operator, **where)
    return result


class AsOf(Operator):
    """See the module. `history`: how long versions are kept after the next one, None for ever; `start`: times before it
    are taken for it."""

    needs_time = True

    def __init__(
        self, on: On, how: str, version: str | None, words: Speech, *, history: int | None, start: int = MIN_TIME
    ) -> None:
        self._where = "as_of" if history is None else "stream_table"
        self._on = key_pairs(on, self._where)
        self.key = {LEFT: tuple(self._on), RIGHT: tuple(self._on.values())}
        if how not in ("inner", "left"):
            raise BadOption(
                f"{self._where}: how is {how!r}; say 'inner' or 'left': the table's rows alone are no events"
            )
        self._how, self._version, self._words, self._kept, self._start = how, version, words, history, start
        self._revises = words.emission.emit == CHANGE or words.lateness.corrects

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        left, right = inputs[LEFT], inputs[RIGHT]
        check_stream(left, f"{self._where}: events")
        if TIME not in right.names:
            raise DefinitionError(f'{self._where}: the table has no event time; say event_time(table, "column") first')
        check_weight(right, f"{self._where}: table")
        named = [pa.field(self._version, pa.string())] if self._version is not None else []
        self._shape = Shape.of(own_fields(left), own_fields(right) + named, self._on, self._how, self._where)
        self._history = History(right, self.keys_of(RIGHT), self._kept)
        wait = self._words.emission.emit == CLOSE
        self._arrivals = Arrivals(LEFT, left, self.keys_of(LEFT), self._words.lateness, wait=wait)
        self._events = Kept("events", left, self.keys_of(LEFT))
        keys = [Column(name, left.field(name).type) for name in self._on]
        ids = [Column(name, pa.uint64()) for name in IDENTITY]
        due = TableSpec.of("due", [Column("when", pa.int64()), *keys, Column(AT, pa.int64()), *ids], [])
        kept = [self._events.spec, due] if self._revises else []
        self.state = (*self._history.state, *self._arrivals.state, *kept)
        return self._words.schema(self._shape)

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        changes, at = self._changes(state, batch[RIGHT], time)
        events, late = self._arrivals.take(state, batch[LEFT], time, self._start)
        said = Said(self._shape, self._words)
        mine, theirs = events.table.select(list(self._on)), changes.select(list(self.keys_of(RIGHT)))
        keys, of_events, of_changes = meet(mine, theirs)
        new = self._history.arrived(changes, at, of_changes)
        asked, of = events, of_events
        if self._revises:
            told, of_told = self._touched(state, keys.keys.columns, new)
            asked, of = Timed.joined([events, told]), np.concatenate([of_events, of_told])
        self._answer(state, keys.keys.columns, asked, of, new, fresh=len(events), said=said)
        self._history.put(state, new, time.low)
        if self._revises:
            self._keep(state, events, time.low)
        self._history.forget(state, time.low)
        return said.table({LEFT: late})

    def _changes(self, state: State, table: pa.Table, time: Time) -> tuple[pa.Table, Ints]:
        """The table's new versions, with their times, but for those that are too late."""
        rows = timed(table, state)
        at = times(rows, TIME)
        late = at < lows(rows, time) - self._words.lateness.kept
        self._words.lateness.note(state, rows, np.flatnonzero(late), Missed(at[late], at[late]))
        return take(rows, np.flatnonzero(~late)), at[~late]

    def _seen(self, at: Ints) -> Ints:
        """The times as of which events see the table."""
        return np.maximum(at, self._start)

    def _touched(self, state: State, keys: pa.Table, new: Versions) -> tuple[Timed, Ints]:
        """The events in the state that new versions may say something else about, and their keys' numbers."""
        chosen, first = _firsts(new.of, new.at)
        first = np.where(first <= self._start, MIN_TIME, first)
        asked = take(keys, chosen).rename_columns(list(self._events.key))
        rows = state["events"].scan(asked, list(self._events.key), first)
        return self._events.read(rows), chosen[rows.source]

    def _answer(
        self, state: State, keys: pa.Table, events: Timed, of: Ints, new: Versions, *, fresh: int, said: Said
    ) -> None:
        """Say what holds for the events; of those behind the first `fresh`, only what is not as it was said before."""
        if not len(events):
            return
        at = self._seen(events.at)
        chosen, first = _firsts(of, at)
        _, last = _firsts(of, -at)
        before = self._history.around(state, keys, chosen, first, -last)
        after = before.and_(new).in_order()
        null = null_keys(keys)[of]
        now = np.where(null, NONE, after.held(of, at))
        told = np.arange(len(events)) >= fresh
        if told.any():
            then = np.where(null, NONE, before.held(of, at))
            same = _same(before, then, after, now)
            self._say(said, events, told & ~same, before, then, sign=-1)
            self._say(said, events, ~told | ~same, after, now)
        else:
            self._say(said, events, ~told, after, now)

    def _say(self, said: Said, events: Timed, chosen: Mask, versions: Versions, held: Ints, *, sign: int = 1) -> None:
        rows = np.flatnonzero(chosen)
        met = rows[held[rows] != NONE]
        used, places = np.unique(held[met], return_inverse=True)
        table = versions.pick(used)
        right = table.table
        if self._version is not None:
            right = right.append_column(self._version, version_ids(table))
        # a version counts once and has no time of its own in the result: the event's time is the result's
        once = Timed(right, np.full(len(used), MIN_TIME), table.ids, np.ones(len(used), dtype=np.int64))
        said.pairs(LEFT, events, met, once, places, sign=sign)
        if self._shape.keeps(LEFT):
            said.alone(LEFT, events.pick(rows[held[rows] == NONE]), sign)

    def _keep(self, state: State, events: Timed, low: int) -> None:
        """Events that can still be corrected are kept; those for which it is too late are forgotten."""
        until = self._seen(events.at) + self._words.lateness.kept
        stay = alike(events.pick(until >= low))
        known = state["events"].get(self._events.keys(stay)).numpy(COUNT)
        self._events.put(state, Timed(stay.table, stay.at, stay.ids, stay.count + known))
        keys = {name: stay.table[name] for name in self._on}
        ids = {name: stay.ids[:, i] for i, name in enumerate(IDENTITY)}
        when = self._seen(stay.at) + self._words.lateness.kept
        state["due"].put({"when": when, **keys, AT: stay.at, **ids}, {})
        over = state["due"].range(high=low)
        if len(over):
            state["due"].delete(over.columns)
            state["events"].delete(over.columns)


def _firsts(of: Ints, at: Ints) -> tuple[Ints, Ints]:
    """The numbers that occur in `of`, and the least time of each."""
    chosen, place = np.unique(of, return_inverse=True)
    first = np.full(len(chosen), MAX_TIME)
    np.minimum.at(first, place, at)
    return chosen, first


def _same(before: Versions, then: Ints, after: Versions, now: Ints) -> Mask:
    """Where two answers are the same version, or both none."""
    both = (then != NONE) & (now != NONE)
    same = (then == NONE) & (now == NONE)
    one, two = then[both], now[both]
    same[both] = (before.at[one] == after.at[two]) & (before.ids[one] == after.ids[two]).all(axis=1)
    return np.asarray(same)


def _moment(at: datetime) -> int:
    """Microseconds since 1970; a time without a zone is UTC, as everywhere in a pipeline."""
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
