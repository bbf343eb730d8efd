"""Pipelines on Spark: what `headwater.pipeline.engine` asks for, in DataFrames.

    rows -> [time: marks and punctuation] -> repartition by key -> one task per partition: step, then commit

The tasks are in `headwater.pipeline.stateful.workers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from headwater.pipeline.stateful.operator import ONLY, SIDE
from headwater.pipeline.stateful.plan import Plan, StateOptions
from headwater.pipeline.stateful.workers import copartitioned_task, marking_task, task
from headwater.pipeline.time.clocks import CLOCK_OFFSET, CLOCK_SUSPECT, OCCURRED, DeviceClock, corrected_schema
from headwater.pipeline.time.marks import marked_schema
from headwater.pipeline.time.settings import (
    METADATA,
    NO_BEFORE,
    PRODUCER,
    TARGET,
    TICK,
    TIME,
    TIME_COLUMNS,
    TimeColumns,
    TimeSettings,
)

__all__ = ["SparkEngine", "defined_states"]

TICKS_PER_SECOND = 1  # of the merged-in tick source
DEFINED_MAX = 1_000  # operators that a driver remembers for those who watch; the one defined longest ago is forgotten

_defined: dict[tuple[str, str], StateOptions] = {}


def defined_states() -> list[StateOptions]:
    """Where the operators that this driver defined keep their state."""
    return list(_defined.values())


def rate_ticks(stream: DataFrame) -> DataFrame:
    """A stream of processing time, in Spark's own clock source."""
    source = stream.sparkSession.readStream.format("rate").option("numPartitions", 1)
    return source.option("rowsPerSecond", TICKS_PER_SECOND).load().select(F.col("timestamp").alias(TICK))


@dataclass(frozen=True)
class SparkEngine:
    """DataFrames, streaming or not."""

    ticks: Callable[[DataFrame], DataFrame] = rate_ticks

    def schema(self, stream: DataFrame) -> pa.Schema:
        return to_arrow_schema(stream.schema, timezone="UTC")

    def time(self, stream: DataFrame) -> TimeSettings | None:
        """As `event_time` wrote it into the metadata of its column."""
        metadata = stream.schema[TIME].metadata if TIME in stream.columns else {}
        return TimeSettings.from_json(metadata[METADATA]) if METADATA in metadata else None

    def partitions(self, stream: DataFrame) -> int:
        return int(stream.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)

    def keeps_state(self, stream: DataFrame) -> bool:
        return bool(stream.isStreaming)

    def stateful(self, plan: Plan, inputs: Mapping[str, DataFrame]) -> DataFrame:
        if any(one.isStreaming for one in inputs.values()):
            _remember(plan.options)
        rows = _union({side: one.select(*map(_column, plan.columns[side])) for side, one in inputs.items()})
        if plan.program.time is not None and not plan.copartitioned:
            schema = self.schema(rows)
            rows = rows.mapInArrow(marking_task(plan, schema), from_arrow_schema(marked_schema(schema)))
        output = from_arrow_schema(plan.program.output)
        schema = self.schema(rows)
        if plan.copartitioned:
            return rows.mapInArrow(copartitioned_task(plan, schema), output)
        return _routed(rows, plan, list(inputs)).mapInArrow(task(plan, schema), output)

    def timed(self, stream: DataFrame, columns: TimeColumns, settings: TimeSettings) -> DataFrame:
        time = F.current_timestamp() if columns.time is None else _column(columns.time)
        added = {TIME: time}
        if columns.producer is not None:
            added[PRODUCER] = _column(columns.producer).cast("string")
        if columns.no_before is not None:
            added[NO_BEFORE] = _column(columns.no_before)
        kept = [_column(name) for name in stream.columns if name not in (*added, TICK)]
        rows = stream.select(*kept, *(value.alias(name) for name, value in added.items()))
        if columns.ticks and stream.isStreaming:
            rows = rows.unionByName(self.ticks(stream), allowMissingColumns=True)
        return rows.withMetadata(TIME, {METADATA: settings.to_json()})

    def device_time(self, stream: DataFrame, clock: DeviceClock) -> DataFrame:
        occurred, sent, received = (
            F.unix_micros(_column(name)) for name in (clock.occurred, clock.sent, clock.received)
        )
        offset = received - sent
        added = {
            OCCURRED: F.timestamp_micros(occurred + offset),
            CLOCK_OFFSET: offset,
            CLOCK_SUSPECT: (F.abs(offset) > F.lit(clock.max_offset)) | (occurred > sent),
        }
        names = [name for name in corrected_schema(self.schema(stream)).names if name not in added]
        return stream.select(*map(_column, names), *(value.alias(name) for name, value in added.items()))


def _remember(options: StateOptions) -> None:
    _defined.pop((options.checkpoint, options.name), None)
    _defined[options.checkpoint, options.name] = options
    if len(_defined) > DEFINED_MAX:
        del _defined[next(iter(_defined))]


def _column(name: str) -> Any:
    """A column by its whole name, dots and all."""
    return F.col("`" + name.replace("`", "``") + "`")


def _routed(rows: DataFrame, plan: Plan, sides: Sequence[str]) -> DataFrame:
    """Rows where their key belongs; punctuation and ticks to the partition they were made for."""
    operator, count = plan.program.operator, plan.options.partitions
    if sides == [ONLY] and plan.program.time is None:
        return rows.repartition(count, *map(_column, operator.keys_of()))
    hashes = [_hash([_of_side(side, name) for name in operator.keys_of(side)]) for side in sides]
    chosen = hashes[0]
    for side, one in list(zip(sides, hashes, strict=True))[1:]:
        chosen = F.when(F.col(SIDE) == side, one).otherwise(chosen)
    target = F.pmod(chosen, F.lit(count)).cast("int")
    return rows.repartitionById(count, F.coalesce(F.col(TARGET), target) if TARGET in rows.columns else target)


def _hash(key: Sequence[Any]) -> Any:
    return F.hash(*key) if key else F.lit(0)


def _of_side(side: str, name: str) -> Any:
    return _column(name) if side == ONLY else _column(side).getField(name)


def _union(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """The inputs as one stream: each packed in its own struct column, null in the others' rows; time on top."""
    if set(inputs) == {ONLY}:
        return inputs[ONLY]
    carried = [name for name in TIME_COLUMNS if any(name in one.columns for one in inputs.values())]
    packed = []
    for side, one in inputs.items():
        on_top = [F.col(n) if n in one.columns else F.lit(None).cast(_type_of(n, inputs)).alias(n) for n in carried]
        structs = [
            F.struct(*map(_column, other.drop(TICK).columns)).alias(name)
            if name == side
            else F.lit(None).cast(other.drop(TICK).schema).alias(name)
            for name, other in inputs.items()
        ]
        packed.append(one.select(F.lit(side).alias(SIDE), *on_top, *structs))
    return reduce(DataFrame.unionByName, packed)


def _type_of(column: str, inputs: Mapping[str, DataFrame]) -> Any:
    return next(one.schema[column].dataType for one in inputs.values() if column in one.columns)
