"""A database under a random workload, its capture and its log, each of them killed at any instant.

What is checked afterwards does not trust the capture: every transaction that PostgreSQL says has committed is in the
topics with all its events, once, in the order of their commits; those that rolled back are not; and the tables that the
topics tell are the tables.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from tests.capture.support import events

from headwater import capture
from headwater.capture import CaptureError
from headwater.capture.publisher import read_state
from headwater.client import Connection
from headwater.testing.postgres import PostgresServer

TABLES = ("accounts", "items")
BIG_ROWS = 1_500  # several times logical_decoding_work_mem: streamed while it runs
READY_S = 60.0
PROGRESS_S = 8.0  # for a restarted capture to write something; then it is killed all the same


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Program:
    """A process of ours that is killed and started again."""

    def __init__(self, log: Path, *words: str) -> None:
        self._words, self._log = words, log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headwater.cli.main", *self._words], stdout=log, stderr=log
            )

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def check(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, f"it has ended by itself:\n{self._log.read_text()[-3000:]}"


class Workload(threading.Thread):
    """Random transactions until stopped; remembers which committed."""

    def __init__(self, dsn: str, seed: int) -> None:
        super().__init__(name=f"workload-{seed}", daemon=True)
        self._dsn, self._chance, self._seed = dsn, random.Random(seed), seed
        self._stopping = threading.Event()
        self.committed: set[int] = set()
        self.unknown: set[int] = set()  # the connection broke while they were committing
        self.failure: BaseException | None = None

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True, connect_timeout=5) as connection:
                    connection.execute("SET lock_timeout = '2s'")
                    while not self._stopping.is_set():
                        self._transaction(connection)
            except psycopg.OperationalError:
                time.sleep(0.05)
            except BaseException as error:
                self.failure = error
                return

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def _transaction(self, connection: psycopg.Connection[Any]) -> None:
        chance = self._chance
        kind = chance.choices(
            ("small", "big", "savepoints", "rollback", "prepared", "truncate", "ddl"), (60, 4, 12, 6, 8, 1, 3)
        )[0]
        xid = None
        try:
            connection.execute("BEGIN")
            row = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
            assert row is not None
            (xid,) = row
            getattr(self, f"_{kind}")(connection)
            if kind == "rollback":
                connection.execute("ROLLBACK")
                return
            self.unknown.add(xid)
            if kind == "prepared":
                self._two_phases(connection)
            else:
                connection.execute("COMMIT")
        except (psycopg.errors.UniqueViolation, psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            connection.execute("ROLLBACK")
            self.unknown.discard(xid or 0)
            return
        except psycopg.OperationalError:
            raise
        if kind != "prepared":
            self.unknown.discard(xid)
            self.committed.add(xid)

    def _small(self, connection: psycopg.Connection[Any]) -> None:
        for _ in range(self._chance.randint(1, 5)):
            self._change(connection)

    _rollback = _prepared = _small

    def _two_phases(self, connection: psycopg.Connection[Any]) -> None:
        gid = f"{self._seed}-{time.monotonic_ns()}"
        connection.execute(f"PREPARE TRANSACTION '{gid}'")
        time.sleep(self._chance.random() * 0.02)
        connection.execute(f"{self._chance.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))} PREPARED '{gid}'")

    def _big(self, connection: psycopg.Connection[Any]) -> None:
        first = self._chance.randrange(10**6, 10**9)
        query = "INSERT INTO accounts SELECT i, 0, repeat('x', 50) FROM generate_series(%s, %s) i"
        connection.execute(query, [first, first + BIG_ROWS])
        connection.execute("SAVEPOINT a")
        connection.execute("UPDATE accounts SET v = v + 1 WHERE id BETWEEN %s AND %s", [first, first + 300])
        if self._chance.random() < 0.5:
            connection.execute("ROLLBACK TO a")
        connection.execute("DELETE FROM accounts WHERE id BETWEEN %s AND %s", [first + 20, first + BIG_ROWS])

    def _savepoints(self, connection: psycopg.Connection[Any]) -> None:
        for level in range(self._chance.randint(1, 4)):
            self._change(connection)
            connection.execute(f"SAVEPOINT s{level}")
            self._change(connection)
            if self._chance.random() < 0.5:
                connection.execute(f"ROLLBACK TO s{level}")

    def _truncate(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"TRUNCATE {self._chance.choice((*TABLES, 'accounts, items'))}")

    def _ddl(self, connection: psycopg.Connection[Any]) -> None:
        """Every column has a new name: one that is dropped and made again has other values, which no event says."""
        connection.execute("LOCK TABLE items IN ACCESS EXCLUSIVE MODE")
        extra = connection.execute(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = 'items'::regclass AND attname LIKE 'extra%'"
            " AND NOT attisdropped"
        ).fetchall()
        for (name,) in extra:
            connection.execute(f"ALTER TABLE items DROP COLUMN {name}")
        if self._chance.random() < 0.7:
            kind = self._chance.choice(("int DEFAULT 7", "text", "numeric(8,2) DEFAULT 1.5"))
            connection.execute(f"ALTER TABLE items ADD extra_{time.monotonic_ns()} {kind}")
        self._change(connection)

    def _change(self, connection: psycopg.Connection[Any]) -> None:
        chance, table = self._chance, self._chance.choice(TABLES)
        key = chance.randrange(2_000)
        kind = chance.randrange(10)
        if kind < 5:
            connection.execute(
                f"INSERT INTO {table} (id, v) VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = {table}.v + 1",
                [key, chance.randrange(100)],
            )
        elif kind < 7:
            connection.execute(f"UPDATE {table} SET v = v + 1 WHERE id = %s", [key])
        elif kind < 8:
            connection.execute(f"UPDATE {table} SET id = %s WHERE id = %s", [chance.randrange(10**9, 2 * 10**9), key])
        else:
            connection.execute(f"DELETE FROM {table} WHERE id = %s", [key])


class Scene:
    """Everything that runs, in one folder."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.seed = seed
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-crashes-"))
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.postgres = PostgresServer(settings={"logical_decoding_work_mem": "64kB"})
        self.broker = Program(
            self.folder / "broker.log", "start", "--data", str(self.folder / "log"), "--listen", self.bootstrap
        )
        self.capture: Program
        self.workloads: list[Workload] = []

    @property
    def settings(self) -> dict[str, Any]:
        return {"tables": ["public.*"], "transaction_topic": True, "chunk_rows": 300, "partitions": 2}

    def start(self) -> None:
        self.postgres.start()
        with psycopg.connect(self.postgres.dsn, autocommit=True) as database:
            database.execute("CREATE TABLE accounts (id int PRIMARY KEY, v int, text text)")
            database.execute("CREATE TABLE items (id bigint PRIMARY KEY, v int)")
            database.execute("INSERT INTO accounts SELECT i, 0, 'old' FROM generate_series(1, 4000) i")
        self.capture = Program(
            self.folder / "capture.log",
            *("capture", "postgres", "--dsn", self.postgres.dsn, "--bootstrap", self.bootstrap, "--name", "crashes"),
            *("--tables", "public.*", "--transaction-topic", "--chunk-rows", "300", "--partitions", "2"),
        )
        self.broker.start()
        self.capture.start()
        self.workloads = [Workload(self.postgres.dsn, self.seed * 10 + i) for i in range(2)]
        for workload in self.workloads:
            workload.start()

    def kill_something(self) -> str:
        """Wait a moment, kill one of the three, start it again; mostly when the capture has got somewhere since."""
        if self.chance.random() < 0.7:
            self._wait_for_progress()
        time.sleep(self.chance.uniform(0.0, 1.0))
        victim = self.chance.choice(("capture", "capture", "broker", "postgres"))
        if victim != "capture":
            self.capture.check()
        part: Any = getattr(self, victim)
        part.kill()
        part.start()
        return victim

    def _wait_for_progress(self) -> None:
        before, end = self._position(), time.monotonic() + PROGRESS_S
        while time.monotonic() < end and self._position() == before:
            time.sleep(0.1)

    def _position(self) -> object:
        try:
            return read_state(Connection(self.bootstrap), "crashes").get("position")
        except CaptureError:  # the broker has just been killed
            return None

    def finish(self) -> None:
        """End the workload; what was prepared and left is decided."""
        for workload in self.workloads:
            workload.stop()
        with psycopg.connect(self.postgres.dsn, autocommit=True) as database:
            for (gid,) in database.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
                database.execute(f"COMMIT PREPARED '{gid}'")

    def check(self) -> dict[str, int]:
        """Raise what is wrong; some figures."""
        self.capture.check()
        follower = capture.Postgres(self.postgres.dsn, bootstrap=self.bootstrap, name="crashes", **self.settings)
        follower.verify(timeout_s=READY_S)  # once to wait for the first snapshot's end, whose rows come after this one
        verdicts = follower.verify(timeout_s=READY_S)
        assert all(verdict.same for verdict in verdicts), verdicts
        assert all(verdict.changing == 0 for verdict in verdicts), verdicts
        found = {table: events(self.bootstrap, f"crashes.public.{table}") for table in TABLES}
        self._check_tables(found)
        expected = self._committed()
        seen = _check_order(found)
        self._check_transactions(expected, seen)
        return {"transactions": len(expected), "events": sum(map(len, found.values()))}

    def _check_tables(self, found: dict[str, list[Any]]) -> None:
        """The same again without any of the capture's code."""
        with psycopg.connect(self.postgres.dsn, autocommit=True) as database:
            for table, changes in found.items():
                rows: dict[tuple[int, int], int] = {}
                for event in changes:
                    where = event.partition
                    if event.value is None or event.op == "d":
                        rows.pop((where, event.key["id"]), None)
                    elif event.op == "t":
                        rows = {key: v for key, v in rows.items() if key[0] != where}
                    else:
                        rows[where, event.key["id"]] = event.after["v"]
                expected = dict(database.execute(f"SELECT id, v FROM {table}").fetchall())
                assert {key: v for (_, key), v in rows.items()} == expected, f"{table} differs"

    def _committed(self) -> set[int]:
        expected = set.union(*(workload.committed for workload in self.workloads))
        unknown = set.union(*(workload.unknown for workload in self.workloads))
        with psycopg.connect(self.postgres.dsn, autocommit=True) as database:
            for xid in unknown - expected:
                row = database.execute("SELECT pg_xact_status(%s::text::xid8)", [xid]).fetchone()
                if row is not None and row[0] == "committed":
                    expected.add(xid)
        return expected

    def _check_transactions(self, expected: set[int], seen: dict[str, dict[int, int]]) -> None:
        """BEGIN and END once each, END's count is what came, and nobody else's transaction."""
        marks = events(self.bootstrap, "crashes.transaction")
        ids = [mark.value["id"] for mark in marks]
        begun = [mark.value["id"] for mark in marks if mark.value["status"] == "BEGIN"]
        ended = {mark.value["id"]: mark.value["event_count"] for mark in marks if mark.value["status"] == "END"}
        assert len(ids) == 2 * len(begun) == 2 * len(set(begun)) == 2 * len(ended)
        assert set(seen) == set(begun)
        for identity, count in ended.items():
            assert sorted(seen[identity]) == [*range(1, count + 1)], f"{identity} has a gap"
            assert all(copies == 1 for copies in seen[identity].values()), f"{identity} is doubled"
        captured = {int(identity.split(":")[0]) for identity in begun}
        assert captured <= expected, f"not committed, and captured: {captured - expected}"

    def stop(self) -> None:
        for part in (self.capture, self.broker):
            part.kill()
        self.postgres.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            shutil.rmtree(self.postgres._folder, ignore_errors=True)

    def __enter__(self) -> Scene:
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for workload in self.workloads:
            workload._stopping.set()
        if kind is not None:
            for name in ("broker", "capture"):
                print(f"--- {name}\n{(self.folder / f'{name}.log').read_text()[-3000:]}", file=sys.stderr)
        self.stop()


def _check_order(found: dict[str, list[Any]]) -> dict[str, dict[int, int]]:
    """In every partition by commit, then by order in the transaction; how often each place was filled.

    A truncate is in every partition: counted once. A key that changed is one event in the database and two here.
    """
    seen: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    truncates = set()
    for table, changes in found.items():
        last: dict[int, tuple[int, int]] = {}
        for event in changes:
            if event.value is None or event.op == "r":
                continue
            transaction = event.value["transaction"]
            place = int(transaction["id"].split(":")[1]), transaction["total_order"]
            assert place > last.get(event.partition, (0, 0)), f"{table}: {place} after {last[event.partition]}"
            last[event.partition] = place
            if event.op == "t":
                if (table, place) in truncates:
                    continue
                truncates.add((table, place))
            seen[transaction["id"]][transaction["total_order"]] += 1
    return seen


def kill_repeatedly(seed: int, kills: int) -> Iterator[str]:
    """Run a scene, kill `kills` times, check; yields what happens."""
    with Scene(seed) as scene:
        for _ in range(kills):
            yield scene.kill_something()
        scene.finish()
        yield str(scene.check())
