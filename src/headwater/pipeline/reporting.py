"""Pipelines report to the log: `headwater.status` then has every query of a session, for the console and the CLI.

with reporting(spark, connection):
    query = write_topic(...)
    query.awaitTermination()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from headwater.client import Connection
from headwater.pipeline.watching import Watch, watch
from headwater.status import Reporter

__all__ = ["reporting"]

_STATES = {"running": "running", "failed": "failed"}


@contextmanager
def reporting(spark: SparkSession, connection: Connection | str) -> Iterator[Watch]:
    """Report every query of the session, started before or after, once a second while the block runs."""
    log = Connection(connection) if isinstance(connection, str) else connection
    with watch(spark) as watching, Reporter(log, "pipeline", lambda: _parts(watching.as_json())):
        yield watching


def _parts(watched: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By name, or by id where a query has none; of one that was restarted the newest run counts."""
    return {str(query.get("name") or query["id"]): _details(query) for query in watched["queries"]}


def _details(query: Mapping[str, Any]) -> dict[str, Any]:
    """Without the batches one by one: those are on the query's own watch page."""
    kept = {name: value for name, value in query.items() if name not in ("batches", "status")}
    lag = query.get("lag") or {}
    return {
        **kept,
        "state": _STATES.get(str(query.get("status")), "stopped"),
        "input_rate": query.get("input_rows_per_second"),
        "output_rate": sum(one["rows_out"] for one in query["operators"][-1:]) / _seconds(query),
        "behind": lag.get("rows"),
    }


def _seconds(query: Mapping[str, Any]) -> float:
    """How long the last batch took, and not less than the time between two looks."""
    return max(float((query.get("ms") or {}).get("batch") or 0.0) / 1000, 1.0)
