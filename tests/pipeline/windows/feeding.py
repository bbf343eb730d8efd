"""Operators driven without Spark: rows in, in any batches, tables out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headwater.pipeline.columns import WEIGHT
from headwater.pipeline.stateful.operator import ONLY, Operator
from headwater.pipeline.stateful.task import Program, Step, empty_state
from headwater.pipeline.time.marks import Marker
from headwater.pipeline.time.settings import PRODUCER, TICK, TIME, TIMESTAMP, TimeSettings

Row = dict[str, Any]
COLUMNS = {"user": pa.string(), "amount": pa.float64()}
DAY = datetime(2026, 11, 19, tzinfo=UTC)
LAST = datetime(9998, 1, 1, tzinfo=UTC)  # what a closing row is at: everything before it is closed


def clock(text: str) -> datetime:
    """A time of one day, such as "10:03:39"."""
    parts = [float(part) for part in text.split(":")]
    hours, minutes, seconds = (*parts, 0.0)[:3]
    return DAY + timedelta(hours=hours, minutes=minutes, seconds=seconds)


class Feed:
    """One operator over one input: `columns` beside `_time`, and a producer of every row."""

    def __init__(self, operator: Operator, columns: Mapping[str, pa.DataType], *, delay: str | int = 0) -> None:
        from headwater.pipeline.time.settings import microseconds

        self.settings = {ONLY: TimeSettings(delay=microseconds(delay, "delay"))}
        own = [pa.field(name, kind) for name, kind in columns.items()]
        self.schema = pa.schema([*own, pa.field(TIME, TIMESTAMP), pa.field(PRODUCER, pa.string())])
        self.program = Program.of(operator, {ONLY: self.schema}, self.settings)
        self.state = empty_state(self.program)
        self.counts: dict[str, Any] = {}

    def table(self, rows: Iterable[Row]) -> pa.Table:
        filled = [{PRODUCER: "", **row} for row in rows]
        return pa.Table.from_pylist(filled, self.schema)

    def batch(self, rows: Iterable[Row] | pa.Table, tick: datetime | None = None) -> pa.Table:
        """The rows that follow from a micro-batch of these."""
        table = rows if isinstance(rows, pa.Table) else self.table(rows)
        marker = Marker(self.settings, self.schema.append(pa.field(TICK, TIMESTAMP)))
        parts = [marker.rows(table), marker.punctuation(1)]
        if tick is not None:
            parts.append(marker.ticks(pa.table({TICK: pa.array([tick], TIMESTAMP)}), 1))
        self.state.notes.clear()
        step = Step(self.program, self.state)
        out = step.feed(pa.concat_tables(parts))
        self.counts = step.finish().operator
        return out

    def batches(self, rows: Sequence[Row], sizes: Sequence[int]) -> pa.Table:
        """All rows, in batches of these sizes (the last takes the rest)."""
        outs, at = [], 0
        for size in [*sizes, len(rows)]:
            outs.append(self.batch(rows[at : at + size]))
            at += size
            if at >= len(rows):
                break
        return pa.concat_tables(outs).combine_chunks()


def accumulated(changes: pa.Table | Iterable[Row], key: Sequence[str] = ()) -> list[Row]:
    """A changelog summed up: the rows that are left, sorted. With `key`, upserts: the newest row of each."""
    rows = changes.to_pylist() if isinstance(changes, pa.Table) else list(changes)
    table: dict[tuple[Any, ...], tuple[int, Row]] = {}
    for row in rows:
        weight, own = row.get(WEIGHT, 1), {name: value for name, value in row.items() if name != WEIGHT}
        name = tuple(_frozen(own[column]) for column in (key or own))
        before = table.get(name, (0, own))[0]
        table[name] = (int(weight > 0) if key else before + weight, own)
    assert all(weight >= 0 for weight, _ in table.values()), "more was retracted than was ever there"
    left = [own for weight, own in table.values() for _ in range(weight)]
    return sorted(left, key=lambda row: [str(value) for value in row.values()])


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else str(value) if isinstance(value, dict) else value


def event(at: str | datetime, user: str = "ann", amount: float | None = 1.0, producer: str = "") -> Row:
    return {
        "user": user,
        "amount": amount,
        "_time": clock(at) if isinstance(at, str) else at,
        "_producer": producer,
    }


seconds = st.integers(0, 120)
events = st.lists(
    st.tuples(seconds, st.sampled_from(["ann", "bob"]), st.integers(-50, 50), st.sampled_from(["p1", "p2"])),
    max_size=40,
)
sizes = st.lists(st.integers(1, 15), max_size=8)


def rows_of(drawn: list[tuple[int, str, int, str]]) -> list[Row]:
    return [
        event(clock("10:00") + timedelta(seconds=at), user, amount / 10, producer)
        for at, user, amount, producer in drawn
    ]


def interleaved(rows: list[Row], seed: int) -> list[Row]:
    """The first rows as they are, then the producers' rows in another interleaving; each producer's own order stays."""
    chance = random.Random(seed)
    lanes = {name: [row for row in rows[2:] if row["_producer"] == name] for name in ("p1", "p2")}
    mixed = rows[:2]
    while any(lanes.values()):
        mixed.append(lanes[chance.choice([name for name, left in lanes.items() if left])].pop(0))
    return mixed
