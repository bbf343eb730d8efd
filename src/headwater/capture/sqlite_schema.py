"""What a capture keeps inside an SQLite database: a changelog that triggers fill, and which tables they watch.

    _headwater_log       seq, tbl, op, ts_ms, a0 a1 ... (the row after), b0 b1 ... (the row before)
    _headwater_versions  id (`tbl` of the log), name, columns as JSON
    _headwater_captures  name, confirmed: rows of the log up to the least of these are deleted
    _headwater_identity  one random id: another file in the same place is noticed

SQLite has one writer at a time, so `seq` is the order of commits, and a rolled-back transaction leaves no rows. The
log's columns have no type: each value is kept as the table has it. Every version of a table has its own triggers, which
name its id; so each row is decoded by the version that it was written under.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import BadInput

__all__ = [
    "OWN_PREFIX",
    "SCHEMA",
    "Table",
    "create_log",
    "identity_of",
    "ordered_by",
    "quote",
    "read_table",
    "table_names",
    "trigger_names",
    "triggers_on",
    "watch",
]

OWN_PREFIX = "_headwater_"
SCHEMA = "main"
_NOW_MS = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
_ROWID_NAMES = ("_rowid_", "rowid", "oid")


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    declared: str
    not_null: bool
    default: str | None


@dataclass(frozen=True, slots=True)
class Table:
    """One version of a table; `order` is what chunks of its rows are cut by."""

    name: str
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    order: tuple[str, ...]

    @property
    def full_name(self) -> str:
        return f"{SCHEMA}.{self.name}"

    @property
    def stable_order(self) -> bool:
        """Whether VACUUM leaves the order as it is: row numbers that are no column of the table it may change."""
        return set(self.order) <= set(self.key)

    def describe(self) -> str:
        """Equal texts for equal versions."""
        return json.dumps([[[c.name, c.declared, c.not_null, c.default] for c in self.columns], self.key, self.order])

    @classmethod
    def described(cls, name: str, text: str) -> Table:
        columns, key, order = json.loads(text)
        return cls(name, tuple(TableColumn(*c) for c in columns), tuple(key), tuple(order))


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def ordered_by(table: Table) -> str:
    """The order of its rows, for ORDER BY; a hidden row number must not be quoted."""
    return ", ".join(map(quote, table.order)) if table.stable_order else table.order[0]


def create_log(database: sqlite3.Connection) -> None:
    """Inside a transaction of the caller's."""
    for table, columns in (
        ("log", "seq INTEGER PRIMARY KEY AUTOINCREMENT, tbl INT, op TEXT, ts_ms INT"),
        ("versions", "id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, columns TEXT"),
        ("captures", "name TEXT PRIMARY KEY, confirmed INT"),
        ("identity", "id TEXT"),
    ):
        database.execute(f"CREATE TABLE IF NOT EXISTS {OWN_PREFIX}{table} ({columns})")
    if database.execute(f"SELECT count(*) FROM {OWN_PREFIX}identity").fetchone()[0] == 0:
        database.execute(f"INSERT INTO {OWN_PREFIX}identity VALUES (?)", [uuid.uuid4().hex])


def identity_of(database: sqlite3.Connection) -> str:
    return str(database.execute(f"SELECT id FROM {OWN_PREFIX}identity").fetchone()[0])


def table_names(database: sqlite3.Connection) -> list[str]:
    """The user's tables; virtual ones have no triggers."""
    found = database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name"
    )
    return [name for (name,) in found if not name.startswith((OWN_PREFIX, "sqlite_"))]


def read_table(database: sqlite3.Connection, name: str) -> Table:
    """The table as it is now."""
    columns, key = [], []
    for _, column, declared, not_null, default, place, hidden in database.execute(
        f"PRAGMA table_xinfo({quote(name)})"
    ).fetchall():
        if hidden:  # generated: the database computes it
            continue
        columns.append(TableColumn(column, declared.upper(), bool(not_null or place), default))
        if place:
            key.append((place, column))
    ordered = tuple(column for _, column in sorted(key))
    return Table(
        name,
        tuple(columns),
        tuple(c.name for c in columns if c.name in ordered),
        _order(database, name, {c.name.lower() for c in columns}, ordered),
    )


def _order(database: sqlite3.Connection, name: str, columns: set[str], key: tuple[str, ...]) -> tuple[str, ...]:
    """The row's number: its only key column if that is it, else a hidden one, unless the table is WITHOUT ROWID."""
    for _, table, _, _, without_rowid, *_ in database.execute(f"PRAGMA table_list({quote(name)})").fetchall():
        if table == name and without_rowid:
            return key
    declared = {c[1]: c[2].upper() for c in database.execute(f"PRAGMA table_info({quote(name)})").fetchall()}
    if len(key) == 1 and declared[key[0]] == "INTEGER":
        return key
    free = [word for word in _ROWID_NAMES if word not in columns]
    if not free:
        raise BadInput(f"table {name} has columns called {', '.join(_ROWID_NAMES)}: its rows have no other number")
    return (free[0],)


def watch(database: sqlite3.Connection, table: Table) -> int:
    """Give the table triggers for this version of it, inside a transaction of the caller's; the version's id."""
    _widen(database, len(table.columns))
    cursor = database.execute(
        f"INSERT INTO {OWN_PREFIX}versions (name, columns) VALUES (?, ?)", [table.name, table.describe()]
    )
    version = int(cursor.lastrowid or 0)
    for name in triggers_on(database, table.name):
        database.execute(f"DROP TRIGGER {quote(name)}")
    for statement in _triggers(table, version):
        database.execute(statement)
    return version


def _widen(database: sqlite3.Connection, columns: int) -> None:
    """The log has as many columns as the widest table."""
    present = len(database.execute(f"PRAGMA table_info({OWN_PREFIX}log)").fetchall())
    for i in range((present - 4) // 2, columns):
        database.execute(f"ALTER TABLE {OWN_PREFIX}log ADD a{i}")
        database.execute(f"ALTER TABLE {OWN_PREFIX}log ADD b{i}")


def triggers_on(database: sqlite3.Connection, table: str) -> set[str]:
    """Ours on this table, also those that came along when it was renamed."""
    found = database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", [table])
    return {name for (name,) in found if name.startswith(OWN_PREFIX)}


def trigger_names(table: str) -> Sequence[str]:
    return [f"{OWN_PREFIX}{kind}_{table}" for kind in ("insert", "update", "delete")]


def _triggers(table: Table, version: int) -> list[str]:
    names = [column.name for column in table.columns]
    after = [f"a{i}" for i in range(len(names))]
    before = [f"b{i}" for i in range(len(names))]
    new = [f"NEW.{quote(name)}" for name in names]
    old = [f"OLD.{quote(name)}" for name in names]
    shapes = (
        ("INSERT", "c", after, new),
        ("UPDATE", "u", [*after, *before], [*new, *old]),
        ("DELETE", "d", before, old),
    )
    return [
        f"CREATE TRIGGER {quote(trigger)} AFTER {event} ON {quote(table.name)} BEGIN "
        f"INSERT INTO {OWN_PREFIX}log (tbl, op, ts_ms, {', '.join(columns)}) "
        f"VALUES ({version}, '{op}', {_NOW_MS}, {', '.join(values)}); END"
        for trigger, (event, op, columns, values) in zip(trigger_names(table.name), shapes, strict=True)
    ]
