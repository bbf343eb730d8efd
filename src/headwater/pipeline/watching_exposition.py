"""Watched queries in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headwater.pipeline.watching_queries import WatchedQuery

__all__ = ["expose"]

PREFIX = "headwater_pipeline_"

Sample = tuple[Mapping[str, Any], float | None]


def expose(queries: Iterable[WatchedQuery]) -> str:
    """All metrics, a family after the other; what is not known of a query is left out."""
    known = list(queries)
    return "".join(line + "\n" for family in _families(known) for line in family)


def _families(queries: list[WatchedQuery]) -> Iterator[Iterable[str]]:
    named = [(_labels(one), one) for one in queries]
    yield _family("up", "gauge", "Whether the query runs.", ((q, one.status == "running") for q, one in named))
    yield _family("rows_total", "counter", "Input rows.", ((q, one.rows) for q, one in named))
    yield _family("batch", "gauge", "The newest batch.", ((q, one.batch) for q, one in named if one.batch >= 0))
    yield _family(
        "batch_seconds",
        "gauge",
        "Time of the newest batch by part: batch is the whole, read, step and write the slowest task's.",
        (({**q, "part": part}, ms / 1000) for q, one in named for part, ms in one.last.get("ms", {}).items()),
    )
    yield _family(
        "lag_rows",
        "gauge",
        "Rows that a topic holds behind what was read.",
        (({**q, "topic": t}, n) for q, one in named for t, n in one.last.get("lag", {}).get("topics", {}).items()),
    )
    yield _family(
        "late_rows_total",
        "counter",
        "Rows behind their producer's low watermark.",
        (({**q, "operator": o, "producer": p}, n) for q, one in named for (o, p), n in one.late.items()),
    )
    yield from _operators(named)


def _operators(named: list[tuple[dict[str, Any], WatchedQuery]]) -> Iterator[Iterable[str]]:
    operators = [({**q, "operator": op.name}, op) for q, one in named for op in one.operators]
    yield _family("operator_rows_in", "gauge", "Rows into an operator.", ((o, op.rows_in) for o, op in operators))
    yield _family("operator_rows_out", "gauge", "Rows out of an operator.", ((o, op.rows_out) for o, op in operators))
    yield _family("state_rows", "gauge", "Rows of state.", ((o, op.state_rows) for o, op in operators))
    yield _family("state_bytes", "gauge", "Bytes of state.", ((o, op.state_bytes) for o, op in operators))
    yield _family(
        "low_watermark_seconds",
        "gauge",
        "The low watermark, seconds since 1970.",
        ((o, None if op.low is None else op.low / 1e6) for o, op in operators),
    )


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    lines = [f"{PREFIX}{name}{_shown(labels)} {float(value):g}" for labels, value in samples if value is not None]
    if lines:
        yield f"# HELP {PREFIX}{name} {text}"
        yield f"# TYPE {PREFIX}{name} {kind}"
        yield from lines


def _labels(query: WatchedQuery) -> dict[str, Any]:
    return {"query": query.name or query.id, "run": query.run}


def _shown(labels: Mapping[str, Any]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
