"""Drivers and Python workers killed at any instant: every batch gives what it would have given undisturbed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.testing import eventually

ROOT = Path(__file__).resolve().parents[3]
READY_S = 120.0  # for a session to be up and a batch done, on a busy machine
TIMES = pa.timestamp("us", tz="UTC")
WORKER = "pyspark.daemon"  # in the command line of Python workers and of the daemon that forks them

Rows = list[tuple[str, int]]


class Trial:
    """A query over files that are there from the start, and what its batches should give."""

    def __init__(self, folder: Path, batches: int, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        for name in ("in", "out"):
            (folder / name).mkdir()
        self.inputs = [self._file(number) for number in range(batches)]

    def _file(self, number: int) -> Rows:
        rows = [(f"user{self.chance.randrange(40)}", self.chance.randrange(100)) for _ in range(200)]
        path = self.folder / "in" / f"{number:05}.parquet"
        columns = [[user for user, _ in rows], [amount for _, amount in rows], pa.array([number] * len(rows), TIMES)]
        pq.write_table(pa.table(columns, names=["user", "amount", "at"]), path)
        os.utime(path, (1_700_000_000 + number,) * 2)
        return rows

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.pipeline.stateful.driver", str(self.folder)]
        return subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def done(self) -> int:
        return len(list((self.folder / "out").glob("*.json")))

    def kill_driver_after_some_batches(self) -> None:
        driver, before = self.start(), self.done()
        some = self.chance.randint(1, 4)
        try:
            eventually(lambda: driver.poll() is not None or self.done() >= before + some, deadline_s=READY_S)
            time.sleep(self.chance.random() * 0.6)  # anywhere in the batch that runs now
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()

    def finish_while_workers_are_killed(self, kills: int) -> None:
        driver = self.start()
        try:
            for _ in range(kills):
                before = self.done()
                eventually(lambda b=before: driver.poll() is not None or self.done() > b, deadline_s=READY_S)  # type: ignore[misc]
                workers = [one for one in psutil.Process(driver.pid).children(recursive=True) if _is_worker(one)]
                if workers:
                    self.chance.choice(workers).kill()
            assert driver.wait(READY_S * 2) == 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)

    def check(self) -> None:
        """Every batch told the totals after its files: one, but for a driver killed between the file source's
        log and the batch's: its files of that batch and the next are one batch then.
        """
        told = [json.loads(path.read_text()) for path in sorted((self.folder / "out").glob("*.json"))]
        totals: dict[str, list[int]] = {}
        users: set[str] = set()
        for rows in self.inputs:
            for user, amount in rows:
                had = totals.setdefault(user, [0, 0])
                totals[user] = [had[0] + 1, had[1] + amount]
                users.add(user)
            if told and told[0] == sorted([user, *totals[user]] for user in users):
                told.pop(0)
                users.clear()
        assert not users, "the last files are in no batch"
        assert not told, f"no files give what was told: {told[0][:3]} ..."


def _is_worker(process: psutil.Process) -> bool:
    """A worker and not the daemon: the daemon's parent is the JVM."""
    with suppress(psutil.Error):
        parent = process.parent()
        return parent is not None and WORKER in " ".join(process.cmdline()) and WORKER in " ".join(parent.cmdline())
    return False


@pytest.mark.spark
def test_kills_of_the_driver_and_of_workers_leave_no_trace(tmp_path: Path) -> None:
    trial = Trial(tmp_path, 12, seed=1)
    trial.kill_driver_after_some_batches()
    trial.finish_while_workers_are_killed(2)
    trial.check()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_kills_leave_no_trace(tmp_path: Path) -> None:
    trial = Trial(tmp_path, 150, seed=time.time_ns())
    for _ in range(30):
        trial.kill_driver_after_some_batches()
    trial.finish_while_workers_are_killed(10)
    trial.check()
