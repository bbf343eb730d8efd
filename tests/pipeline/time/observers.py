"""Operators that make time visible: which rows came late, and how far the low watermark has got."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from headwater.pipeline.columns import LOW
from headwater.pipeline.stateful import Batch, Operator, State, Time
from headwater.pipeline.stateful.operator import MAX_TIME, MIN_TIME
from headwater.pipeline.time.marks import times
from headwater.pipeline.time.settings import TIME
from headwater.testing.harness.tables import DAY

ID = pa.schema([("id", pa.int64()), ("late", pa.bool_())])
LOWS = pa.schema([("low", pa.string()), ("now", pa.string())])


class Lateness(Operator):
    """Every row's id, and whether it was a straggler."""

    key = ("id",)
    needs_time = True

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        return ID

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        late = times(batch.table, TIME, MAX_TIME) < times(batch.table, LOW)
        return pa.table([batch.table["id"].combine_chunks(), pa.array(late, pa.bool_())], schema=ID)


class Lows(Operator):
    """The low watermark and processing time, whenever one of them moves; use it with one partition."""

    key = ("id",)
    needs_time = True

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        return LOWS

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        moved = np.array([time.low > time.previous])
        return pa.table([[shown(time.low)], [shown(time.now)]], schema=LOWS).filter(pa.array(moved))


def shown(at: int) -> str:
    if at <= MIN_TIME:
        return "never"
    if at >= MAX_TIME:
        return "always"
    found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
    return found.time().isoformat() if found.date() == DAY else found.isoformat()
