"""What every window checks while it is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.pipeline.aggregates.aggregate import Aggregate
from headwater.pipeline.columns import WEIGHT
from headwater.pipeline.emission import LATE, Emission
from headwater.pipeline.errors import BadOption, DefinitionError
from headwater.pipeline.stateful.operator import MAX_TIME, MIN_TIME, require
from headwater.pipeline.time.settings import TIME, TIMESTAMP
from headwater.pipeline.windows.late import ROW, Lateness

__all__ = [
    "END",
    "START",
    "Words",
    "bounded",
    "check_input",
    "check_retracts",
    "checked_key",
    "columns_of",
    "window_fields",
    "within",
]

START, END = "window_start", "window_end"
RESERVED = (START, END, LATE, ROW, WEIGHT)


@dataclass(frozen=True, slots=True)
class Words:
    """What a user says about when results come out, in which form, and about late rows."""

    emit: str = "close"
    output: str = "append"
    late: str = "drop"
    keep_closed: Any = None
    alert_above: float = 0.05

    def parsed(self, where: str) -> tuple[Emission, Lateness]:
        lateness = Lateness.of(self.late, self.keep_closed, self.alert_above, where)
        return Emission.of(self.emit, self.output, where, revises=lateness.corrects), lateness


def checked_key(key: Sequence[str], where: str) -> tuple[str, ...]:
    """The key's columns; a single name is taken as one, doubled and reserved ones are refused."""
    names = (key,) if isinstance(key, str) else tuple(key)
    for name in names:
        if name in RESERVED:
            raise BadOption(f"{where}: key column {name!r} has the name of a column of the result; rename it first")
    if len(set(names)) < len(names):
        raise BadOption(f"{where}: key names a column twice: {', '.join(names)}")
    return names


def check_input(schema: pa.Schema, key: Sequence[str], aggregates: Mapping[str, Aggregate], where: str) -> None:
    """The columns are there, the rows have an event time, and the results' names are free."""
    if TIME not in schema.names:
        raise DefinitionError(f'{where}: the rows have no event time; say event_time(df, "column", ...) first')
    require(schema, key, f"{where}: key")
    for name in aggregates:
        if name in (*RESERVED, *key):
            raise BadOption(f"{where}: an aggregate cannot be called {name!r}, which is another column of the result")


def check_retracts(schema: pa.Schema, aggregates: Mapping[str, Aggregate], where: str) -> None:
    """Rows of a changelog may be taken back: every aggregate must be able to."""
    stuck = [name for name, one in aggregates.items() if not one.retracts]
    if WEIGHT in schema.names and stuck:
        raise DefinitionError(f"{where}: {', '.join(stuck)} cannot take rows with a negative {WEIGHT} out again")


def window_fields() -> list[pa.Field]:
    return [pa.field(START, TIMESTAMP), pa.field(END, TIMESTAMP)]


def columns_of(aggregates: Mapping[str, Aggregate]) -> tuple[str, ...]:
    """The input's columns that the aggregates read."""
    return tuple(dict.fromkeys(column for one in aggregates.values() for column in one.columns))


def within(aggregates: Mapping[str, Aggregate], size: int) -> dict[str, Aggregate]:
    """The aggregates in a window of `size` microseconds; what is none is refused later, with its column's name."""
    return {name: one.within(size) if isinstance(one, Aggregate) else one for name, one in aggregates.items()}


def bounded(at: int) -> int:
    """A time that the state can be asked for: calculations at the ends of time stay within it."""
    return max(min(at, MAX_TIME), MIN_TIME)
