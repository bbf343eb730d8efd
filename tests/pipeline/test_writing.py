"""Topics written exactly once through whatever may happen to a task, a batch or a query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from tests.pipeline.logs import ONCE, coverages, fill, finish, read, values

from headwater.client import Connection, ensure_topics
from headwater.deadletters import DeadLetter
from headwater.pipeline.errors import BadOption, DefinitionError, UnknownColumn, WrongType
from headwater.pipeline.formats import Json
from headwater.pipeline.records import to_records
from headwater.pipeline.topics import topic
from headwater.pipeline.writing import fixed_partitions, split_bad, write_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NUMBER = Json("id bigint")
Step = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Query:
    """A query from topic `source` to topic `sink` with two writers, that can be run again and again."""

    def __init__(self, spark: SparkSession, bootstrap: str, unique: str, checkpoint: Path) -> None:
        self.log, self.name, self.checkpoint = Connection(bootstrap), f"q-{unique}", str(checkpoint)
        self.spark, self.source, self.sink = spark, f"in-{unique}", f"out-{unique}"

    def fill(self, numbers: Iterable[int]) -> None:
        fill(self.log, self.source, [{"id": n} for n in numbers])

    def run(self, step: Step | None = None, writers: int = 2, **where: Any) -> list[dict[str, Any]]:
        df = topic(self.spark, self.source, connection=self.log, value=NUMBER)
        rows = to_records(df, key=["id"]).repartition(writers, "key")
        rows = rows.mapInArrow(step, rows.schema) if step is not None else rows
        given = {"connection": self.log, "query": self.name, "checkpoint": self.checkpoint, "trigger": ONCE, **where}
        return finish(write_topic(rows, self.sink, **given))

    def forget_commit(self, batch: int) -> None:
        """What a driver leaves that was killed between a batch's commit and its log entry."""
        for file in (Path(self.checkpoint) / "commits").glob(f"*{batch}*"):
            file.unlink()

    def written(self) -> list[int]:
        return sorted(row["id"] for row in values(self.log, self.sink))


@pytest.fixture
def query(spark: SparkSession, bootstrap: str, unique: str, tmp_path: Path) -> Query:
    return Query(spark, bootstrap, unique, tmp_path / "checkpoint")


def failing_at_first(task: int) -> Step:
    """Fails the first attempt of a task after its rows have gone on to the sink."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == task and context.attemptNumber() == 0:
            raise RuntimeError("the executor is lost")

    return run


def failing_always(task: int) -> Step:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == task:
            raise RuntimeError("the disk is full")

    return run


def test_every_row_is_written_once_and_positions_are_carried_along(query: Query) -> None:
    query.fill(range(100))
    [batch] = query.run()
    assert (batch["rows"], batch["skipped"], batch["tasks"]) == (100, 0, 2)
    assert query.written() == list(range(100))
    query.fill(range(100, 150))
    assert [b["rows"] for b in query.run()] == [50]
    assert query.written() == list(range(150))
    covered = coverages(query.log, query.name)
    assert Counter((c.batch, c.task) for c in covered) == Counter([(0, 0), (0, 1), (1, 0), (1, 1)])
    assert sum(offset for _, _, offset in covered[-1].inputs) == 150
    ends = Counter(m.partition() for m in read(query.log, query.sink))
    last = {where: offset for c in covered for where, offset in c.outputs.offsets.items()}
    assert set(last) == {(query.sink, partition) for partition in ends}


def test_a_task_that_is_tried_again_writes_its_rows_once(query: Query) -> None:
    query.fill(range(100))
    query.run(failing_at_first(task=1))
    assert query.written() == list(range(100))


def test_a_batch_run_again_after_its_commit_is_skipped(query: Query) -> None:
    query.fill(range(100))
    query.run()
    query.forget_commit(batch=0)
    [again] = query.run()
    assert (again["batch"], again["rows"], again["skipped"]) == (0, 0, 2)
    assert query.written() == list(range(100))


def test_a_batch_cut_short_is_completed_by_the_tasks_that_had_not_written(query: Query) -> None:
    query.fill(range(100))
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        query.run(failing_always(task=1))
    partly = query.written()
    assert 0 < len(partly) < 100
    [completed] = query.run()
    assert (completed["skipped"], completed["rows"]) == (1, 100 - len(partly))
    assert query.written() == list(range(100))


def test_the_number_of_writers_may_change_between_batches_but_not_within_one(query: Query) -> None:
    query.fill(range(100))
    query.run()
    query.forget_commit(batch=0)
    query.fill(range(100, 120))
    again, after = query.run(writers=3)  # the batch that was whole, then the new rows
    assert (again["skipped"], again["rows"]) == (3, 0)
    assert after["rows"] == 20
    assert query.written() == list(range(120))
    query.fill(range(120, 220))
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        query.run(failing_always(task=1), writers=3)
    with pytest.raises(StreamingQueryException, match="run it once more with writers=3, then change the number"):
        query.run(writers=2)
    query.run(writers=3)
    assert query.written() == list(range(220))


def test_a_name_belongs_to_one_checkpoint(query: Query, tmp_path: Path) -> None:
    query.fill(range(10))
    query.run()
    query.run(checkpoint=str(tmp_path / "another"))  # a start from nothing takes the name over
    query.fill(range(10, 20))
    with pytest.raises(StreamingQueryException, match="has since been used by a query with another checkpoint"):
        query.run()


def test_dead_letters_are_committed_with_the_rows_or_not_at_all(query: Query) -> None:
    query.fill(range(50))
    fill(query.log, query.source, [b"nonsense", b'{"id": "x"}'])
    [batch] = query.run(failing_at_first(task=0))
    assert (batch["rows"], batch["dead_letters"]) == (50, 2)
    letters = [
        DeadLetter.from_record(m.key(), m.value(), m.headers() or [])  # type: ignore[arg-type]
        for m in read(query.log, f"{query.source}.dead")
    ]
    assert sorted((letter.value, letter.reason) for letter in letters) == [
        (b"nonsense", "the value is not a JSON object: nonsense"),
        (b'{"id": "x"}', "field 'id' is not bigint: x"),
    ]
    assert {(letter.stage, letter.topic, letter.key) for letter in letters} == {
        (f"pipeline:{query.name}", query.source, b"raw")
    }
    assert query.written() == list(range(50))


def test_bad_records_reach_the_dead_letters_around_a_step_that_cannot_carry_them(
    query: Query, spark: SparkSession
) -> None:
    query.fill([1, 1, 2])
    fill(query.log, query.source, [b"nonsense"])
    good, bad = split_bad(topic(spark, query.source, connection=query.log, value=NUMBER))
    counts = to_records(good.groupBy("id").count(), key=["id"])
    where = {"connection": query.log, "query": query.name, "checkpoint": query.checkpoint, "trigger": ONCE}
    [batch] = finish(write_topic(counts, query.sink, bad=bad, output_mode="update", **where))
    assert (batch["rows"], batch["dead_letters"]) == (2, 1)
    assert sorted((row["id"], row["count"]) for row in values(query.log, query.sink)) == [(1, 2), (2, 1)]
    assert [m.value() for m in read(query.log, f"{query.source}.dead")] == [b"nonsense"]


def test_the_data_source_by_itself_writes_once_too(query: Query, spark: SparkSession) -> None:
    query.fill(range(100))
    for _ in range(2):
        df = to_records(topic(spark, query.source, connection=query.log, value=NUMBER), key=["id"])
        writer = df.repartition(2, "key").writeStream.format("headwater").trigger(availableNow=True)
        options = {"bootstrap": query.log.bootstrap_servers, "query": query.name, "writers": "2", "topic": query.sink}
        finish(writer.options(**options).option("checkpointLocation", query.checkpoint).start())
        query.forget_commit(batch=0)
    assert query.written() == list(range(100))


def test_headers_topics_partitions_and_timestamps_are_the_rows(query: Query, spark: SparkSession) -> None:
    query.fill([7])
    ensure_topics(query.log, [f"{query.sink}-x"], partitions=2)
    df = topic(spark, query.source, connection=query.log, value=NUMBER).selectExpr(
        "cast(id as string) as value",
        f"'{query.sink}-x' as topic",
        "1 as partition",
        "timestamp_millis(1795121656960) as timestamp",
        "array(named_struct('key', 'h', 'value', cast('v' as binary))) as headers",
    )
    where = {"connection": query.log, "query": query.name, "checkpoint": query.checkpoint, "trigger": ONCE}
    finish(write_topic(df, **where))
    [message] = read(query.log, f"{query.sink}-x")
    assert (message.value(), message.partition(), message.headers()) == (b"7", 1, [("h", b"v")])
    assert message.timestamp()[1] == 1795121656960


def test_a_plan_that_ends_in_a_repartition_keeps_it(spark: SparkSession) -> None:
    df = spark.range(10)
    assert fixed_partitions(df) is None
    assert fixed_partitions(df.repartition(3)) is None  # round robin: rows of a key would not keep their order
    assert fixed_partitions(df.repartition(3, "id")) == 3
    assert fixed_partitions(df.repartition(3, "id").mapInArrow(failing_always(0), df.schema).where("id > 1")) == 3
    assert fixed_partitions(df.repartition(3, "id").groupBy("id").count()) is None


def test_a_definition_that_cannot_work_is_refused_at_once(query: Query, spark: SparkSession) -> None:
    def define(df: DataFrame, name: str | None = "t") -> None:
        write_topic(df, name, connection=query.log, query=query.name, checkpoint=query.checkpoint)

    query.fill([1])
    rows = topic(spark, query.source, connection=query.log, value="text")
    with pytest.raises(UnknownColumn, match="there is no column 'value'; the DataFrame has id"):
        define(rows.selectExpr("1 as id"))
    with pytest.raises(WrongType, match="column 'value' is bigint"):
        define(rows.selectExpr("_offset as value"))
    with pytest.raises(BadOption, match="no topic: give the option `topic`"):
        define(rows, None)
    with pytest.raises(BadOption, match="column 'user' is not part of a record"):
        define(rows.selectExpr("value", "1 as user"))
    with pytest.raises(UnknownColumn, match="rows with _error become dead letters, which need _raw"):
        define(rows.drop("_raw"))
    with pytest.raises(DefinitionError, match="the DataFrame is a batch"):
        define(spark.sql("select 'x' as value"))
