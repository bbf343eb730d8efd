"""What the operators of a batch did, from the headers of the changelogs that it wrote beside the checkpoint.

Each header is small and immutable, so anybody who can read the checkpoint can watch, and the query does not notice.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import HeadwaterError
from headwater.pipeline.stateful.files import files_at
from headwater.pipeline.stateful.history import History
from headwater.pipeline.stateful.manifest import Manifest, read_manifest
from headwater.pipeline.stateful.operator import MAX_TIME, MIN_TIME
from headwater.pipeline.stateful.plan import StateOptions

__all__ = ["OperatorBatch", "OperatorReader", "combined"]

LANES_SHOWN_MAX = 50  # the slowest lanes of an operator that are shown

_log = logging.getLogger("headwater.pipeline")


@dataclass(frozen=True)
class OperatorBatch:
    """One operator's part of a batch, all partitions together; times are microseconds, None where there are none."""

    name: str
    program: str
    partitions: int
    rows_in: int = 0
    rows_out: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    ms: Mapping[str, float] = field(default_factory=dict)  # the slowest partition's
    low: int | None = None
    tick: int | None = None
    late: Mapping[str, int] = field(default_factory=dict)  # rows behind their producer's low watermark, by producer
    lanes: tuple[Mapping[str, Any], ...] = ()  # the slowest first
    reached: Mapping[str, int] = field(default_factory=dict)  # partitions whose state was "here", "stepped", "rebuilt"
    notes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # what steps noted, a value for each partition

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "program": self.program,
            "partitions": self.partitions,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "state": {"rows": self.state_rows, "bytes": self.state_bytes},
            "ms": dict(self.ms),
            "low_us": self.low,
            "tick_us": self.tick,
            "late": dict(self.late),
            "lanes": [dict(lane) for lane in self.lanes],
            "reached": dict(self.reached),
            "notes": {name: list(values) for name, values in self.notes.items()},
        }


class OperatorReader:
    """Finds the operators of a query among those that this driver defined, and reads what they did."""

    def __init__(self) -> None:
        self._manifests: dict[tuple[str, str], Manifest] = {}

    def read(self, options: Iterable[StateOptions], query: str, batch: int) -> list[OperatorBatch]:
        """The operators of the query; one whose files cannot be read is left out and reported."""
        found = []
        for one in options:
            try:
                manifest = self._manifest(one)
                if manifest is not None and manifest.query == query:
                    found.append(self._operator(one, manifest, batch))
            except (HeadwaterError, OSError) as error:
                _log.warning("watching %s in %s: %s", one.name, one.checkpoint, error)
        return found

    def _manifest(self, options: StateOptions) -> Manifest | None:
        known = self._manifests.get((options.checkpoint, options.name))
        if known is None or known.partitions != options.partitions:
            files = files_at(f"{options.checkpoint}/headwater", options.storage_options)
            known = read_manifest(files, options.name)
            if known is not None:
                self._manifests[options.checkpoint, options.name] = known
        return known

    def _operator(self, options: StateOptions, manifest: Manifest, batch: int) -> OperatorBatch:
        files = files_at(f"{options.checkpoint}/headwater", options.storage_options)
        folder = manifest.folder or manifest.operator
        numbers = range(manifest.partitions) if manifest.partitions else map(int, _digits(files.names(folder)))
        headers = (History(files, manifest.operator, number, manifest.folder).head(batch + 1) for number in numbers)
        return combined(manifest, [header.metrics for header in headers if header is not None])


def _digits(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.isdigit()]


def combined(manifest: Manifest, parts: list[Mapping[str, Any]]) -> OperatorBatch:
    """The counts of all partitions as one; the slowest partition's times, because the batch waits for it."""
    late: Counter[str] = Counter()
    lanes: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    lows, ticks = [], []
    for time in (part["time"] for part in parts if "time" in part):
        late.update(time["late"])
        lanes |= {(one["side"], one["producer"], one["topic"], one["partition"]): one for one in time["lanes"]}
        lows.append(time["low"])
        ticks.append(time["tick"])
    sizes = [size for part in parts for size in part["state"].values()]
    return OperatorBatch(
        manifest.operator,
        manifest.program,
        manifest.partitions,
        rows_in=sum(part["rows_in"] for part in parts),
        rows_out=sum(part["rows_out"] for part in parts),
        state_rows=sum(rows for rows, _ in sizes),
        state_bytes=sum(size for _, size in sizes),
        ms={name: max(part["ms"][name] for part in parts) for name in (parts[0]["ms"] if parts else ())},
        low=_known(min(lows, default=MIN_TIME)),
        tick=_known(max(ticks, default=MIN_TIME)),
        late=dict(late),
        lanes=tuple(sorted(lanes.values(), key=lambda one: one["low"])[:LANES_SHOWN_MAX]),
        reached=dict(Counter(part["reached"][0] for part in parts if "reached" in part)),
        notes=_notes(parts),
    )


_OWN = ("rows_in", "rows_out", "ms", "state", "time", "reached", "origin")


def _notes(parts: list[Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    names = dict.fromkeys(name for part in parts for name in part if name not in _OWN)
    return {name: tuple(part[name] for part in parts if name in part) for name in names}


def _known(at: int) -> int | None:
    return at if MIN_TIME < at < MAX_TIME else None
