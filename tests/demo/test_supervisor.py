from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.demo.supervisor import Part, Supervisor
from headwater.errors import EnvironmentFailed
from headwater.testing import eventually

SLEEPER = "import pathlib,sys,time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    supervisor = Supervisor(tmp_path / "logs")
    yield supervisor
    supervisor.stop_all()


def sleeper(name: str, folder: Path) -> Part:
    ready = folder / name
    return Part(name, [sys.executable, "-c", SLEEPER, str(ready)], ready.exists)


def test_a_killed_part_is_started_again(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.start(sleeper("a", tmp_path))
    first = supervisor.pids()["a"]
    os.kill(first, signal.SIGKILL)
    eventually(lambda: supervisor.pids()["a"] != first)
    assert supervisor.restarts() == {"a": 1}


def test_stopping_leaves_no_process_behind(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.start(sleeper("a", tmp_path))
    supervisor.start(sleeper("b", tmp_path))
    pids = supervisor.pids().values()
    supervisor.stop_all()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_part_that_cannot_start_is_reported_with_what_it_said(supervisor: Supervisor) -> None:
    part = Part("broken", [sys.executable, "-c", "raise SystemExit('no such disk')"], lambda: False)
    with pytest.raises(EnvironmentFailed, match="no such disk"):
        supervisor.start(part)
