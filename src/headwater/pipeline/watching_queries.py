"""What is known of a running query: pure, fed with Spark's progress reports and with what its operators did."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from headwater.pipeline.watching_operators import OperatorBatch

__all__ = ["BATCHES_KEPT", "Backfill", "WatchedQuery"]

BATCHES_KEPT = 120  # of each query, for graphs
BACKFILL_ROWS_MIN = 10_000  # rows behind from which a query is said to be catching up
RATE_WEIGHT = 0.3  # how much the newest batch counts in the estimate's rate

# where a batch's time goes, by the names that Spark's progress has for it
_MS = {"batch": "triggerExecution", "plan": "queryPlanning", "run": "addBatch", "offsets": "walCommit"}


@dataclass
class Backfill:
    """How far a query that started behind has got, and when it will have caught up."""

    done: int = 0
    remaining: int = 0
    rate: float = 0.0  # rows a second that it gains on its producers

    def follow(self, rows: int, behind: int, seconds: float) -> None:
        """A batch of `rows` in `seconds`, after which `behind` rows are left."""
        gained = (self.remaining - behind) / seconds if self.remaining and seconds > 0 else 0.0
        self.rate = gained if not self.rate else (1 - RATE_WEIGHT) * self.rate + RATE_WEIGHT * gained
        self.done += rows
        self.remaining = behind

    def as_json(self) -> dict[str, Any]:
        total = self.done + self.remaining
        left = round(self.remaining / self.rate, 1) if self.rate > 0 else None
        return {
            "done_rows": self.done,
            "remaining_rows": self.remaining,
            "share": round(self.done / total, 4) if total else 1.0,
            "rows_per_second": round(self.rate, 1),
            "seconds_left": left,  # null: it does not gain on its producers
        }


@dataclass
class WatchedQuery:
    """One query since its driver started it."""

    id: str
    run: str
    name: str | None
    status: str = "running"  # or "stopped", "failed"
    error: str | None = None
    batch: int = -1
    at: str = ""
    rows: int = 0
    late: Counter[tuple[str, str]] = field(default_factory=Counter)  # (operator, producer) -> rows since the start
    last: dict[str, Any] = field(default_factory=dict)
    operators: list[OperatorBatch] = field(default_factory=list)
    batches: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    backfill: Backfill | None = None

    def progress(self, report: Mapping[str, Any], operators: Sequence[OperatorBatch]) -> None:
        """A batch is done (or nothing came for a while: then the report repeats the last one's number)."""
        self.at = report["timestamp"]
        if report["batchId"] == self.batch:
            return
        self.batch, rows = report["batchId"], int(report["numInputRows"])
        ms = _times(report, operators)
        lag = _lag(report["sources"])
        self.rows += rows
        self.operators = list(operators)
        for one in operators:
            self.late.update({(one.name, producer): count for producer, count in one.late.items()})
        self.last = {
            "rows": rows,
            "input_rows_per_second": _number(report.get("inputRowsPerSecond")),
            "rows_per_second": _number(report.get("processedRowsPerSecond")),
            "ms": ms,
            "lag": lag,
        }
        late = sum(sum(one.late.values()) for one in operators)
        self.batches.append({"batch": self.batch, "at": self.at, "rows": rows, "late": late, "ms": ms["batch"]})
        self._catch_up(rows, lag["rows"], ms["batch"] / 1000)

    def _catch_up(self, rows: int, behind: int | None, seconds: float) -> None:
        if behind is None:
            return
        if self.backfill is None and behind >= BACKFILL_ROWS_MIN:
            self.backfill = Backfill()
        if self.backfill is not None:
            self.backfill.follow(rows, behind, seconds)
            if not behind:
                self.backfill = None

    def end(self, error: str | None) -> None:
        self.status, self.error = ("failed", error) if error else ("stopped", None)

    def as_json(self) -> dict[str, Any]:
        late: dict[str, dict[str, int]] = {}
        for (operator, producer), count in self.late.items():
            late.setdefault(operator, {})[producer] = count
        return {
            "id": self.id,
            "run": self.run,
            "name": self.name,
            "status": self.status,
            "error": self.error,
            "batch": self.batch,
            "at": self.at,
            "rows_total": self.rows,
            "late_total": late,
            **self.last,
            "operators": [one.as_json() for one in self.operators],
            "backfill": None if self.backfill is None else self.backfill.as_json(),
            "batches": list(self.batches),
        }


def _times(report: Mapping[str, Any], operators: Sequence[OperatorBatch]) -> dict[str, float]:
    """Milliseconds of the batch, by Spark; and of its slowest task in each operator: read, step (state), write."""
    spent = report.get("durationMs") or {}
    ms = {name: float(spent.get(theirs, 0)) for name, theirs in _MS.items()}
    for part in ("read", "step", "write"):
        ms[part] = round(sum(one.ms.get(part, 0.0) for one in operators), 2)
    return ms


def _lag(sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many rows the topics hold behind what was read; `rows` is null when no source says."""
    topics: dict[str, int] = {}
    for source in sources:
        ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        for topic, partitions in (latest or {}).items():
            read = (ends or {}).get(topic, {})
            behind = sum(max(offset - read.get(partition, 0), 0) for partition, offset in partitions.items())
            topics[topic] = topics.get(topic, 0) + behind
    return {"rows": sum(topics.values()) if topics else None, "topics": topics}


def _offsets(text: Any) -> dict[str, dict[str, int]] | None:
    """Kafka's offsets in a report: {"topic": {"0": 12}}; None for other sources'."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        return None
    return found


def _number(value: Any) -> float | None:
    return round(float(value), 1) if isinstance(value, (int, float)) and isfinite(value) else None
