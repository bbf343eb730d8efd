"""What those who watch are told: from Spark's reports, and from what operators wrote beside their checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.pipeline.aggregates import count, running
from headwater.pipeline.stateful.plan import Plan, StateOptions
from headwater.pipeline.stateful.task import run_task
from headwater.pipeline.time import event_time
from headwater.pipeline.time.marks import Marker
from headwater.pipeline.watching_exposition import expose
from headwater.pipeline.watching_operators import OperatorBatch, OperatorReader
from headwater.pipeline.watching_queries import WatchedQuery
from headwater.testing.harness.nodes import Applied
from headwater.testing.streams import Stream, StreamTest


def report(batch: int, rows: int, ms: int = 500, behind: int | None = None) -> dict[str, Any]:
    source: dict[str, Any] = {"description": "KafkaV2[Subscribe[clicks]]"}
    if behind is not None:
        source |= {
            "endOffset": {"clicks": {"0": 100, "1": 50}},
            "latestOffset": {"clicks": {"0": 100 + behind, "1": 50}},
        }
    return {
        "id": "q1",
        "runId": "r1",
        "name": "totals",
        "timestamp": "2026-01-01T10:00:00.000Z",
        "batchId": batch,
        "numInputRows": rows,
        "inputRowsPerSecond": 10.0,
        "processedRowsPerSecond": 20.0,
        "durationMs": {"triggerExecution": ms, "addBatch": 300, "queryPlanning": 20, "walCommit": 40},
        "sources": [source],
    }


def watched(*reports: dict[str, Any], operators: tuple[OperatorBatch, ...] = ()) -> WatchedQuery:
    query = WatchedQuery("q1", "r1", "totals")
    for one in reports:
        query.progress(one, operators)
    return query


def test_rows_add_up_and_a_report_that_is_repeated_counts_once() -> None:
    query = watched(report(0, 5), report(1, 7), report(1, 7))
    assert (query.batch, query.rows, len(query.batches)) == (1, 12, 2)


def test_lag_is_what_the_topic_holds_behind_what_was_read() -> None:
    assert watched(report(0, 5, behind=30)).as_json()["lag"] == {"rows": 30, "topics": {"clicks": 30}}
    assert watched(report(0, 5)).as_json()["lag"] == {"rows": None, "topics": {}}


def test_a_backfill_says_how_far_it_is_and_when_it_will_be_done() -> None:
    query = watched(report(0, 10_000, 1000, behind=40_000), report(1, 10_000, 1000, behind=30_000))
    assert query.as_json()["backfill"] == {
        "done_rows": 20_000,
        "remaining_rows": 30_000,
        "share": 0.4,
        "rows_per_second": 10_000.0,
        "seconds_left": 3.0,
    }
    query.progress(report(2, 10_000, 1000, behind=35_000), ())
    query.progress(report(3, 30_000, 1000, behind=0), ())
    assert query.as_json()["backfill"] is None


def test_a_backfill_that_gains_nothing_has_no_end() -> None:
    query = watched(report(0, 10, 1000, behind=20_000), report(1, 10, 1000, behind=25_000))
    assert query.as_json()["backfill"]["seconds_left"] is None


def test_late_rows_are_added_up_by_operator_and_producer() -> None:
    operator = OperatorBatch("windows", "Tumbling", 2, late={"phone": 3, "": 1})
    query = watched(report(0, 5), report(1, 5), operators=(operator,))
    assert query.as_json()["late_total"] == {"windows": {"phone": 6, "": 2}}
    assert [one["late"] for one in query.as_json()["batches"]] == [4, 4]


def test_an_ended_query_says_why() -> None:
    query = watched(report(0, 5))
    query.end("it broke")
    assert (query.as_json()["status"], query.as_json()["error"]) == ("failed", "it broke")


def plan_of(stream: Stream) -> Plan:
    assert isinstance(stream.node, Applied)
    return stream.node.plan


def test_operators_are_read_from_beside_the_checkpoint(tmp_path: Path) -> None:
    orders = StreamTest().stream("at timestamp, user string, who string")
    timed = event_time(orders, "at", delay="10 seconds", producer="who")
    options = StateOptions(str(tmp_path), "totals", 2, local_dir=str(tmp_path / "local"))
    plan = plan_of(running(timed, ["user"], {"n": count()}))
    program = plan.program
    schema = pa.schema([timed.schema.field(name) for name in plan.columns["rows"]])
    marker = Marker(program.time or {}, schema)
    minutes = [60_000_000 * minute for minute in (10, 3, 11)]
    columns: dict[str, Any] = {"at": minutes, "user": ["a", "b", "c"], "who": ["x"] * 3, "_time": minutes}
    rows = pa.table([pa.array({**columns, "_producer": ["x"] * 3}[f.name]).cast(f.type) for f in schema], schema=schema)
    for number in range(2):
        own = [marker.rows(rows.slice(number * 2, 2 - number)), marker.punctuation(1)]
        list(run_task(program, options.partition("q1", number, program), 0, own))
    (found,) = OperatorReader().read([options], "q1", 0)
    assert (found.rows_in, found.rows_out, found.partitions, found.program) == (3, 3, 2, "Running")
    assert found.late == {"x": 1}
    assert found.low == 60_000_000 * 10 - 10_000_000
    assert [lane["producer"] for lane in found.lanes] == ["x"]
    assert OperatorReader().read([options], "another", 0) == []
    (later,) = OperatorReader().read([options], "q1", 7)
    assert later.rows_in == 0


def test_everything_can_be_said_as_json_and_to_prometheus() -> None:
    operator = OperatorBatch('win"dows', "Tumbling", 2, late={"phone\n1": 3}, low=1_500_000, ms={"step": 12.0})
    query = watched(report(0, 5, behind=30), operators=(operator,))
    json.dumps(query.as_json())
    text = expose([query])
    assert 'headwater_pipeline_rows_total{query="totals",run="r1"} 5\n' in text
    assert 'operator="win\\"dows",producer="phone\\n1"} 3\n' in text
    assert 'headwater_pipeline_low_watermark_seconds{query="totals",run="r1",operator="win\\"dows"} 1.5\n' in text
    assert 'headwater_pipeline_batch_seconds{query="totals",run="r1",part="step"} 0.012\n' in text
    assert 'headwater_pipeline_lag_rows{query="totals",run="r1",topic="clicks"} 30\n' in text
