"""Whatever is killed and wherever its work is done again: every operator says the same and comes to the same state.

Batches are run twice, in another order of their rows (a shuffle promises none), on hosts that are behind or have lost
their store, as after a kill between any two steps of a commit (which `tests/pipeline/stateful` tests one by one).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.pipeline import aggregates, changelogs, joins
from headwater.pipeline.stateful.plan import Plan, StateOptions
from headwater.pipeline.stateful.task import Program, Step, empty_state
from headwater.pipeline.time import event_time
from headwater.pipeline.time.marks import Marker
from headwater.testing.harness.memory import union
from headwater.testing.streams import Stream, StreamTest

START = datetime(2026, 1, 1, tzinfo=UTC)
BATCHES = 6


def timed() -> tuple[Stream, Stream]:
    """Two streams with time, each column called after its side."""
    test = StreamTest()
    one, two = (test.stream(f"{side}at timestamp, {side}k long, {side}v long", side) for side in "lr")
    return event_time(one, "lat", delay="2 seconds"), event_time(two, "rat", delay="2 seconds")


def weighted() -> tuple[Stream, Stream]:
    test = StreamTest()
    return test.stream("lk long, lv long, _weight int", "l"), test.stream("rk long, rv long, _weight int", "r")


ON = {"lk": "rk"}
NEAR: dict[str, Any] = {"lower": "-3 seconds", "upper": "5 seconds", "how": "full"}
CORRECT: dict[str, Any] = {"late": "correct", "keep_closed": "10 seconds", "output": "changelog"}
QUERIES: dict[str, Callable[[], Stream]] = {
    "interval": lambda: joins.interval(*timed(), ON, **NEAR),
    "interval at close": lambda: joins.interval(*timed(), ON, emit="close", **NEAR),
    "interval corrected": lambda: joins.interval(*timed(), ON, **NEAR, **CORRECT),
    "as of": lambda: joins.as_of(*timed(), ON, how="left"),
    "as of, corrected": lambda: joins.as_of(*timed(), ON, how="left", **CORRECT),
    "stream-table": lambda: joins.stream_table(*timed(), ON),
    "tables": lambda: joins.tables(*weighted(), ON, how="full"),
    "anti-join": lambda: changelogs.anti_join(*weighted(), ON),
    "top-n": lambda: changelogs.top_n(weighted()[0], ["lk"], ["lv desc"], 2, rank="place"),
    "distinct": lambda: changelogs.distinct(weighted()[0], ["lv"]),
    "aggregate": lambda: changelogs.aggregate(weighted()[0], ["lk"], {"least": aggregates.min("lv")}),
    "upserts": lambda: changelogs.to_upserts(weighted()[0], ["lk"]),
}


class Hosts:
    """Hosts that share a checkpoint; each has a store of its own, which may be lost."""

    def __init__(self, program: Program, folder: Path) -> None:
        self._program, self._folder = program, folder

    def run(self, batch: int, rows: pa.Table, host: str) -> tuple[list[str], str]:
        """What the batch says, in no order, and the digest of the state it comes to."""
        options = StateOptions(str(self._folder / "checkpoint"), "x", 1, local_dir=str(self._folder / host))
        partition = options.partition("q", 0, self._program)
        with partition.at(batch) as version:
            out = Step(self._program, version.state).feed(rows)
            header = partition.commit(version)
        return sorted(map(repr, out.to_pylist())), header.digest

    def lose(self, host: str) -> None:
        shutil.rmtree(self._folder / host, ignore_errors=True)


def batch_of(plan: Plan, random: Random, number: int, *, shuffled: bool) -> pa.Table:
    """A batch's rows as a task gets them. Those of a lane keep their order, so only untimed ones are `shuffled`."""
    inputs = {}
    for side, schema in plan.program.inputs.items():
        kinds = {f.name: f.type for f in schema}
        rows = [_row(kinds, random, number) for _ in range(random.randrange(1, 8))]
        inputs[side] = (rows, schema)
    if shuffled and plan.program.time is None:
        for rows, _ in inputs.values():
            Random(number).shuffle(rows)
    table = union({side: pa.Table.from_pylist(rows, schema=schema) for side, (rows, schema) in inputs.items()})
    if plan.program.time is None:
        return table
    marker = Marker(plan.program.time, table.schema)
    return pa.concat_tables([marker.rows(table), marker.punctuation(1)])


def _row(kinds: dict[str, pa.DataType], random: Random, number: int) -> dict[str, Any]:
    at = START + timedelta(seconds=4 * number + random.randrange(8))
    row: dict[str, Any] = {}
    for name, kind in kinds.items():
        row[name] = at if pa.types.is_timestamp(kind) else random.choice([1, 1, -1] if name == "_weight" else [0, 1, 2])
    return row


@pytest.mark.parametrize("name", QUERIES)
def test_batches_that_are_run_again_anywhere_say_the_same_and_leave_the_same_state(name: str, tmp_path: Path) -> None:
    plan: Plan = QUERIES[name]().node.plan  # type: ignore[union-attr]
    hosts, random = Hosts(plan.program, tmp_path), Random(name)
    alone = Step(plan.program, empty_state(plan.program))
    for number in range(BATCHES):
        seed = random.random()
        rows = batch_of(plan, Random(seed), number, shuffled=False)
        expected = sorted(map(repr, alone.feed(rows).to_pylist()))
        said, digest = hosts.run(number, rows, random.choice("ab"))
        assert said == expected
        for _ in range(2):
            host = random.choice("abc")
            if random.random() < 0.4:
                hosts.lose(host)
            again = batch_of(plan, Random(seed), number, shuffled=True)
            assert hosts.run(number, again, host) == (said, digest)
