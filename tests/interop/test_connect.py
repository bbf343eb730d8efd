"""Kafka Connect, distributed, with the file connectors: it keeps its settings, offsets and status in our topics, and a
worker that was killed goes on from them."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.kafka_peer import QUIET, classpath, free_port

from headwater.testing.waiting import eventually

from .java import properties

DEADLINE_S = 120


class Worker:
    """A Connect worker and its REST interface."""

    def __init__(self, server: str, folder: Path, name: str) -> None:
        self.port = free_port()
        self._log = folder / "connect.log"
        config = properties(
            folder,
            [
                f"bootstrap.servers={server}",
                f"group.id=connect-{name}",
                f"listeners=http://127.0.0.1:{self.port}",
                *(f"{kind}.storage.topic=connect-{kind}-{name}" for kind in ("config", "offset", "status")),
                *(f"{kind}.storage.replication.factor=1" for kind in ("config", "offset", "status")),
                "key.converter=org.apache.kafka.connect.storage.StringConverter",
                "value.converter=org.apache.kafka.connect.storage.StringConverter",
                "offset.flush.interval.ms=500",
                "scheduled.rebalance.max.delay.ms=0",
            ],
        )
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                ["java", "-Xmx512M", "-XX:TieredStopAtLevel=1", *QUIET, "-cp", classpath(),
                 "org.apache.kafka.connect.cli.ConnectDistributed", config],
                stdout=log,
                stderr=log,
            )  # fmt: skip

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def ready(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()[-5_000:]
        try:
            return bool(self.ask("GET", "/")) and self.ask("GET", "/connectors") is not None
        except (OSError, urllib.error.HTTPError):
            return False

    def runs(self, connector: str) -> bool:
        try:
            status = self.ask("GET", f"/connectors/{connector}/status")
        except urllib.error.HTTPError:
            return False
        states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
        return len(states) > 1 and set(states) == {"RUNNING"}


@contextmanager
def worker(server: str, folder: Path, name: str) -> Iterator[Worker]:
    running = Worker(server, folder, name)
    try:
        eventually(running.ready, deadline_s=DEADLINE_S, what="the worker answers")
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_file_connectors_and_a_worker_killed_and_started_again(server: str, unique: str, tmp_path: Path) -> None:
    source, target, topic = tmp_path / "source", tmp_path / "target", f"lines-{unique}"
    source.write_text("".join(f"before {n}\n" for n in range(100)))
    connectors = {
        "read": {"connector.class": "FileStreamSource", "file": str(source), "topic": topic},
        "write": {"connector.class": "FileStreamSink", "file": str(target), "topics": topic},
    }
    with worker(server, tmp_path, unique) as first:
        for name, config in connectors.items():
            first.ask("PUT", f"/connectors/{name}/config", config)
        for name in connectors:
            eventually(lambda name=name: first.runs(name), deadline_s=DEADLINE_S, what=f"{name} runs")
        eventually(lambda: len(lines(target)) >= 100, deadline_s=DEADLINE_S, what="what was written before")
        eventually(lambda: _committed(first, source) == source.stat().st_size, deadline_s=DEADLINE_S)
    with source.open("a") as file:
        file.writelines(f"after {n}\n" for n in range(100))
    with worker(server, tmp_path, unique) as second:
        assert sorted(second.ask("GET", "/connectors")) == ["read", "write"]
        eventually(lambda: "after 99" in lines(target), deadline_s=DEADLINE_S, what="what was written after")
    found = lines(target)
    assert list(dict.fromkeys(found)) == [
        *(f"before {n}" for n in range(100)),
        *(f"after {n}" for n in range(100)),
    ]
    assert [line for line in found if line.startswith("after")] == [f"after {n}" for n in range(100)]


def _committed(running: Worker, source: Path) -> int:
    """How far the source connector's stored position is."""
    offsets = running.ask("GET", "/connectors/read/offsets")["offsets"]
    return max((each["offset"]["position"] for each in offsets if each["offset"]), default=0)
