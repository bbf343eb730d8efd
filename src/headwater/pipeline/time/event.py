"""Event time and processing time: which of a stream's columns say when, who says it, and who is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

import pyarrow as pa

from headwater.pipeline.engine import engine_of
from headwater.pipeline.errors import BadOption, UnknownColumn, WrongType
from headwater.pipeline.time.clocks import check_timestamp
from headwater.pipeline.time.settings import INTERNAL, TimeColumns, TimeSettings, microseconds

__all__ = ["event_time", "processing_time"]

S = TypeVar("S")

Duration = str | float | timedelta


def event_time(
    df: S,
    column: str,
    *,
    delay: Duration = 0,
    producer: str | None = None,
    idle_after: Duration | None = None,
    expect: Sequence[str] = (),
    no_before: str | None = None,
    ticks: bool = False,
) -> S:
    """The stream with event time from `column`; what `tumbling` and its like need.

    A *lane* is what one producer writes into one partition of a topic. Its low watermark, the time before which
    nothing is expected from it any more, is the greatest time seen in it less `delay`, or what the column `no_before`
    says explicitly ("nothing before this will follow"; one in the year 9999 is a good-bye). The low watermark of an
    operator is the least of all lanes. A row behind its own lane's low watermark is a straggler; what other producers
    do, or a clock that is fast, makes nobody's rows late.

    `producer`: the column that names the producer; without it a partition of a topic is a lane.
    `idle_after`: a lane without rows for so long is not waited for, until its next row. By default every lane is
    waited for without end: a producer that goes silent holds back results, but loses nothing. Needs `ticks`.
    `expect`: producers that are waited for although they have not spoken yet.
    `ticks`: merges processing time in, about once a second, so that time-outs fire when no rows come. A query with
    ticks runs a batch a second (or as its trigger says) also when nothing comes. Ticks are rows that are null but for
    `_tick`: the operator takes them out, so hand the stream to one before you do anything else with it.
    """
    engine = engine_of(df)
    schema = engine.schema(df)
    check_timestamp(schema, column, "event_time")
    _check_reserved(schema, "event_time")
    if producer is not None:
        _check_producer(schema, producer)
    if no_before is not None:
        check_timestamp(schema, no_before, "event_time: no_before")
    idle = 0 if idle_after is None else microseconds(idle_after, "event_time: idle_after", zero=False)
    if idle and not ticks:
        raise BadOption("event_time: idle_after is told by ticks: say ticks=True")
    if expect and producer is None:
        raise BadOption("event_time: expect names producers: say which column has them, producer=...")
    settings = TimeSettings(microseconds(delay, "event_time: delay"), idle, tuple(expect))
    result: S = engine.timed(df, TimeColumns(column, producer, no_before, ticks), settings)
    return result


def processing_time(df: S, *, ticks: bool = True) -> S:
    """The stream with the time of its processing as its time: that of the micro-batch a row comes in.

    Nothing is ever late, and nothing is repeatable: a backlog that is worked off after a pause looks like a burst.
    It is there for what really is about the present, such as rate limits.
    """
    engine = engine_of(df)
    _check_reserved(engine.schema(df), "processing_time")
    result: S = engine.timed(df, TimeColumns(None, ticks=ticks), TimeSettings(processing=True))
    return result


def _check_producer(schema: pa.Schema, producer: str) -> None:
    if producer not in schema.names:
        raise UnknownColumn(producer, list(schema.names), "event_time: producer")
    kind = schema.field(producer).type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
        raise WrongType(producer, str(kind), "a string or a whole number", "event_time: producer")


def _check_reserved(schema: pa.Schema, where: str) -> None:
    for name in INTERNAL:
        if name in schema.names:
            raise BadOption(f"{where}: the column name {name!r} is headwater's own; rename the column first")
