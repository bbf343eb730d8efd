"""One partition's state through its versions, whatever happened before: retries, other hosts, damage."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headwater.pipeline.aggregates import Running, count, sum
from headwater.pipeline.stateful.files import LocalFiles
from headwater.pipeline.stateful.history import History
from headwater.pipeline.stateful.operator import ONLY
from headwater.pipeline.stateful.partition import Partition
from headwater.pipeline.stateful.task import Program, run_task

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])


def program() -> Program:
    return Program.of(Running(["user"], {"n": count(), "total": sum("amount")}), {ONLY: SCHEMA})


def partition(tmp_path: Path, host: str = "host") -> Partition:
    return Partition(History(LocalFiles(tmp_path / "checkpoint"), "totals", 0), tmp_path / host, program().tables)


def rows(*pairs: tuple[str, int]) -> pa.Table:
    return pa.table([[user for user, _ in pairs], [amount for _, amount in pairs]], schema=SCHEMA)


def run(at: Partition, batch: int, *pairs: tuple[str, int]) -> list[tuple[str, int, int]]:
    (out,) = run_task(program(), at, batch, [rows(*pairs)])
    return [(row["user"], row["n"], row["total"]) for row in out.to_pylist()]


def test_a_batch_reads_what_the_one_before_it_left(tmp_path: Path) -> None:
    at = partition(tmp_path)
    assert run(at, 0, ("ann", 5), ("bob", 1), ("ann", 2)) == [("ann", 2, 7), ("bob", 1, 1)]
    assert run(at, 1, ("bob", 4)) == [("bob", 2, 5)]


def test_a_batch_that_is_run_again_gives_the_same_rows_and_counts_nothing_twice(tmp_path: Path) -> None:
    at = partition(tmp_path)
    run(at, 0, ("ann", 5))
    first = run(at, 1, ("ann", 2))
    assert run(at, 1, ("ann", 2)) == first
    assert run(at, 2, ("ann", 1)) == [("ann", 3, 8)]


@pytest.mark.parametrize("behind", [0, 1, 3])
def test_another_host_steps_forward_by_the_changelogs(tmp_path: Path, behind: int) -> None:
    here, there = partition(tmp_path, "here"), partition(tmp_path, "there")
    for batch in range(4):
        run(here, batch, ("ann", 1))
        if batch < behind:
            run(there, batch, ("ann", 1))
    assert run(there, 4, ("ann", 1)) == [("ann", 5, 5)]
