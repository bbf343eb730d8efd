"""A state read from outside, as it is and as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.pipeline.errors import BadOption
from headwater.pipeline.stateful.errors import StateMismatch
from headwater.pipeline.stateful.files import LocalFiles
from headwater.pipeline.stateful.manifest import Manifest, check_manifest
from headwater.pipeline.stateful.plan import StateOptions
from headwater.pipeline.stateful.reading import read_state
from headwater.pipeline.stateful.task import run_task

from .totals import program, rows


def run(checkpoint: Path, batch: int, *pairs: tuple[str, int], partitions: int = 2) -> None:
    options = StateOptions(str(checkpoint), "totals", partitions, local_dir=str(checkpoint / "local"))
    for number in range(partitions):
        own = [pair for pair in pairs if len(pair[0]) % partitions == number]
        list(run_task(program(), options.partition("query", number, program()), batch, [rows(own)]))


def test_the_newest_rows_and_where_they_are(tmp_path: Path) -> None:
    run(tmp_path, 0, ("ann", 1), ("anna", 2))
    run(tmp_path, 1, ("ann", 5))
    found = read_state(str(tmp_path), "totals").sort_by("user").to_pylist()
    assert [(row["user"], row["total.whole"], row["_state_partition"]) for row in found] == [
        ("ann", 6, 1),
        ("anna", 2, 0),
    ]


def test_the_rows_as_they_were_after_an_earlier_batch(tmp_path: Path) -> None:
    run(tmp_path, 0, ("ann", 1))
    run(tmp_path, 1, ("ann", 5))
    assert read_state(str(tmp_path), "totals", "running", version=1)["total.whole"].to_pylist() == [1]


def test_what_is_not_there_is_named_with_what_is(tmp_path: Path) -> None:
    run(tmp_path, 0, ("ann", 1))
    with pytest.raises(BadOption, match="no state of an operator 'sums', only totals"):
        read_state(str(tmp_path), "sums")
    with pytest.raises(BadOption, match="say which of its tables: running"):
        read_state(str(tmp_path), "totals", "counts")


def test_a_state_is_refused_to_another_query_and_to_another_number_of_partitions(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    check_manifest(files, Manifest("totals", "query", 2, "Running", ("user",)))
    with pytest.raises(StateMismatch, match=r"holds the state of query query .* not of another"):
        check_manifest(files, Manifest("totals", "another", 2, "Running", ("user",)))
    with pytest.raises(StateMismatch, match=r"has 2 partitions, the query asks for 8: .* repartition_state\(\)"):
        check_manifest(files, Manifest("totals", "query", 8, "Running", ("user",)))
