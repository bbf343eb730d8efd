"""A log, a writer, followers and servers as processes of their own that are killed, and the fold that must hold.

The writer never stops while things die around it. Whatever is killed, each store must equal a fold of the topic up to
its own bookmark: nothing lost, doubled or out of order.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.kafka_peer import free_port
from tests.views.stores import Kind, Servers

from headwater.client import Connection, ensure_topics
from headwater.positions import Position
from headwater.testing.waiting import eventually
from headwater.views import create, declare
from headwater.views.rows import Row
from headwater.views.stores import Store
from headwater.views.tail import ends_of, read_topic

PARTITIONS, KEYS = 2, 200
RECOVERY_DEADLINE_S = 90.0  # for a killed process to serve again on a busy machine
QUEUE_RECORDS = 500  # unacknowledged at once: the writer waits for the log rather than running ahead
LINGER_MS = 2
PAUSE_S, BURST_RECORDS = 0.01, 30  # some 2,000 records a second: enough for a commit to be in hand at any instant


class Process:
    """One `headwater` command that can be killed and started again."""

    def __init__(self, *words: str) -> None:
        self._words = [sys.executable, "-m", "headwater.cli.main", *words]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), f"{self._words} ended before it was ready"

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


class Writer:
    """Writes changes of random rows until it is stopped."""

    def __init__(self, log: Connection, topic: str, seed: int) -> None:
        self._producer = log.producer(linger_ms=LINGER_MS, message_timeout_ms=300_000)
        self._topic, self._chance = topic, random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged = 0
        self._queued = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(RECOVERY_DEADLINE_S) == 0

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(PAUSE_S):
            self._producer.poll(0)
            for _ in range(min(BURST_RECORDS, QUEUE_RECORDS - self._queued + self.acknowledged)):
                number += 1
                self._write(number)

    def _write(self, number: int) -> None:
        key = self._chance.randrange(KEYS)
        gone = self._chance.random() < 0.1
        value = None if gone else json.dumps({"id": key, "n": number, "text": f"row {number}"}).encode()
        self._producer.produce(self._topic, value, b'{"id":%d}' % key, on_delivery=self._delivered)
        self._queued += 1

    def _delivered(self, error: Any, _: Any) -> None:
        assert error is None, error
        self.acknowledged += 1


class Rig:
    """Everything at once; a context manager."""

    def __init__(self, kinds: Sequence[Kind], folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self._stack = ExitStack()
        self._servers = Servers()
        self._folder, port = folder, free_port()
        self.log = Connection(f"127.0.0.1:{port}")
        self.broker = Process("start", "--data", str(folder / "log"), "--listen", f"127.0.0.1:{port}")
        self.file = folder / "views.toml"
        words = ["view", "run", "--file", str(self.file), "--bootstrap", self.log.bootstrap_servers]
        self.follower = Process(*words)
        self.kinds, self.topic = kinds, "changes"
        self.stores: dict[str, Store] = {}
        self._records: dict[int, list[tuple[int, bytes, bytes | None]]] = {p: [] for p in range(PARTITIONS)}
        self._read = Position()

    def __enter__(self) -> Rig:
        self._stack.callback(self._servers.close)
        self.broker.start()
        self._stack.callback(self.broker.kill)
        ensure_topics(self.log, [self.topic], partitions=PARTITIONS)
        for number, kind in enumerate(self.kinds):
            definition = self._servers.definition(
                kind, self._folder, f"v{number}", self.topic, key=["id"], commit_interval_ms=kind.interval_ms
            )
            create(definition)
            declare(definition, self.file)
            self.stores[kind.id] = definition.open_store()
        self.writer = Writer(self.log, self.topic, self.chance.randrange(1 << 30))
        self.writer.start()
        self._stack.callback(self.writer.stop)
        self.follower.start()
        self._stack.callback(self.follower.kill)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def victims(self) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = [("follower", self.follower), ("broker", self.broker)]
        for name in ("postgres", "redis", "opensearch"):
            server = getattr(self._servers, name)
            if server is not None:
                found.append((name, server))
        return found

    def kill_one(self) -> str:
        """Let something be written and applied, kill at that instant, look at every store, start again."""
        wanted = self.writer.acknowledged + self.chance.randrange(50, 1_500)
        eventually(lambda: self.writer.acknowledged >= wanted, deadline_s=RECOVERY_DEADLINE_S, what="acknowledgements")
        name, victim = self.chance.choice(self.victims())
        before = {kind: self.bookmark(kind) for kind in self.stores}
        victim.kill()
        if name == "follower":
            self.check_all()
        victim.start()
        for kind in self.stores:
            eventually(
                lambda kind=kind: self._moved(kind, before[kind]),
                deadline_s=RECOVERY_DEADLINE_S,
                what=f"{kind} goes on after the {name} was killed",
            )
        return name

    def bookmark(self, kind: str) -> Position:
        reader = self.stores[kind].reader()
        try:
            return reader.bookmark().position
        finally:
            reader.close()

    def _moved(self, kind: str, before: Position) -> bool:
        try:
            now = self.bookmark(kind)
        except Exception:  # its server is still starting
            return False
        return now.covers(before) and now != before

    def check_all(self, *, at_rest: bool = False) -> None:
        """A store without transactions may be ahead of its bookmark while batches come: it is looked at at rest."""
        for kind in self.kinds:
            if kind.atomic or at_rest:
                self.check(kind)

    def check(self, kind: Kind) -> None:
        """The store is the fold of the topic at its bookmark."""
        reader = self.stores[kind.id].reader()
        try:
            with reader.snapshot() as found:
                rows = {row["id"]: row for row in found.scan()}
                position = found.bookmark.position
                assert found.count() == len(rows), f"{kind.id} has a key twice"
                assert found.bookmark.refused == 0
        finally:
            reader.close()
        expected = self.fold(position)
        wrong = [key for key in {*rows, *expected} if rows.get(key) != expected.get(key)]
        assert not wrong, (
            f"{kind.id} at {position.as_topics()}: {[(k, rows.get(k), expected.get(k)) for k in wrong[:5]]}"
        )

    def finish(self) -> None:
        """No more writes: every store gets to the end, and there it is the fold of everything."""
        self.writer.stop()
        ends = ends_of(self.log, [self.topic])
        for kind in self.kinds:
            eventually(
                lambda kind=kind: self.bookmark(kind.id).covers(ends),
                deadline_s=RECOVERY_DEADLINE_S,
                what=f"{kind.id} gets to {ends.as_topics()}",
            )
        self.check_all(at_rest=True)

    def fold(self, position: Position) -> dict[int, Row]:
        """The rows that the records before `position` leave."""
        if not self._read.covers(position):
            for message in read_topic(self.log, self.topic, self._read, "fold"):
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                record = (int(message.offset() or 0), key, value if value is None else bytes(value))  # type: ignore[arg-type]
                self._records[int(message.partition() or 0)].append(record)
            self._read = _end(self._records, self.topic)
        rows: dict[int, Row] = {}
        for partition, records in self._records.items():
            end = position.offsets.get((self.topic, partition), 0)
            for offset, key, value in records:
                if offset >= end:
                    break
                name = json.loads(key)["id"]
                if value is None:
                    rows.pop(name, None)
                else:
                    rows[name] = json.loads(value)
        return rows


def _end(records: dict[int, list[tuple[int, bytes, bytes | None]]], topic: str) -> Position:
    return Position({(topic, p): found[-1][0] + 1 for p, found in records.items() if found})
