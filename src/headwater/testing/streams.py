"""Tests of streaming pipelines without Spark: rows in, time by hand, changelog and table out. Milliseconds each.

    from headwater.pipeline.aggregates import count, running
    from headwater.pipeline.time import event_time
    from headwater.testing.streams import StreamTest

    def test_orders_are_counted_per_user():
        test = StreamTest()
        orders = test.stream("at timestamp, user string, amount long, device string")
        timed = event_time(orders, "at", delay="10 seconds", producer="device", ticks=True)
        counted = running(timed, ["user"], {"n": count()}, output="changelog")

        test.feed(orders, '''
            at       | user | amount | device
            10:00:05 | ann  | 3      | phone
            10:00:20 | bob  | 4      | desk
        ''')
        counted.assert_new('''
            user | n | _weight
            ann  | 1 | 1
            bob  | 1 | 1
        ''')
        test.feed(orders, [{"at": "10:00:30", "user": "ann", "amount": 1, "device": "phone"}])
        counted.assert_new('''
            user | n | _weight
            ann  | 1 | -1
            ann  | 2 | 1
        ''')
        test.tick("10:05:00")                                  # processing time moves on
        counted.assert_table('''
            user | n
            ann  | 2
            bob  | 1
        ''')
        counted.assert_same_in_every_replay()                  # other batches, other interleavings: the same table

A stream of `StreamTest` goes wherever a DataFrame goes: `event_time`, `device_time`, `stateful`, and every operator
function. `checkpoint=` may be left out. Each `feed`, `no_before` and `tick` is a micro-batch of its own, unless inside
`with test.batch():`. Rows are dicts or a text table (`headwater.testing.harness.tables` has the cells' syntax); columns
that are not given are null; times without a date are on 2026-01-01 UTC.

Output: `rows()` all rows so far, `new()` those since the last look, `table(key=...)` what they add up to, `state(name)`
an operator's state table. The assertions compare the columns that the expected table names, without order. Rows of
side output (`_late` true) are not part of the table.

The same test runs on real Spark with HEADWATER_ON_SPARK=1 in the environment (or `StreamTest(spark=session)`): every
micro-batch becomes a batch of a streaming query. State is then not shown, and replays are one run in other batches.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from headwater.pipeline.columns import PARTITION, TOPIC, WEIGHT
from headwater.pipeline.emission import LATE
from headwater.pipeline.errors import BadOption, UnknownColumn
from headwater.pipeline.stateful.plan import Plan
from headwater.pipeline.time.clocks import DeviceClock
from headwater.pipeline.time.settings import TimeColumns, TimeSettings
from headwater.testing.harness.memory import MemoryRun
from headwater.testing.harness.nodes import Applied, Corrected, Node, Source, Timed, nodes_under, schema_of
from headwater.testing.harness.script import Batch, Fed, Ticked, shuffled
from headwater.testing.harness.tables import (
    canonical,
    difference,
    instant,
    parse_cell,
    parse_schema,
    parse_table,
    shown,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Replay", "Stream", "StreamTest"]

ON_SPARK = "HEADWATER_ON_SPARK"  # the environment variable that runs tests on Spark
PARTITIONS = 2  # of an operator that does not say
REPLAYS = 20  # other orders that are tried when nobody says how many

Row = dict[str, Any]


class _Run(Protocol):
    def run(self, batch: Batch) -> pa.Table: ...


class StreamTest:
    """One query under test: its streams, and what happens to them in which order."""

    def __init__(self, *, partitions: int = PARTITIONS, spark: SparkSession | None = None) -> None:
        self.partitions = partitions
        self.spark = spark if spark is not None or not os.environ.get(ON_SPARK) else _session()
        self.script: list[Batch] = []
        self._open: Batch | None = None
        self._sources = 0
        self._engine = _Engine(self)

    def stream(self, schema: str | pa.Schema, name: str | None = None) -> Stream:
        """A source; its schema as "user string, amount long", or Arrow's."""
        self._sources += 1
        return Stream(self, Source(f"{self._sources}-{name or 'stream'}", parse_schema(schema)), self._engine)

    def feed(self, stream: Stream, rows: str | Sequence[Mapping[str, Any]], **same: Any) -> None:
        """Rows come, as a text table or dicts; `same` are columns with one value in all of them."""
        source = stream.source
        parsed = parse_table(rows, source.schema)[1] if isinstance(rows, str) else rows
        steps = [Fed(source.name, _whole_row({**row, **same}, source.schema)) for row in parsed]
        self._happens(steps)

    def no_before(self, stream: Stream, time: str | datetime, **columns: Any) -> None:
        """A producer says that nothing earlier than `time` will follow: a row with nothing else but `columns`
        (its name, for example). The stream's `event_time` must have said no_before="..."."""
        names = [n.columns.no_before for n in nodes_under(stream.node) if isinstance(n, Timed) and n.columns.no_before]
        if not names:
            raise BadOption('no_before: give the stream that event_time(..., no_before="column") made')
        self.feed(stream, [{**columns, names[0]: instant(time)}])

    def tick(self, time: str | datetime) -> None:
        """Processing time moves on to `time`, for every stream with ticks."""
        self._happens([Ticked(round(instant(time).timestamp() * 1_000_000))])

    @contextmanager
    def batch(self) -> Iterator[None]:
        """What happens inside is one micro-batch."""
        self._open = Batch()
        try:
            yield
            self.script.append(self._open)
        finally:
            self._open = None

    def _happens(self, steps: Sequence[Fed | Ticked]) -> None:
        if self._open is not None:
            self._open.steps.extend(steps)
        else:
            self.script.append(Batch(list(steps)))


@dataclass(frozen=True)
class Replay:
    """What came out when the same happened in other batches and another interleaving."""

    script: Sequence[Batch]
    rows: list[Row]

    def table(self, key: Sequence[str] | None = None) -> list[Row]:
        return _accumulated(self.rows, key)


class Stream:
    """A stream in a test: a source, or what pipeline functions made of one."""

    def __init__(self, test: StreamTest, node: Node, engine: _Engine) -> None:
        self.test, self.node, self._engine = test, node, engine
        self.schema = schema_of(node)
        self._batches: list[pa.Table] = []
        self._run: _Run | None = None
        self._seen = 0

    def headwater_engine(self) -> _Engine:
        return self._engine

    @property
    def source(self) -> Source:
        """The source that this is, or that it carries the time of."""
        node = self.node
        while not isinstance(node, Source):
            if isinstance(node, Applied):
                raise BadOption("feed: this is the output of an operator; feed the stream that went into it")
            node = node.input
        return node

    # ---- what came out

    def batches(self) -> list[pa.Table]:
        """The output of every micro-batch so far."""
        if self.test.spark is not None and len(self._batches) < len(self.test.script):
            self._batches = _spark_run(self, self.test.script)
        if self._run is None:
            self._run = MemoryRun(self.node)
        for batch in self.test.script[len(self._batches) :]:
            self._batches.append(self._run.run(batch))
        return self._batches

    def rows(self) -> list[Row]:
        """All rows given out so far."""
        return [row for batch in self.batches() for row in batch.to_pylist()]

    def new(self) -> list[Row]:
        """The rows given out since `new` (or `assert_new`) was last asked."""
        batches = self.batches()
        fresh, self._seen = batches[self._seen :], len(batches)
        return [row for batch in fresh for row in batch.to_pylist()]

    def table(self, key: Sequence[str] | None = None) -> list[Row]:
        """What the rows add up to by their weights; with `key`, the newest row of each key (output="upsert")."""
        return _accumulated(self.rows(), key)

    def state(self, table: str) -> list[Row]:
        """A table of the operator's state, in memory."""
        self.batches()
        if not isinstance(self._run, MemoryRun) or not isinstance(self.node, Applied) or self.test.spark is not None:
            raise BadOption("state: only an operator's output has one, and only without Spark")
        rows: list[Row] = self._run.state(self.node, table).to_pylist()
        return rows

    # ---- assertions

    def assert_rows(self, expected: str) -> None:
        """All rows so far are these."""
        self._compare(expected, self.rows(), "the rows")

    def assert_new(self, expected: str) -> None:
        """The rows since the last look are these."""
        self._compare(expected, self.new(), "the new rows")

    def assert_table(self, expected: str, key: Sequence[str] | None = None) -> None:
        """The rows so far add up to these."""
        self._compare(expected, self.table(key), "the table")

    def assert_same_in_every_replay(
        self, count: int = REPLAYS, *, seed: int = 0, key: Sequence[str] | None = None, rows: bool = False
    ) -> None:
        """Every replay adds up to the same table; `rows`: gives exactly the same rows."""
        here = self.rows() if rows else self.table(key)
        columns = [name for name in self.schema.names if rows or name not in (WEIGHT, LATE)]
        for number, replay in enumerate(self.replays(count, seed=seed)):
            there = replay.rows if rows else replay.table(key)
            if problem := difference(here, there, columns):
                raise AssertionError(
                    f"replay {number} of seed {seed} gives something else:\n{problem}\nits batches:\n"
                    f"{_shown_script(replay.script)}"
                )

    def replays(self, count: int = REPLAYS, *, seed: int = 0) -> Iterator[Replay]:
        """The same again: each lane in its own order, in other batches and another interleaving."""
        for number in range(count if self.test.spark is None else 1):
            script = shuffled(self.test.script, self._lane_of, Random(f"{seed}/{number}"))
            if self.test.spark is not None:
                batches = _spark_run(self, script)
            else:
                run = MemoryRun(self.node)
                batches = [run.run(batch) for batch in script]
            yield Replay(script, [row for batch in batches for row in batch.to_pylist()])

    def _lane_of(self, fed: Fed) -> tuple[Any, ...]:
        producers = [
            one.columns.producer
            for one in nodes_under(self.node)
            if isinstance(one, Timed) and one.columns.producer and _is_over(one, fed.source)
        ]
        return (fed.source, *(fed.row.get(name) for name in (*producers, TOPIC, PARTITION)))

    def _compare(self, expected: str, found: list[Row], what: str) -> None:
        columns, rows = parse_table(expected, self.schema)
        if not columns:
            if found:
                raise AssertionError(f"{what} should be none:\n{shown(found, list(found[0]))}")
            return
        if problem := difference(rows, found, columns):
            raise AssertionError(
                f"{what} differ:\n{problem}\nall columns:\n{shown(found, list(found[0]) if found else columns)}"
            )


class _Engine:
    """What pipeline functions ask of a test's streams: to remember what was asked."""

    def __init__(self, test: StreamTest) -> None:
        self._test = test

    def schema(self, stream: Stream) -> pa.Schema:
        return stream.schema

    def time(self, stream: Stream) -> TimeSettings | None:
        return stream.node.settings if isinstance(stream.node, Timed) else None

    def partitions(self, stream: Stream) -> int:
        return self._test.partitions

    def keeps_state(self, stream: Stream) -> bool:
        return False

    def stateful(self, plan: Plan, inputs: Mapping[str, Stream]) -> Stream:
        return Stream(self._test, Applied(plan, {side: one.node for side, one in inputs.items()}), self)

    def timed(self, stream: Stream, columns: TimeColumns, settings: TimeSettings) -> Stream:
        return Stream(self._test, Timed(stream.node, columns, settings), self)

    def device_time(self, stream: Stream, clock: DeviceClock) -> Stream:
        return Stream(self._test, Corrected(stream.node, clock), self)


def _whole_row(row: Mapping[str, Any], schema: pa.Schema) -> Row:
    """The row with all columns; texts in columns that are not text are parsed as a table's cells are."""
    for name in row:
        if name not in schema.names:
            raise UnknownColumn(name, list(schema.names), "feed")
    whole: Row = {}
    for field in schema:
        value = row.get(field.name)
        is_text = pa.types.is_string(field.type) or pa.types.is_binary(field.type)
        whole[field.name] = parse_cell(value, field.type) if isinstance(value, str) and not is_text else value
    return whole


def _accumulated(rows: Sequence[Row], key: Sequence[str] | None) -> list[Row]:
    kept = [row for row in rows if not row.get(LATE)]
    if key is not None:
        newest = {canonical(row, key): row for row in kept}
        return [_without_weight(row) for row in newest.values() if row.get(WEIGHT, 1) > 0]
    counts: dict[tuple[str, ...], list[Any]] = {}
    for row in kept:
        bare = _without_weight(row)
        entry = counts.setdefault(canonical(bare, list(bare)), [bare, 0])
        entry[1] += row.get(WEIGHT, 1)
    for cells, (_, weight) in counts.items():
        if weight < 0:
            raise AssertionError(f"this row was retracted {-weight} times more than it was given: {' | '.join(cells)}")
    return [row for row, weight in counts.values() for _ in range(weight)]


def _without_weight(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in (WEIGHT, LATE)}


def _is_over(node: Node, source: str) -> bool:
    return any(isinstance(one, Source) and one.name == source for one in nodes_under(node))


def _shown_script(script: Sequence[Batch]) -> str:
    lines = []
    for number, batch in enumerate(script):
        for step in batch.steps:
            what = f"tick {step.at}" if isinstance(step, Ticked) else " | ".join(canonical(step.row, list(step.row)))
            lines.append(f"  {number}: {what}")
    return "\n".join(lines)


def _session() -> SparkSession:
    from headwater.pipeline.sessions import session

    made: SparkSession = session("headwater-stream-tests", master="local[2]")
    return made


def _spark_run(stream: Stream, script: Sequence[Batch]) -> list[pa.Table]:
    from headwater.testing.harness.onspark import run_on_spark

    assert stream.test.spark is not None
    return run_on_spark(stream.test.spark, stream.node, script)
