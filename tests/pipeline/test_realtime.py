"""Real-time Mode: rows and dead letters leave as they come, through Spark's own Kafka sink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.logs import fill, read

from headwater.client import Connection, Writer, ensure_topics
from headwater.deadletters import DeadLetter
from headwater.pipeline.errors import BadOption
from headwater.pipeline.formats import Json
from headwater.pipeline.realtime import as_kafka_rows
from headwater.pipeline.records import to_records
from headwater.pipeline.topics import topic
from headwater.pipeline.writing import split_bad, write_topic
from headwater.testing.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_bad_record_becomes_a_dead_letter_by_expressions_alone(
    spark: SparkSession, bootstrap: str, unique: str
) -> None:
    name, log = f"in-{unique}", Connection(bootstrap)
    fill(log, name, [{"id": 1}])
    with Writer(log) as writer:
        writer.write(name, b"nonsense", key=b"k", headers=[("h", b"v")], partition=0)
        writer.flush()
    df = topic(spark, name, connection=log, value=Json("id bigint"), streaming=False)
    good, bad = as_kafka_rows(to_records(df, key=["id"]), "sink", "q").orderBy("topic").collect()[::-1]
    assert (good["topic"], bytes(good["value"]), bytes(good["key"])) == ("sink", b'{"id":1}', b'{"id":1}')
    assert (bad["topic"], bytes(bad["value"]), bytes(bad["key"])) == (f"{name}.dead", b"nonsense", b"k")
    headers = [(header["key"], bytes(header["value"])) for header in bad["headers"]]
    letter = DeadLetter.from_record(b"k", b"nonsense", headers)
    assert (letter.stage, letter.topic, letter.partition) == ("pipeline:q", name, 0)
    assert letter.reason == "the value is not a JSON object: nonsense"
    assert letter.headers == (("h", b"v"),)


def test_rows_leave_while_the_batch_runs(spark: SparkSession, bootstrap: str, unique: str, tmp_path: Path) -> None:
    source, sink, log = f"in-{unique}", f"out-{unique}", Connection(bootstrap)
    ensure_topics(log, [source, sink, f"{source}.dead"], partitions=1)  # each partition holds a task slot
    rows = topic(spark, source, connection=log, value=Json("id bigint"))
    where = {"connection": log, "query": f"q-{unique}", "checkpoint": str(tmp_path / "checkpoint")}
    query = write_topic(to_records(rows, key=["id"]), sink, realtime="30 seconds", **where)  # type: ignore[arg-type]
    try:
        fill(log, source, [{"id": 1}, b"nonsense"])

        def arrived() -> bool:
            assert query.isActive, query.exception()
            return bool(read(log, sink) and read(log, f"{source}.dead"))

        eventually(arrived, deadline_s=60, what="both rows")
        assert query.lastProgress is None, "the batch must still run"
        assert json.loads(read(log, sink)[0].value() or b"") == {"id": 1}
    finally:
        query.stop()


def test_a_topic_is_not_read_twice_in_real_time_mode(spark: SparkSession, bootstrap: str, unique: str) -> None:
    log = Connection(bootstrap)
    ensure_topics(log, [f"in-{unique}"])
    good, bad = split_bad(topic(spark, f"in-{unique}", connection=log, value=Json("id bigint")))
    with pytest.raises(BadOption, match=r"write bad in a query of its own: write_topic\(bad, 'out', query='q-bad'"):
        write_topic(to_records(good), "out", bad=bad, connection=log, query="q", checkpoint="c", realtime="30 seconds")
