"""Times of devices whose clocks are wrong, from three timestamps.

    occurred   when it happened, by the device's clock
    sent       when the device sent it, by the same clock
    received   when the server got it, by the server's clock

`received - sent` is the device clock's offset, if the network took no time; `occurred + offset` is then when it
happened. The network's delay is in the offset: the corrected time is too late by that delay, never too early. So it
lies between the true time and the true time plus the delay of that one message, and never behind `received`.

    _occurred        timestamp   occurred + offset
    _clock_offset    long        the offset in microseconds: positive when the device's clock is behind
    _clock_suspect   boolean     true when the offset is beyond `max_offset`, or the event occurred after it was sent:
                                 a clock that was set in between, or a broken one
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import pyarrow as pa

from headwater.pipeline.engine import engine_of
from headwater.pipeline.errors import UnknownColumn, WrongType
from headwater.pipeline.time.settings import TIMESTAMP, microseconds

__all__ = ["CLOCK_OFFSET", "CLOCK_SUSPECT", "OCCURRED", "DeviceClock", "corrected_schema", "device_time"]

S = TypeVar("S")

OCCURRED, CLOCK_OFFSET, CLOCK_SUSPECT = "_occurred", "_clock_offset", "_clock_suspect"


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """The three columns, and how far a clock may be off before it is suspect (microseconds)."""

    occurred: str
    sent: str
    received: str
    max_offset: int


def device_time(df: S, occurred: str, sent: str, received: str, *, max_offset: str | float | timedelta = "1 day") -> S:
    """The rows with `_occurred`, `_clock_offset` and `_clock_suspect`; see the module. Null in, null out.

    Use it in front of `event_time(df, "_occurred", ...)`.
    """
    engine = engine_of(df)
    schema = engine.schema(df)
    for column in (occurred, sent, received):
        check_timestamp(schema, column, "device_time")
    clock = DeviceClock(occurred, sent, received, microseconds(max_offset, "device_time: max_offset", zero=False))
    result: S = engine.device_time(df, clock)
    return result


def check_timestamp(schema: pa.Schema, column: str, where: str) -> None:
    """UnknownColumn or WrongType unless the column is a timestamp of one instant (with a time zone)."""
    if column not in schema.names:
        raise UnknownColumn(column, list(schema.names), where)
    kind: Any = schema.field(column).type
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        raise WrongType(column, str(kind), "a timestamp", where)


def corrected_schema(schema: pa.Schema) -> pa.Schema:
    """What `device_time` adds to a schema."""
    added = [(OCCURRED, TIMESTAMP), (CLOCK_OFFSET, pa.int64()), (CLOCK_SUSPECT, pa.bool_())]
    kept = [field for field in schema if field.name not in (OCCURRED, CLOCK_OFFSET, CLOCK_SUSPECT)]
    return pa.schema([*kept, *(pa.field(name, kind) for name, kind in added)])
