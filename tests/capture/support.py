"""Databases to capture, captures of them, and what came into the log."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition

from headwater import capture
from headwater.capture.publisher import read_state
from headwater.client import Connection, partitions_of
from headwater.testing import eventually
from headwater.testing.postgres import PostgresServer

DEADLINE_S = 30.0  # a busy machine; nothing here takes more than a second alone


@dataclass(frozen=True)
class Event:
    """A record of a topic, its JSON decoded."""

    partition: int
    offset: int
    key: Any
    value: Any
    headers: dict[str, bytes]

    @property
    def op(self) -> str:
        """Debezium's code; `tombstone` for a null value."""
        return "tombstone" if self.value is None else str(self.value["op"])

    @property
    def after(self) -> Any:
        return self.value["after"]

    @property
    def before(self) -> Any:
        return self.value["before"]


def events(bootstrap: str, topic: str) -> list[Event]:
    """Everything committed in the topic; by partition, then offset. Empty when there is no such topic."""
    connection = Connection(bootstrap)
    found: list[Event] = []
    partitions = partitions_of(connection, topic)
    if not partitions:
        return found
    consumer = connection.consumer("tests-capture")
    try:
        for partition in partitions:
            found += _read(consumer, topic, partition)
    finally:
        consumer.close()
    return found


def _read(consumer: Consumer, topic: str, partition: int) -> Iterator[Event]:
    where = TopicPartition(topic, partition, 0)
    low, high = consumer.get_watermark_offsets(where, timeout=DEADLINE_S)
    where.offset = low
    consumer.assign([where])
    end = time.monotonic() + DEADLINE_S
    while low < high and consumer.position([where])[0].offset < high:
        for message in consumer.consume(10_000, 0.05):
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            yield Event(
                partition,
                message.offset(),
                _decoded(key),
                _decoded(value),
                dict(message.headers() or []),
            )
        assert time.monotonic() < end, f"{topic} cannot be read to {high}"


def _decoded(text: bytes | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text.decode()


class Database:
    """One database of a PostgreSQL server."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server = server
        self.name = name
        self.dsn = server.dsn.replace("dbname=postgres", f"dbname={name}")

    @classmethod
    @contextmanager
    def create(cls, server: PostgresServer, name: str) -> Iterator[Database]:
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute(f'CREATE DATABASE "{name}"')
        made = cls(server, name)
        made.connection = made.connect()
        try:
            yield made
        finally:
            made.connection.close()
            made._drop()

    def _drop(self) -> None:
        with psycopg.connect(self.server.dsn, autocommit=True) as admin:
            for (gid,) in admin.execute(
                "SELECT gid FROM pg_prepared_xacts WHERE database = %s", [self.name]
            ).fetchall():
                with self.connect() as owner:
                    owner.execute(f"ROLLBACK PREPARED '{gid}'")
            slots = admin.execute(
                "SELECT slot_name FROM pg_replication_slots WHERE database = %s", [self.name]
            ).fetchall()
            for (slot,) in slots:
                eventually(lambda slot=slot: self._drop_slot(admin, slot), deadline_s=DEADLINE_S, what="slot let go")
            admin.execute(f'DROP DATABASE "{self.name}" WITH (FORCE)')

    def drop_slot(self, slot: str) -> None:
        """As soon as its last reader has let go of it."""
        eventually(lambda: self._drop_slot(self.connection, slot), deadline_s=DEADLINE_S, what="slot let go")

    @staticmethod
    def _drop_slot(admin: psycopg.Connection[Any], slot: str) -> bool:
        try:
            admin.execute("SELECT pg_drop_replication_slot(%s)", [slot])
        except psycopg.errors.ObjectInUse:
            return False
        return True

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True)

    def run(self, *statements: str) -> None:
        """Each in a transaction of its own."""
        for statement in statements:
            self.connection.execute(statement)

    def together(self, *statements: str) -> None:
        """All in one transaction."""
        with self.connection.transaction():
            for statement in statements:
                self.connection.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query).fetchall()

    def slot(self, slot: str) -> dict[str, Any]:
        """The replication slot as the server shows it."""
        cursor = self.connection.execute("SELECT * FROM pg_replication_slots WHERE slot_name = %s", [slot])
        found = cursor.fetchone()
        return {} if found is None else dict(zip([c.name for c in cursor.description or []], found, strict=True))

    connection: psycopg.Connection[Any]


class File:
    """An SQLite database, with the same interface as `Database`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = self.connect()
        self.connection.execute("PRAGMA journal_mode = wal")

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None, timeout=30, check_same_thread=False)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement)

    def together(self, *statements: str) -> None:
        self.run("BEGIN", *statements, "COMMIT")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query).fetchall()


class Capturing:
    """Captures of one name over one database: a PostgreSQL by its dsn, or an SQLite file."""

    def __init__(self, source: str | Path, bootstrap: str, name: str) -> None:
        self.source, self.bootstrap, self.name = source, bootstrap, name
        self.schema = "public" if isinstance(source, str) else "main"
        self.running: capture.Postgres | capture.SQLite | None = None

    def __enter__(self) -> Capturing:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *, wait: bool = True, **settings: Any) -> Any:
        given = {"tables": [f"{self.schema}.*"], "partitions": 1, **settings, "bootstrap": self.bootstrap}
        if isinstance(self.source, str):
            self.running = capture.Postgres(self.source, name=self.name, **given)
        else:
            self.running = capture.SQLite(self.source, name=self.name, **given)
        self.running.start()
        if wait:
            self.running.wait_for_snapshot(DEADLINE_S)
        return self.running

    def stop(self) -> None:
        if self.running is not None:
            self.running.stop()
            self.running = None

    def topic(self, table: str) -> str:
        """`table`, `schema.table`, or `.message` and the like for a topic of the capture itself."""
        if table.startswith("."):
            return self.name + table
        return f"{self.name}.{table}" if "." in table else f"{self.name}.{self.schema}.{table}"

    def events(self, table: str) -> list[Event]:
        return events(self.bootstrap, self.topic(table))

    def until(self, table: str, count: int) -> list[Event]:
        """The topic's records once there are `count`; more than that is an error."""
        found: list[Event] = []

        def enough() -> bool:
            if self.running is not None:
                self.running.check()
            found[:] = self.events(table)
            return len(found) >= count

        with contextlib.suppress(AssertionError):
            eventually(enough, deadline_s=DEADLINE_S)
        assert len(found) == count, [(e.op, e.key, e.value and e.value.get("after")) for e in found]
        return found

    def changes(self, table: str, count: int) -> list[Event]:
        """The same, without the rows of the snapshot and without tombstones."""
        found: list[Event] = []

        def enough() -> bool:
            if self.running is not None:
                self.running.check()
            found[:] = [e for e in self.events(table) if e.op not in ("r", "tombstone")]
            return len(found) >= count

        with contextlib.suppress(AssertionError):
            eventually(enough, deadline_s=DEADLINE_S)
        assert len(found) == count, [(e.op, e.key, e.value and e.value.get("after")) for e in found]
        return found

    def state(self) -> dict[str, Any]:
        return read_state(Connection(self.bootstrap), self.name)
