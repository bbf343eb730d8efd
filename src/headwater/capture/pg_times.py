"""PostgreSQL's dates, times and intervals (ISO text, UTC) as the numbers and strings of Debezium's contract.

Years may have more than four digits or end with ` BC`; dates and timestamps may be infinite.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

__all__ = [
    "date_days",
    "interval_us",
    "time_us",
    "timestamp_ms",
    "timestamp_us",
    "to_milliseconds",
    "zoned_time",
    "zoned_timestamp",
]

DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000
MINUTE_US = 60_000_000
SECOND_US = 1_000_000
MONTH_DAYS = 365.25 / 12  # Debezium's average month

# What Debezium sends for infinite timestamps: the driver's sentinels, in milliseconds, as microseconds
TIMESTAMP_POSITIVE_INFINITY = 9223372036825200000
TIMESTAMP_NEGATIVE_INFINITY = -9223372036832400000
DATE_POSITIVE_INFINITY = 2**31 - 1
DATE_NEGATIVE_INFINITY = -(2**31)

DATES_CACHED = 4096  # days seen lately: rows written together mostly share theirs


@lru_cache(maxsize=DATES_CACHED)
def _days(text: bytes) -> int:
    """Days since 1970-01-01 of `[YYY]YYYY-MM-DD[ BC]`, proleptic Gregorian."""
    before = text.endswith(b" BC")
    year, month, day = (int(part) for part in (text[:-3] if before else text).split(b"-"))
    if before:
        year = 1 - year
    year -= month <= 2  # years from March: the leap day is the last
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def date_days(text: bytes) -> bytes:
    if text == b"infinity":
        return b"%d" % DATE_POSITIVE_INFINITY
    if text == b"-infinity":
        return b"%d" % DATE_NEGATIVE_INFINITY
    return b"%d" % _days(text)


def _clock_us(text: bytes) -> int:
    """`HH:MM:SS[.ffffff]`; hours may be 24 and, in intervals, more."""
    hours, minutes, seconds = text.split(b":")
    whole, _, fraction = seconds.partition(b".")
    micro = int(fraction.ljust(6, b"0")) if fraction else 0
    return int(hours) * HOUR_US + int(minutes) * MINUTE_US + int(whole) * SECOND_US + micro


def time_us(text: bytes) -> bytes:
    return b"%d" % _clock_us(text)


def to_milliseconds(convert: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda text: b"%d" % (int(convert(text)) // 1000)


def _timestamp(text: bytes) -> int:
    before = text.endswith(b" BC")
    date, _, clock = (text[:-3] if before else text).partition(b" ")
    return _days(date + b" BC" if before else date) * DAY_US + _clock_us(clock)


def timestamp_us(text: bytes) -> bytes:
    if text[-1] == b"y"[0]:
        return b"%d" % (TIMESTAMP_NEGATIVE_INFINITY if text[0] == b"-"[0] else TIMESTAMP_POSITIVE_INFINITY)
    return b"%d" % _timestamp(text)


def timestamp_ms(text: bytes) -> bytes:
    if text[-1] == b"y"[0]:
        return b"%d" % ((TIMESTAMP_NEGATIVE_INFINITY if text[0] == b"-"[0] else TIMESTAMP_POSITIVE_INFINITY) // 1000)
    return b"%d" % (_timestamp(text) // 1000)


def zoned_timestamp(text: bytes) -> bytes:
    """`2024-01-31 11:51:30.123456+00` → `"2024-01-31T11:51:30.123456Z"`."""
    if text[-1] == b"y"[0]:
        return b'"%b"' % text
    if text.endswith(b" BC"):
        year, _, rest = text[:-3].partition(b"-")
        text = b"-%04d-%b" % (int(year) - 1, rest)
    date, _, clock = text.partition(b" ")
    if date.index(b"-", 1) > 4 and not date.startswith(b"-"):
        date = b"+" + date  # ISO 8601 asks for the sign beyond four digits
    whole, _, fraction = clock[:-3].partition(b".")
    return b'"%bT%b.%bZ"' % (date, whole, fraction.ljust(6, b"0"))


_ZONED_TIME = re.compile(rb"(\d\d:\d\d:\d\d(?:\.\d+)?)([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?")


def zoned_time(text: bytes) -> bytes:
    """`10:15:30.5+02` → `"08:15:30.5Z"`."""
    found = _ZONED_TIME.fullmatch(text)
    if found is None:
        return b'"%b"' % text
    clock, sign, hours, minutes, seconds = found.groups()
    offset = int(hours) * HOUR_US + int(minutes or 0) * MINUTE_US + int(seconds or 0) * SECOND_US
    micro = (_clock_us(clock) + (offset if sign == b"-" else -offset)) % DAY_US
    rest, fraction = divmod(micro, SECOND_US)
    shown = b"%02d:%02d:%02d" % (rest // 3600, rest // 60 % 60, rest % 60)
    if fraction:
        shown += b"." + (b"%06d" % fraction).rstrip(b"0")
    return b'"%bZ"' % shown


_INTERVAL = re.compile(
    rb"(?:(-?\d+) years? ?)?(?:(-?\d+) mons? ?)?(?:(-?\d+) days? ?)?(?:(-)?(\d+):(\d\d):(\d\d)(?:\.(\d+))?)?"
)


def interval_us(text: bytes) -> bytes:
    """`1 year 2 mons 3 days 04:05:06.7`, with months of 365.25/12 days."""
    if text[-1] == b"y"[0] and text.endswith(b"infinity"):
        return b"%d" % (-(2**63) if text[0] == b"-"[0] else 2**63 - 1)
    found = _INTERVAL.fullmatch(text.replace(b"+", b""))
    if found is None:
        return b"null"
    years, months, days, sign, hours, minutes, seconds, fraction = found.groups()
    clock = int(hours or 0) * HOUR_US + int(minutes or 0) * MINUTE_US + int(seconds or 0) * SECOND_US
    clock += int((fraction or b"0").ljust(6, b"0"))
    all_days = (int(years or 0) * 12 + int(months or 0)) * MONTH_DAYS + int(days or 0)
    return b"%d" % (int(all_days * DAY_US) + (-clock if sign else clock))
