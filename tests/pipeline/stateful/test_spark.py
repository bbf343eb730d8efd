"""The stateful operator on real Spark, in the session that all pipeline tests share."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from headwater.pipeline.aggregates import count, running, sum
from headwater.pipeline.errors import BadOption
from headwater.pipeline.stateful import Batch, Column, Operator, State, TableSpec, Time, stateful
from headwater.pipeline.stateful.reading import read_state, repartition_state, state_dataframe
from headwater.pipeline.time import device_time, event_time
from headwater.pipeline.watching import watch
from headwater.testing import eventually
from headwater.testing.streams import Stream, StreamTest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers cannot import tests

ORDERS = "at timestamp, user string, amount long, device string"


def counted(test: StreamTest) -> tuple[Stream, Stream]:
    orders = test.stream(ORDERS)
    timed = event_time(orders, "at", delay="10 seconds", producer="device", ticks=True)
    return orders, running(timed, ["user"], {"n": count(), "total": sum("amount")}, output="changelog")


def test_a_test_of_the_harness_runs_the_same_on_spark(spark: SparkSession) -> None:
    test = StreamTest(spark=spark)
    orders, totals = counted(test)
    test.feed(orders, [{"at": "10:00:05", "user": "ann", "amount": 3, "device": "phone"}])
    test.tick("10:00:30")
    test.feed(orders, [{"at": "10:00:30", "user": name, "amount": 1, "device": "desk"} for name in ("ann", "bob")])
    totals.assert_rows(
        """
        user | n | total | _weight
        ann  | 1 | 3     | 1
        ann  | 1 | 3     | -1
        ann  | 2 | 4     | 1
        bob  | 1 | 1     | 1
        """
    )
    assert [len(batch) for batch in totals.batches()] == [1, 0, 3]
    totals.assert_same_in_every_replay()


class Both(Operator):
    """How many rows of each of two inputs a user has had."""

    key: Mapping[str, tuple[str, ...]] = {"left": ("user",), "right": ("name",)}
    state = (
        TableSpec.of("n", [("user", pa.string())], [Column("left", pa.int64(), 0), Column("right", pa.int64(), 0)]),
    )

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        return pa.schema([("user", pa.string()), ("left", pa.int64()), ("right", pa.int64())])

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        users = [*batch["left"]["user"].to_pylist(), *batch["right"]["name"].to_pylist()]
        groups = Batch({"rows": pa.table({"user": pa.array(sorted(set(users)), pa.string())})}).groups("user")
        had = state["n"].get(groups.keys)
        new = {"left": batch["left"]["user"].to_pylist(), "right": batch["right"]["name"].to_pylist()}
        now = {
            side: had.numpy(side) + [names.count(user) for user in groups.keys["user"].to_pylist()]
            for side, names in new.items()
        }
        state["n"].put(groups.keys, now)
        return groups.table(**now)


def both(test: StreamTest) -> tuple[Stream, Stream, Stream]:
    left, right = test.stream("user string, at timestamp"), test.stream("name string, n long")
    return left, right, stateful({"left": event_time(left, "at", ticks=True), "right": right}, Both())


def feed_both(test: StreamTest, left: Stream, right: Stream) -> None:
    with test.batch():
        test.feed(left, [{"user": "ann", "at": "10:00:00"}, {"user": "bob", "at": "10:00:01"}])
        test.feed(right, [{"name": "ann", "n": 7}])
    test.tick("10:00:10")
    test.feed(right, [{"name": "cy", "n": 1}, {"name": "ann", "n": 1}])


BOTH = """
    user | left | right
    ann  | 1    | 1
    bob  | 1    | 0
    cy   | 0    | 1
    ann  | 1    | 2
"""


def test_inputs_with_other_columns_meet_by_key_without_spark() -> None:
    test = StreamTest()
    left, right, joined = both(test)
    feed_both(test, left, right)
    joined.assert_rows(BOTH)


def test_inputs_with_other_columns_meet_by_key(spark: SparkSession) -> None:
    test = StreamTest(spark=spark)
    left, right, joined = both(test)
    feed_both(test, left, right)
    joined.assert_rows(BOTH)


@pytest.mark.parametrize("on_spark", [False, True])
def test_two_operators_in_one_query_and_corrected_clocks(on_spark: bool, request: pytest.FixtureRequest) -> None:
    test = StreamTest(spark=request.getfixturevalue("spark") if on_spark else None)
    orders = test.stream("user string, team string, at timestamp, sent timestamp, got timestamp")
    timed = event_time(device_time(orders, "at", "sent", "got"), "_occurred", delay="5 seconds")
    per_user = running(timed, ["user", "team"], {"n": count()}, output="changelog", name="users")
    per_team = running(per_user, ["team"], {"users": count(), "orders": sum("n")}, name="teams")
    for user, team in (("ann", "x"), ("bob", "x"), ("ann", "x"), ("cy", "y")):
        test.feed(orders, [{"user": user, "team": team, "at": "09:00:00", "sent": "09:00:01", "got": "10:00:01"}])
    expected = """
        team | users | orders
        x    | 2     | 3
        y    | 1     | 1
    """
    per_team.assert_table(expected, key=["team"])


@pytest.mark.parametrize("on_spark", [False, True])
def test_a_topic_partitioned_by_the_key_needs_no_shuffle(on_spark: bool, request: pytest.FixtureRequest) -> None:
    test = StreamTest(spark=request.getfixturevalue("spark") if on_spark else None)
    orders = test.stream("user string, at timestamp, _partition int")
    totals = running(event_time(orders, "at"), ["user"], {"n": count()}, copartitioned=True)
    test.feed(
        orders, [{"user": "ann", "_partition": 0, "at": "10:00:00"}, {"user": "bob", "_partition": 3, "at": "10:00:00"}]
    )
    test.feed(orders, [{"user": "bob", "_partition": 3, "at": "10:00:01"}])
    test.feed(
        orders, [{"user": "ann", "_partition": 0, "at": "10:00:02"}, {"user": "bob", "_partition": 3, "at": "10:00:02"}]
    )
    expected = """
        user | n
        ann  | 1
        bob  | 1
        bob  | 2
        ann  | 2
        bob  | 3
    """
    totals.assert_rows(expected)


class Files:
    """A stream of one-row files, and a running count of it whose output is kept in memory."""

    SCHEMA = pa.schema([("user", pa.string())])

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.checkpoint = spark, folder / "in", str(folder / "checkpoint")
        self.folder.mkdir()
        self.local, self.counts = str(folder / "local"), {}  # type: str, dict[str, int]

    def add(self, user: str) -> None:
        number = len(list(self.folder.iterdir()))
        path = self.folder / f"{number:04}.parquet"
        pq.write_table(pa.table([[user]], schema=self.SCHEMA), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    def run(self, operator: Operator | None = None, partitions: int = 2) -> None:
        """All that is there, a file a batch, in a query of its own: as after a restart of the driver."""
        stream = self.spark.readStream.schema("user string").option("maxFilesPerTrigger", 1).parquet(str(self.folder))
        where: Any = {"checkpoint": self.checkpoint, "partitions": partitions, "local_dir": self.local}
        counted = (
            running(stream, ["user"], {"n": count()}, **where)
            if operator is None
            else stateful(stream, operator, **where)
        )
        writer = counted.writeStream.foreachBatch(self._keep).option("checkpointLocation", self.checkpoint)
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    def _keep(self, rows: Any, _batch: int) -> None:
        self.counts.update({row["user"]: row["n"] for row in rows.toArrow().to_pylist()})


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, tmp_path)


def test_a_restarted_query_goes_on_also_when_its_state_is_divided_anew(files: Files) -> None:
    for user in ("ann", "bob", "ann"):
        files.add(user)
    files.run()
    files.add("ann")
    files.run()
    assert files.counts == {"ann": 3, "bob": 1}
    repartition_state(files.spark, files.checkpoint, "running", 5)
    for user in ("bob", "cy", "ann"):
        files.add(user)
    files.run(partitions=5)
    assert files.counts == {"ann": 4, "bob": 2, "cy": 1}
    found = read_state(files.checkpoint, "running").to_pylist()
    assert {row["user"]: row["n.n"] for row in found} == files.counts
    assert state_dataframe(files.spark, files.checkpoint, "running").count() == 3


class DiesOnce(Operator):
    """Counts; kills the Python worker it runs in, once, after it has changed its state."""

    key = ("user",)
    state = (TableSpec.of("n", [("user", pa.string())], [Column("n", pa.int64(), 0)]),)

    def __init__(self, grave: Path) -> None:
        self._grave = grave

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        return pa.schema([("user", pa.string()), ("n", pa.int64())])

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        groups = batch.groups("user")
        n = state["n"].get(groups.keys).numpy("n") + groups.count()
        state["n"].put(groups.keys, {"n": n})
        if len(n) and n.max() == 2 and not self._grave.exists():
            self._grave.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return groups.table(n=n)


def test_a_killed_worker_is_replaced_and_nothing_is_counted_twice(files: Files, tmp_path: Path) -> None:
    for user in ("ann", "ann", "ann"):
        files.add(user)
    files.run(DiesOnce(tmp_path / "grave"))
    assert (tmp_path / "grave").exists()
    assert files.counts == {"ann": 3}


def test_a_stream_without_a_place_for_its_state_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    stream = spark.readStream.schema("user string").parquet(str(tmp_path / "in"))
    with pytest.raises(BadOption, match="say where its state is kept: checkpoint="):
        running(stream, ["user"], {"n": count()})
    batch = spark.createDataFrame([("ann",), ("ann",)], "user string")
    assert [row["n"] for row in running(batch, ["user"], {"n": count()}).collect()] == [2]


def test_a_query_can_be_watched_over_http(files: Files) -> None:
    for user in ("ann", "bob", "ann"):
        files.add(user)
    with watch(files.spark, port=0) as watching:
        files.run()
        seen = eventually(lambda: _ended(f"{watching.url}/watch.json"), deadline_s=30)
        with urlopen(f"{watching.url}/metrics") as page:
            text = page.read().decode()
    assert (seen["batch"], seen["rows_total"], len(seen["batches"])) == (2, 3, 3)
    (operator,) = seen["operators"]
    assert (operator["name"], operator["rows_in"], operator["rows_out"]) == ("running", 1, 1)
    assert operator["ms"].keys() == {"read", "step", "write"}
    assert seen["ms"]["batch"] > 0
    assert 'headwater_pipeline_rows_total{query="' + seen["id"] in text


def _ended(url: str) -> dict[str, Any] | None:
    with urlopen(url) as page:
        queries = [one for one in json.load(page)["queries"] if one["status"] == "stopped"]
    return queries[0] if queries else None
