"""A small state to test versions with: totals per user, and hosts that run its batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headwater.pipeline.aggregates import Running, count, sum
from headwater.pipeline.stateful.files import Files, LocalFiles
from headwater.pipeline.stateful.history import KEEP_VERSIONS, History
from headwater.pipeline.stateful.operator import ONLY
from headwater.pipeline.stateful.partition import Partition
from headwater.pipeline.stateful.task import Program, Run, run_task

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])

Pair = tuple[str, int]


def program() -> Program:
    return Program.of(Running(["user"], {"n": count(), "total": sum("amount")}), {ONLY: SCHEMA})


def rows(pairs: Sequence[Pair]) -> pa.Table:
    return pa.table([[user for user, _ in pairs], [amount for _, amount in pairs]], schema=SCHEMA)


class Host:
    """A machine with its own local store, over a checkpoint that all machines share."""

    def __init__(
        self,
        tmp_path: Path,
        name: str = "host",
        *,
        gaps: bool = False,
        keep: int = KEEP_VERSIONS,
        files: Files | None = None,
    ) -> None:
        self.store = tmp_path / name
        self.folder = tmp_path / "checkpoint" / "totals" / "0"
        history = History(files or LocalFiles(tmp_path / "checkpoint"), "totals", 0)
        self.partition = Partition(history, self.store, program().tables, gaps=gaps, keep_versions=keep)

    def run(self, batch: int, *pairs: Pair) -> list[tuple[str, int, int]]:
        (out,) = run_task(program(), self.partition, batch, [rows(pairs)])
        return [(row["user"], row["n"], row["total"]) for row in out.to_pylist()]

    def run_as(self, origin: str, batch: int, *pairs: Pair) -> None:
        """As a task of the source's own, which says who it is."""
        with Run(program(), self.partition, batch, origin) as run:
            run.feed(rows(pairs))
            run.commit()

    def changelog(self, version: int) -> Path:
        return self.folder / f"changelog-{version:012d}"
