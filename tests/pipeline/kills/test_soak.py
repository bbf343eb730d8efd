"""Everything that a query is made of killed, many times: `make soak`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from bench.kafka_peer import free_port, kafka_peer
from bench.report import wait_for_port
from tests.pipeline.kills.killing import READY_S, Driver, Trial
from tests.pipeline.logs import read

from headwater.client import Connection
from headwater.testing.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(7_200)]

KILLS = 100
WORKER_KILLS = 30
EXECUTOR_KILLS = 5
BROKER_KILLS = 10


def test_a_hundred_kills_of_the_driver_against_our_broker(bootstrap: str, unique: str, tmp_path: Path) -> None:
    hundred_kills(bootstrap, unique, tmp_path)


def test_a_hundred_kills_of_the_driver_against_kafka(unique: str, tmp_path: Path) -> None:
    with kafka_peer({"num.partitions": "2"}) as kafka:
        hundred_kills(kafka.bootstrap_servers, unique, tmp_path)


def hundred_kills(bootstrap: str, unique: str, folder: Path) -> None:
    trial = Trial(Connection(bootstrap), unique, folder)
    trial.through_kills(KILLS)
    trial.check_exactly_once()
    assert trial.skips >= KILLS // 10, f"only {trial.skips} skips: the instants are not met"


def test_a_driver_thought_dead_that_comes_back_doubles_nothing(bootstrap: str, unique: str, tmp_path: Path) -> None:
    trial = Trial(Connection(bootstrap), unique, tmp_path)
    trial.feed(3_000)
    with trial.driver() as zombie, trial.driver() as successor:
        zombie.go()
        trial.wait_for("begun", zombie)
        for process in everything_of(zombie):
            process.send_signal(signal.SIGSTOP)
        before = len(read(trial.log, trial.sink))
        successor.go()
        eventually(lambda: len(read(trial.log, trial.sink)) > before, deadline_s=READY_S, what="the successor's rows")
        for process in everything_of(zombie):
            process.send_signal(signal.SIGCONT)
        eventually(lambda: not zombie.is_alive() or not successor.is_alive(), deadline_s=READY_S, what="one to give up")
    finish(trial)


def test_python_workers_killed_under_a_running_query(bootstrap: str, unique: str, tmp_path: Path) -> None:
    trial = Trial(Connection(bootstrap), unique, tmp_path)
    trial.feed()
    with trial.driver() as driver:
        driver.go()
        for _ in range(WORKER_KILLS):
            trial.feed(400)
            kill_one(trial, driver, lambda process: "pyspark.daemon" in command(process.parent()))
    finish(trial)


def test_executors_killed_under_a_running_query(bootstrap: str, unique: str, tmp_path: Path) -> None:
    trial = Trial(Connection(bootstrap), unique, tmp_path, master="local-cluster[2,1,1024]")
    trial.feed()
    with trial.driver() as driver:
        driver.go()
        for _ in range(EXECUTOR_KILLS):
            trial.feed()
            kill_one(trial, driver, lambda process: "CoarseGrainedExecutorBackend" in command(process))
    finish(trial)


def test_the_broker_killed_under_a_running_query(unique: str, tmp_path: Path) -> None:
    port = free_port()
    trial = Trial(Connection(f"127.0.0.1:{port}"), unique, tmp_path)
    with broker(tmp_path, port):
        trial.feed(3_000)
    for _ in range(BROKER_KILLS):
        with trial.driver() as driver:
            with broker(tmp_path, port):
                driver.go()
                trial.wait_for("begun", driver)
            with broker(tmp_path, port):  # the query goes on by itself, or ends and is started again
                trial.feed(300)
                known = trial.newest("commits")
                eventually(
                    lambda d=driver, k=known: not d.is_alive() or trial.newest("commits") > k,  # type: ignore[misc]
                    deadline_s=READY_S,
                    what="the query to go on or to end",
                )
    with broker(tmp_path, port):
        finish(trial)


@contextmanager
def broker(folder: Path, port: int) -> Iterator[None]:
    """Ours as a process of its own, killed at the end."""
    command = [sys.executable, "-m", "headwater.cli.main", "start", "--data", str(folder / "log")]
    process = subprocess.Popen([*command, "--listen", f"127.0.0.1:{port}"], stdout=subprocess.DEVNULL)
    try:
        wait_for_port(port, process)  # type: ignore[arg-type]
        yield
    finally:
        process.kill()
        process.wait()


def finish(trial: Trial) -> None:
    """A last driver writes what is left; then everything is there once."""
    with trial.driver() as driver:
        driver.go()
        trial.wait_until_all_is_written(driver)
    trial.check_exactly_once()


def kill_one(trial: Trial, driver: Driver, wanted: Callable[[psutil.Process], bool]) -> None:
    def found() -> list[psutil.Process]:
        driver.check()
        return [process for process in everything_of(driver) if is_alive_and(wanted, process)]

    victims = eventually(found, deadline_s=READY_S, what="a process to kill")
    time.sleep(trial.random.uniform(0, 0.3))  # any instant of its work
    trial.random.choice(victims).kill()


def is_alive_and(wanted: Callable[[psutil.Process], bool], process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and wanted(process)
    except psutil.NoSuchProcess:
        return False


def everything_of(driver: Driver) -> list[psutil.Process]:
    root = psutil.Process(driver.process.pid)
    return [root, *root.children(recursive=True)]


def command(process: psutil.Process | None) -> str:
    return " ".join(process.cmdline()) if process is not None else ""
