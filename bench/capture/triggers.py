"""What SQLite's triggers cost the application that writes: rows/s with them and without."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from pathlib import Path

from bench.report import Bar
from headwater.capture.sqlite_schema import create_log, read_table, watch

__all__ = ["triggers"]

ROWS, ROWS_PER_TRANSACTION = 200_000, 1_000


def triggers() -> None:
    for name, statement in (
        ("inserts", "INSERT INTO t VALUES (?, ?, ?, ?)"),
        ("updates", "UPDATE t SET name = ?2, at = ?3, amount = ?4 WHERE id = ?1"),
    ):
        with tempfile.TemporaryDirectory() as folder:
            without = _write(Path(folder) / "without.db", statement, watched=False)
            watched = _write(Path(folder) / "with.db", statement, watched=True)
        Bar(f"SQLite, 1,000 {name} a transaction: rows/s with triggers, of those without", 0.25, "rows/s").report(
            watched, without
        )


def _write(file: Path, statement: str, *, watched: bool) -> float:
    database = sqlite3.connect(file, isolation_level=None)
    database.execute("PRAGMA journal_mode = wal")
    database.execute("PRAGMA synchronous = normal")
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, at INTEGER, amount REAL)")
    if statement.startswith("UPDATE"):
        _run(database, "INSERT INTO t VALUES (?, ?, ?, ?)")
    if watched:
        database.execute("BEGIN")
        create_log(database)
        watch(database, read_table(database, "t"))
        database.execute("COMMIT")
    started = time.perf_counter()
    _run(database, statement)
    return ROWS / (time.perf_counter() - started)


def _run(database: sqlite3.Connection, statement: str) -> None:
    for first in range(0, ROWS, ROWS_PER_TRANSACTION):
        database.execute("BEGIN")
        database.executemany(
            statement, [(i, f"name {i}", first, i / 7) for i in range(first, first + ROWS_PER_TRANSACTION)]
        )
        database.execute("COMMIT")
