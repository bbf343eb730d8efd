"""The demo's processes: what each runs, and how one knows that it is ready."""

from __future__ import annotations

import json
import socket
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from headwater.client import Connection
from headwater.demo.story import DATABASE_TABLES
from headwater.demo.supervisor import Part
from headwater.demo.views import VIEWS, VIEWS_FILE
from headwater.status import StatusBoard

__all__ = ["Places", "followers", "foundation"]

PROBE_TIMEOUT_S = 1.0
QUERIES_COUNT = 6  # of `headwater.demo.pipelines`, which only its own process should import: it takes Spark with it
SPARK_DEADLINE_S = 300.0  # a session and six queries on a small machine that does something else beside


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything of one demo is."""

    folder: Path
    log: str  # HOST:PORT
    console: str
    metrics: str
    database_port: int

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.database_port} user=postgres dbname=postgres"

    @property
    def connection(self) -> Connection:
        return Connection(self.log)


def foundation(places: Places) -> list[Part]:
    """What the others cannot start without."""
    return [
        _module("log", "headwater.cli.main", "start", *_log_options(places), ready=lambda: _log_answers(places)),
        _module(
            "database",
            "headwater.demo.database",
            "--folder",
            str(places.folder / "database"),
            "--port",
            str(places.database_port),
            ready=lambda: _listens(f"127.0.0.1:{places.database_port}"),
        ),
    ]


def followers(places: Places) -> list[Part]:
    """What stands on the foundation, in any order."""
    return [
        _module(
            "people and devices",
            "headwater.demo.producers",
            *("--bootstrap", places.log, "--dsn", places.dsn),
            ready=lambda: _has_topic(places, "market.requests"),
        ),
        _module(
            "capture", "headwater.cli.main", "capture", *_capture(places), ready=lambda: _report(places, "capture", 1)
        ),
        _module(
            "pipelines",
            "headwater.demo.pipelines",
            *("--bootstrap", places.log, "--checkpoints", str(places.folder / "checkpoints")),
            ready=lambda: _report(places, "pipeline", QUERIES_COUNT),
            deadline_s=SPARK_DEADLINE_S,
        ),
        _module(
            "views", "headwater.cli.main", "view", *_views(places), ready=lambda: _report(places, "view", len(VIEWS))
        ),
        _module(
            "console",
            "headwater.cli.main",
            *("console", "--bootstrap", places.log, "--listen", places.console, "--metrics", places.metrics),
            *("--views", str(places.folder / VIEWS_FILE)),
            ready=lambda: _page_answers(places),
        ),
    ]


def _module(name: str, module: str, *words: str, ready: object, deadline_s: float = 60.0) -> Part:
    return Part(name, (sys.executable, "-m", module, *words), ready, deadline_s)  # type: ignore[arg-type]


def _log_options(places: Places) -> tuple[str, ...]:
    data = str(places.folder / "log")
    return ("--data", data, "--listen", places.log, "--metrics", places.metrics, "--set", "num.partitions=2")


def _capture(places: Places) -> tuple[str, ...]:
    return (
        *("postgres", "--name", "shop", "--dsn", places.dsn, "--bootstrap", places.log),
        *(word for table in DATABASE_TABLES for word in ("--tables", table)),
    )


def _views(places: Places) -> tuple[str, ...]:
    return ("run", "--file", str(places.folder / VIEWS_FILE), "--bootstrap", places.log)


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), PROBE_TIMEOUT_S):
            return True
    except OSError:
        return False


def _log_answers(places: Places) -> bool:
    return _listens(places.log) and _listens(places.metrics)


def _has_topic(places: Places, topic: str) -> bool:
    try:
        there = places.connection.admin().list_topics(timeout=PROBE_TIMEOUT_S).topics
    except KafkaException:
        return False
    return topic in set(there)


def _report(places: Places, kind: str, count: int) -> bool:
    """Whether so many parts of a kind say that they are running."""
    board = StatusBoard(places.connection)
    try:
        board.poll(PROBE_TIMEOUT_S)
        said = board.all(time.time_ns() // 1_000_000)
        running = [part for part in said if part["kind"] == kind and part["state"] == "running"]
        return len(running) >= count
    finally:
        board.close()


def _page_answers(places: Places) -> bool:
    try:
        with urllib.request.urlopen(f"http://{places.console}/api/overview", timeout=PROBE_TIMEOUT_S) as response:
            return bool(json.load(response)["error"] is None)
    except (OSError, ValueError):
        return False
