"""Drivers as processes, the instants at which they are killed, and the count of what survives.

Instants are found from outside: by the checkpoint's files, and by a committed reader of the coverage topic. `COMMITTED`
is the one between a batch's commit in the log and its entry in the checkpoint, which only a skip can answer.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import TopicPartition
from tests.pipeline.logs import fill, read

from headwater.client import Connection, partitions_of, watermarks
from headwater.positions import COVERAGE_TOPIC, Coverage
from headwater.testing.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
READY_S = 120.0  # for a session to be up or a query to go on, on a busy machine
PROGRESS_S = 90.0  # for a driver to get to the instant it is to be killed at
BAD_EVERY = 50  # one record in so many cannot be decoded

BEGUN, COMMITTED, ANYWHEN = "begun", "committed", "anywhen"


@dataclass
class Driver:
    """A driver process; everything it prints is kept."""

    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)
    complained: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, given: dict[str, Any]) -> Driver:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.kills.driver", json.dumps(given)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        driver = cls(process)
        for stream, kept in ((process.stdout, driver.said), (process.stderr, driver.complained)):
            threading.Thread(target=_keep_lines, args=(stream, kept), daemon=True).start()
        return driver

    def go(self) -> None:
        eventually(lambda: "ready\n" in self.said or not self.is_alive(), deadline_s=READY_S, what="a Spark session")
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def batches(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self.said) if line.startswith("{")]

    def kill(self, *, workers_too: bool = True) -> None:
        """At once and without a word; `workers_too` false leaves its Python workers behind, as a lost driver does."""
        if workers_too:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            for child in self.children("java"):
                child.kill()
            self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Whatever is left of its processes."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait()

    def children(self, name: str) -> list[psutil.Process]:
        """Its own descendants of that name."""
        mine = psutil.Process(self.process.pid).children(recursive=True)
        return [child for child in mine if name in child.name()]

    def check(self) -> None:
        assert self.is_alive(), "the driver ended by itself: " + "".join(self.complained[-30:])

    def is_alive(self) -> bool:
        return self.process.poll() is None


def _keep_lines(stream: Any, kept: list[str]) -> None:
    kept.extend(iter(stream.readline, ""))


class Trial:
    """One query through many kills, fed before each of its lives."""

    def __init__(
        self, log: Connection, unique: str, folder: Path, *, master: str = "local[2]", seed: int = 0, **settings: str
    ) -> None:
        self.log, self.random = log, random.Random(seed)
        self.source, self.sink, self.query = f"in-{unique}", f"out-{unique}", f"q-{unique}"
        self.checkpoint = folder / "checkpoint"
        self.given = {
            "bootstrap": log.bootstrap_servers,
            "source": self.source,
            "sink": self.sink,
            "query": self.query,
            "checkpoint": str(self.checkpoint),
            "records_per_batch": 200,
            "master": master,
            "settings": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", **settings},  # up sooner
        }
        self.fed = 0
        self.skips = 0
        self.batches = 0

    def feed(self, rows: int = 1_000) -> None:
        """More numbers, and the bad records among them."""
        numbers = range(self.fed, self.fed + rows)
        self.fed += rows
        fill(self.log, self.source, [_record(n) for n in numbers])

    @contextmanager
    def driver(self) -> Iterator[Driver]:
        driver = Driver.start(self.given)
        try:
            yield driver
        finally:
            driver.end()

    def through_kills(self, kills: int) -> None:
        """Each life is killed at another instant; the next driver's session starts meanwhile."""
        self.feed()
        standby = Driver.start(self.given)
        try:
            for number in range(kills):
                driver, standby = standby, Driver.start(self.given)
                self._live_and_die(driver, (COMMITTED, BEGUN, ANYWHEN)[number % 3])
                self.feed()
            standby.go()
            self.wait_until_all_is_written(standby)
        finally:
            standby.end()

    def _live_and_die(self, driver: Driver, instant: str) -> None:
        try:
            driver.go()
            self.wait_for(instant, driver)
            driver.kill(workers_too=self.random.random() < 0.5)
            self._count(driver)
        finally:
            driver.end()

    def _count(self, driver: Driver) -> None:
        batches = driver.batches()
        self.batches += len(batches)
        self.skips += sum(batch["skipped"] for batch in batches)

    def wait_for(self, instant: str, driver: Driver) -> None:
        if instant == COMMITTED:
            self._wait_for_commit(driver)
            return
        known = self.newest("offsets")
        self._until(lambda: self.newest("offsets") > known, driver, "a batch")
        longest_s = 0.4 if instant == BEGUN else 2.0  # within the batch, or somewhere in the ones that follow
        time.sleep(self.random.uniform(0, longest_s))

    def _wait_for_commit(self, driver: Driver) -> None:
        """Until a batch is in the log as a whole and not yet in the checkpoint; as fast as this can be seen."""
        reader = self.log.consumer("tests", fetch_wait_max_ms=5)
        self._until(lambda: len(partitions_of(self.log, COVERAGE_TOPIC)) >= 2, driver, "the coverage topic")
        reader.assign([TopicPartition(COVERAGE_TOPIC, p, watermarks(reader, COVERAGE_TOPIC, p)[1]) for p in (0, 1)])
        tasks: Counter[int] = Counter()

        def committed() -> bool:
            message = reader.poll(0.02)
            if message is None or message.error() is not None or message.value() is None:
                return False
            coverage = Coverage.from_value(message.value() or b"")
            tasks[coverage.batch] += coverage.query == self.query
            return tasks[coverage.batch] == 2 and coverage.batch > self.newest("commits")

        try:
            self._until(committed, driver, "a batch that is committed and not logged")
        finally:
            reader.close()

    def _until(self, condition: Callable[[], bool], driver: Driver, what: str) -> None:
        def holds() -> bool:
            driver.check()
            return condition()

        eventually(holds, deadline_s=PROGRESS_S, what=what)

    def newest(self, folder: str) -> int:
        path = self.checkpoint / folder
        return max((int(f.name) for f in path.glob("*") if f.name.isdigit()), default=-1) if path.exists() else -1

    def wait_until_all_is_written(self, driver: Driver) -> None:
        self._until(lambda: len(read(self.log, self.sink)) + len(self.dead()) >= self.fed, driver, "all rows")
        self._until(lambda: self.newest("commits") == self.newest("offsets"), driver, "the last batch's entry")
        self._count(driver)

    def dead(self) -> list[bytes | None]:
        topic = f"{self.source}.dead"
        return [m.value() for m in read(self.log, topic)] if partitions_of(self.log, topic) else []

    def check_exactly_once(self) -> None:
        """Every number once in the sink, or, if it could not be decoded, once among the dead letters."""
        written = Counter(json.loads(m.value() or b"")["id"] for m in read(self.log, self.sink))
        dead = Counter(self.dead())
        wanted = Counter(n for n in range(self.fed) if n % BAD_EVERY)
        assert wanted - written == Counter(), f"lost: {sorted((wanted - written).elements())[:10]}"
        assert written - wanted == Counter(), f"doubled: {sorted((written - wanted).elements())[:10]}"
        assert dead == Counter(_bad(n) for n in range(0, self.fed, BAD_EVERY))


def _record(number: int) -> dict[str, int] | bytes:
    return {"id": number} if number % BAD_EVERY else _bad(number)


def _bad(number: int) -> bytes:
    return b"bad %d" % number
