"""The columns that carry time through a query, how it is kept, and durations as users write them."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from datetime import timedelta

import pyarrow as pa

from headwater.pipeline.columns import LOW, OFFSET, PARTITION, SIDE, TOPIC
from headwater.pipeline.errors import BadOption

__all__ = ["INTERNAL", "OFFSET", "PARTITION", "TIME", "TOPIC", "TimeColumns", "TimeSettings", "microseconds"]

TIME = "_time"  # event time; its metadata in the DataFrame's schema are the TimeSettings
PRODUCER = "_producer"  # who wrote the row; "" where nobody asked
NO_BEFORE = "_no_before"  # the producer's word after this row: nothing earlier than this will follow
TICK = "_tick"  # processing time; only tick rows have it
KIND = "_kind"  # ROW, PUNCTUATION or TICK_ROW: only between the two stages of an operator
MARK = "_mark"  # microseconds: what the lane's earlier rows of this batch say its low watermark is
TARGET = "_target"  # the partition a punctuation or tick is for; null for rows

ROW, PUNCTUATION, TICK_ROW = 0, 1, 2
TIME_COLUMNS = (TIME, PRODUCER, TOPIC, PARTITION, OFFSET, NO_BEFORE, TICK)
INTERNAL = (TICK, SIDE, KIND, MARK, TARGET, LOW)  # a user's column may not have these names
METADATA = "headwater.time"  # the key of the settings in the column's metadata

TIMESTAMP = pa.timestamp("us", tz="UTC")

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_SHORT = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "min": "minute",
    "m": "minute",
    "h": "hour",
    "d": "day",
}
_ONE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*(?:and\s+|,)?")


def microseconds(duration: str | int | float | timedelta, what: str, *, zero: bool = True) -> int:
    """A duration ("10 seconds", "1 hour 30 minutes", seconds as a number, a timedelta) as microseconds."""
    value = _parse(duration, what)
    if value < 0 or (value == 0 and not zero):
        raise BadOption(f"{what} is {duration!r}: it must be {'zero or more' if zero else 'more than zero'}")
    return value


def _parse(duration: str | int | float | timedelta, what: str) -> int:
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    if isinstance(duration, (int, float)):
        return round(duration * 1_000_000)
    text = duration.strip().lower()
    sign = -1 if text.startswith("-") else 1
    text = text.removeprefix("-").removeprefix("interval").strip()
    total, position = 0.0, 0
    while position < len(text):
        found = _ONE.match(text, position)
        unit = _SHORT.get(found[2], found[2].removesuffix("s")) if found else ""
        if found is None or unit not in _UNITS:
            raise BadOption(f"{what} is {duration!r}: write it like '10 seconds' or '1 hour 30 minutes'")
        total += float(found[1]) * _UNITS[unit]
        position = found.end()
    if not text:
        raise BadOption(f"{what} is empty: write it like '10 seconds'")
    return sign * round(total)


@dataclass(frozen=True, slots=True)
class TimeSettings:
    """How one input keeps time; all in microseconds.

    `delay`: a lane's low watermark is the greatest time seen in it less this. `idle_after`: a lane without rows for
    so long (by ticks) is not waited for; 0 waits for ever. `expect`: producers waited for before they have spoken.
    `processing`: time is processing time, so nothing is ever late.
    """

    delay: int = 0
    idle_after: int = 0
    expect: tuple[str, ...] = ()
    processing: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TimeSettings:
        body = json.loads(text)
        return cls(body["delay"], body["idle_after"], tuple(body["expect"]), body["processing"])


@dataclass(frozen=True, slots=True)
class TimeColumns:
    """Where the columns that carry time come from, by the names of a stream's own columns.

    `time`: None means processing time. `producer` and `no_before`: None where there is none. `ticks`: whether ticks
    are merged in.
    """

    time: str | None
    producer: str | None = None
    no_before: str | None = None
    ticks: bool = False
