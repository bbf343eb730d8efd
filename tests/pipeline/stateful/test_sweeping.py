"""Local stores of queries that are gone do not stay for ever, and nothing else is touched."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.pipeline.stateful.plan import StateOptions
from headwater.pipeline.stateful.sweeping import UNUSED_DAYS_MAX, sweep
from headwater.pipeline.stateful.task import run_task

from .totals import program, rows


def run(tmp_path: Path, query: str, batch: int) -> Path:
    options = StateOptions(str(tmp_path / "checkpoint" / query), "totals", 1, local_dir=str(tmp_path / "local"))
    list(run_task(program(), options.partition(query, 0, program()), batch, [rows([("ann", 1)])]))
    return options.store_path(query, 0)


def grow_old(store: Path) -> None:
    at = store.stat().st_mtime - (UNUSED_DAYS_MAX + 1) * 86_400
    os.utime(store / "data.mdb", (at, at))


def test_stores_unused_for_a_week_go_when_a_new_one_is_made_and_can_come_back(tmp_path: Path) -> None:
    old, used = run(tmp_path, "old", 0), run(tmp_path, "used", 0)
    grow_old(old)
    run(tmp_path, "new", 0)
    assert not old.exists()
    assert used.exists()
    assert run(tmp_path, "old", 1).exists()


def test_what_is_not_a_store_stays(tmp_path: Path) -> None:
    mine = tmp_path / "0123456789abcdef"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    os.utime(mine / "thesis.txt", (0, 0))
    assert sweep(tmp_path) == []
    assert (mine / "thesis.txt").exists()
    assert sweep(tmp_path / "nowhere") == []
