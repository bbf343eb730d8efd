"""Views as tables of an SQLite file: `sqlite:PATH`.

Version 3 of the view `users` is the table `users__v3`; `users` itself is an SQL view of the active version, so every
SQLite client reads the view by its name. Rows and bookmark are one transaction. Beside them, for all views of the file:

    headwater_views(view, catalog)
    headwater_bookmarks(view, version, epoch, bookmark)
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.views.bookmark import Bookmark
from headwater.views.errors import BadView, Fenced, RecordRefused, StoreUnavailable
from headwater.views.pace import BATCH_RECORDS
from headwater.views.rows import Batch, Key, Row, normalise_key
from headwater.views.stores import Catalog, Wants, check_options
from headwater.views.stores.columns import Columns, Kind, from_stored, to_stored

__all__ = ["SqliteSnapshot", "SqliteStore", "open_store"]

BUSY_TIMEOUT_S = 30.0  # to wait for another writer of the same file
CACHE_KIB = 64 << 10  # of pages, for a writer; SQLite's 2 MB would read a large table again and again
WAL_PAGES = 4_000  # between checkpoints

_DECLARED: dict[Kind, str] = {
    "bool": "BOOLEAN",
    "int": "INTEGER",
    "float": "REAL",
    "text": "TEXT",
    "json": "JSON_TEXT",  # "TEXT" in the name makes SQLite keep it as text
}
_KIND_OF = {declared: kind for kind, declared in _DECLARED.items()}

_TABLES = """
CREATE TABLE IF NOT EXISTS headwater_views (view TEXT PRIMARY KEY, catalog TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS headwater_bookmarks (
  view TEXT, version INTEGER, epoch INTEGER NOT NULL, bookmark TEXT NOT NULL, PRIMARY KEY (view, version)
);
"""
_BOOKMARK = """
SELECT b.version, b.bookmark FROM headwater_views v
JOIN headwater_bookmarks b ON b.view = v.view AND b.version = coalesce(?, json_extract(v.catalog, '$.active'))
WHERE v.view = ?
"""


def open_store(address: str, view: str, options: dict[str, Any]) -> SqliteStore:
    check_options(view, "sqlite", options, ())
    path = address.partition(":")[2]
    if not path:
        raise BadView(f"view {view}: say where the file is: sqlite:PATH")
    return SqliteStore(Path(path), view)


class SqliteStore:
    """One view in one file; the file may hold other views and other tables."""

    commit_interval_ms = 0
    batch_records = BATCH_RECORDS

    def __init__(self, path: Path, view: str) -> None:
        self._path, self._view = path, view
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._session() as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(_TABLES)

    def catalog(self) -> Catalog:
        with self._session() as db:
            return _catalog(db, self._view)

    def change_catalog(self, change: Callable[[Catalog], Catalog]) -> Catalog:
        with self._session() as db, _transaction(db):
            old = _catalog(db, self._view)
            new = change(old)
            db.execute("INSERT OR REPLACE INTO headwater_views VALUES (?, ?)", (self._view, new.to_json()))
            if new.active != old.active:
                _show(db, self._view, new.active)
        return new

    def writer(self, version: int, epoch: int | None = None) -> SqliteWriter:
        return SqliteWriter(connect(self._path), self._view, version, epoch)

    def reader(self, version: int | None = None) -> SqliteReader:
        return SqliteReader(self._path, self._view, version)

    def drop(self, version: int) -> None:
        with self._session() as db, _transaction(db):
            db.execute(f"DROP TABLE IF EXISTS {_table(self._view, version)}")
            db.execute("DELETE FROM headwater_bookmarks WHERE view = ? AND version = ?", (self._view, version))
            if not _catalog(db, self._view).versions:
                db.execute(f"DROP VIEW IF EXISTS {_quoted(self._view)}")
                db.execute("DELETE FROM headwater_views WHERE view = ?", (self._view,))

    def close(self) -> None:
        """Nothing is kept open."""

    @contextmanager
    def _session(self) -> Iterator[sqlite3.Connection]:
        with _available(), contextlib.closing(connect(self._path)) as db:
            yield db


class SqliteWriter:
    """Changes one version's table."""

    wants = Wants()

    def __init__(self, db: sqlite3.Connection, view: str, version: int, epoch: int | None) -> None:
        self._db, self._view, self._version = db, view, version
        self._table = _table(view, version)
        self._key: tuple[str, ...] = ()
        with _available():
            db.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
            db.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
            self._read_columns()
            self.epoch = self._claim(epoch)

    def bookmark(self) -> Bookmark:
        with _available():
            return Bookmark.from_json(self._stored()[1])

    def begin(self) -> None:
        with _available():
            self._db.execute("BEGIN IMMEDIATE")
            if self._stored()[0] != self.epoch:
                self._db.execute("ROLLBACK")
                raise Fenced(
                    f"view {self._view}: a newer follower of version {self._version} has taken over, or it was dropped"
                )

    def delete(self, batch: Batch) -> None:
        if not len(batch) or not self._columns.names:
            return
        where = " AND ".join(f"{_quoted(name)} = ?" for name in self._key)
        with _available():
            kinds = [self._columns.kinds[name] for name in self._key]
            keys = [_key_parameters(key, kinds) for key in batch.keys]
            self._db.executemany(f"DELETE FROM {self._table} WHERE {where}", keys)

    def upsert(self, batch: Batch) -> None:
        if not len(batch):
            return
        parameters, needed = self._columns.parameters(batch.rows)
        with _available():
            if needed:
                self._key = self._key or batch.columns
                self._migrate(needed)
                parameters, _ = self._columns.parameters(batch.rows)
            self._db.executemany(self._insert, parameters)

    def commit(self, bookmark: Bookmark) -> None:
        with _available():
            self._db.execute(
                "UPDATE headwater_bookmarks SET bookmark = ? WHERE view = ? AND version = ?",
                (bookmark.to_json(), self._view, self._version),
            )
            self._db.execute("COMMIT")

    def abort(self) -> None:
        with _available():
            self._db.execute("ROLLBACK")
            self._read_columns()

    def close(self) -> None:
        self._db.close()

    def _claim(self, epoch: int | None) -> int:
        with _transaction(self._db):
            stored = self._stored()[0]
            if epoch is not None and stored > epoch:
                raise Fenced(
                    f"view {self._view}: a newer follower of version {self._version} has taken over, or it was dropped"
                )
            claimed = stored + 1 if epoch is None else epoch
            self._db.execute(
                "INSERT INTO headwater_bookmarks VALUES (?, ?, ?, '') ON CONFLICT DO UPDATE SET epoch = excluded.epoch",
                (self._view, self._version, claimed),
            )
        return claimed

    def _stored(self) -> tuple[int, str]:
        found = self._db.execute(
            "SELECT epoch, bookmark FROM headwater_bookmarks WHERE view = ? AND version = ?",
            (self._view, self._version),
        ).fetchone()
        return (0, "") if found is None else (int(found[0]), found[1])

    def _read_columns(self) -> None:
        kinds, key = read_columns(self._db, self._table)
        self._use(Columns(kinds))
        self._key = key

    def _use(self, columns: Columns) -> None:
        self._columns = columns
        names = ", ".join(map(_quoted, columns.names))
        marks = ", ".join("?" * len(columns.names))
        self._insert = f"INSERT OR REPLACE INTO {self._table} ({names}) VALUES ({marks})"

    def _migrate(self, needed: Mapping[str, Kind]) -> None:
        """Add columns in place; a column that needs another type means writing the table anew."""
        old = self._columns
        new = Columns({**old.kinds, **needed})
        if not old.names:
            self._create(self._table, new)
            if _catalog(self._db, self._view).active == self._version:
                _show(self._db, self._view, self._version)
        elif any(name in old.kinds for name in needed):
            self._rewrite(old, new)
        else:
            for name, kind in needed.items():
                self._db.execute(f"ALTER TABLE {self._table} ADD COLUMN {_quoted(name)} {_DECLARED[kind]}")
        self._use(new)

    def _create(self, table: str, columns: Columns) -> None:
        missing = [name for name in self._key if name not in columns.kinds]
        if missing or not self._key:
            raise RecordRefused(f"rows have no column {missing}, which is the view's key")
        declared = ", ".join(f"{_quoted(name)} {_DECLARED[kind]}" for name, kind in columns.kinds.items())
        key = ", ".join(map(_quoted, self._key))
        self._db.execute(f"CREATE TABLE {table} ({declared}, PRIMARY KEY ({key}))")

    def _rewrite(self, old: Columns, new: Columns) -> None:
        beside = _table(self._view, self._version, "_new")
        self._create(beside, new)
        names = ", ".join(map(_quoted, old.names))
        values = ", ".join(_converted(name, kind, new.kinds[name]) for name, kind in old.kinds.items())
        self._db.execute(f"INSERT INTO {beside} ({names}) SELECT {values} FROM {self._table}")
        self._db.execute(f"DROP VIEW IF EXISTS {_quoted(self._view)}")  # a rename would change what it shows
        self._db.execute(f"DROP TABLE {self._table}")
        self._db.execute(f"ALTER TABLE {beside} RENAME TO {self._table}")
        active = _catalog(self._db, self._view).active
        if active:
            _show(self._db, self._view, active)


class SqliteReader:
    """A connection for each thread that reads."""

    poll_s = 0.002

    def __init__(self, path: Path, view: str, version: int | None) -> None:
        self._path, self._view, self._version = path, view, version
        self._own = threading.local()
        self._all: list[sqlite3.Connection] = []

    def bookmark(self) -> Bookmark:
        with _available():
            return self._found(self._connection())[1]

    @contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        db = self._connection()
        with _available():
            db.execute("BEGIN")
        try:
            with _available():
                version, bookmark = self._found(db)
                kinds, _ = read_columns(db, _table(self._view, version))
            yield SqliteSnapshot(db, self._view, version, bookmark, kinds)
        finally:
            db.execute("ROLLBACK")

    def close(self) -> None:
        for db in self._all:
            db.close()
        self._all.clear()

    def _found(self, db: sqlite3.Connection) -> tuple[int, Bookmark]:
        found = db.execute(_BOOKMARK, (self._version, self._view)).fetchone()
        return (self._version or 0, Bookmark()) if found is None else (found[0], Bookmark.from_json(found[1]))

    def _connection(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._own, "db", None)
        if db is None:
            db = self._own.db = connect(self._path)
            if self._version is not None:  # the view's name means this version for this reader's queries
                table = _table(self._view, self._version)
                db.execute(f"CREATE TEMP VIEW {_quoted(self._view)} AS SELECT * FROM main.{table}")
            db.execute("PRAGMA query_only=ON")
            self._all.append(db)
        return db


class SqliteSnapshot:
    """One version inside a read transaction."""

    def __init__(
        self, db: sqlite3.Connection, view: str, version: int, bookmark: Bookmark, kinds: Mapping[str, Kind]
    ) -> None:
        self.bookmark, self.version = bookmark, version
        self._db, self._view, self._kinds = db, view, kinds
        self._table = _table(view, version)

    def get(self, key: object) -> Row | None:
        if not self._kinds:
            return None
        columns = self.bookmark.key
        where = " AND ".join(f"{_quoted(name)} = ?" for name in columns)
        kinds = [self._kinds[name] for name in columns]
        values = _key_parameters(normalise_key(key, columns), kinds)
        with _available():
            found = self._db.execute(f"SELECT {self._names()} FROM {self._table} WHERE {where}", values).fetchone()
        return None if found is None else self._row(found)

    def scan(self) -> Iterator[Row]:
        if self._kinds:
            with _available():
                yield from map(self._row, self._db.execute(f"SELECT {self._names()} FROM {self._table}"))

    def count(self) -> int:
        if not self._kinds:
            return 0
        with _available():
            return int(self._db.execute(f"SELECT count(*) FROM {self._table}").fetchone()[0])

    def query(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """Rows of an SQL query, which reads the view by its name."""
        try:
            cursor = self._db.execute(sql, parameters)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor]
        except sqlite3.Error as error:
            raise BadView(f"view {self._view}: {error} in {sql[:200]!r}") from error

    def _names(self) -> str:
        return ", ".join(map(_quoted, self._kinds))

    def _row(self, values: Sequence[Any]) -> Row:
        return {name: from_stored(value, kind) for (name, kind), value in zip(self._kinds.items(), values, strict=True)}


def connect(path: Path) -> sqlite3.Connection:
    # readers are closed by whoever closes the view, which may be another thread
    db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    db.execute("PRAGMA synchronous=NORMAL")  # in WAL mode: a power cut takes the newest commits whole, or not at all
    return db


def read_columns(db: sqlite3.Connection, table: str) -> tuple[dict[str, Kind], tuple[str, ...]]:
    """The columns of a table and those of its key, in the key's order."""
    found = db.execute(f"PRAGMA table_info({table})").fetchall()
    kinds = {name: _KIND_OF.get(declared, "text") for _, name, declared, _, _, _ in found}
    return kinds, tuple(name for _, name in sorted((place, name) for _, name, _, _, _, place in found if place))


def _catalog(db: sqlite3.Connection, view: str) -> Catalog:
    found = db.execute("SELECT catalog FROM headwater_views WHERE view = ?", (view,)).fetchone()
    return Catalog.from_json(None if found is None else found[0])


def _show(db: sqlite3.Connection, view: str, version: int) -> None:
    """Make the view's name mean this version, if it has a table yet."""
    db.execute(f"DROP VIEW IF EXISTS {_quoted(view)}")
    if version and read_columns(db, _table(view, version))[0]:
        db.execute(f"CREATE VIEW {_quoted(view)} AS SELECT * FROM {_table(view, version)}")


def _converted(name: str, old: Kind, new: Kind) -> str:
    column = _quoted(name)
    if old == "bool" and new in ("text", "json"):
        return f"CASE WHEN {column} THEN 'true' WHEN NOT {column} THEN 'false' END"
    if new == "json":
        return f"CASE WHEN {column} IS NOT NULL THEN {column if old == 'json' else f'json_quote({column})'} END"
    return f"CAST({column} AS TEXT)" if new == "text" else column


def _key_parameters(key: Key, kinds: Sequence[Kind]) -> tuple[Any, ...]:
    parts = key if isinstance(key, tuple) else (key,)
    return tuple(_as_kind(part, kind) for part, kind in zip(parts, kinds, strict=True))


def _as_kind(value: Any, kind: Kind) -> Any:
    """A key as its column holds it, also when it was spelt as text."""
    if isinstance(value, str) and kind in ("int", "float"):
        try:
            return int(value) if kind == "int" else float(value)
        except ValueError:
            return value
    return value if kind in ("bool", "int", "float") else to_stored(value, kind)


def _table(view: str, version: int, suffix: str = "") -> str:
    return _quoted(f"{view}__v{version}{suffix}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


@contextmanager
def _available() -> Iterator[None]:
    """The store's errors as ours: what a row is to blame for, and what the machine is."""
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.IntegrityError, UnicodeEncodeError) as error:
        raise RecordRefused(f"SQLite refused the row: {error}") from error
    except sqlite3.Error as error:
        raise StoreUnavailable(f"SQLite: {error}") from error
