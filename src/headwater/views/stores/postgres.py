"""Views as tables of a PostgreSQL database: `postgresql://USER@HOST/DATABASE`.

Version 3 of the view `users` is the table `users__v3`; `users` itself is an SQL view of the active version. Rows,
columns that the rows brought, and bookmark are one transaction. A batch goes by COPY into a table of the session and
from there, in one statement, into its place. Beside them, for all views of the database:

    headwater_views(view, catalog)
    headwater_bookmarks(view, version, epoch, bookmark)
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from headwater.views.bookmark import Bookmark
from headwater.views.errors import BadView, Fenced, RecordRefused, StoreUnavailable
from headwater.views.pace import BATCH_RECORDS
from headwater.views.rows import Batch, Row, key_text, normalise_key
from headwater.views.stores import Catalog, Wants, check_options
from headwater.views.stores.columns import Columns, Kind
from headwater.views.stores.copying import copy_text
from headwater.views.stores.fresh import FreshKeys

__all__ = ["PostgresSnapshot", "PostgresStore", "open_store"]

CONNECT_TIMEOUT_S = 10
COPY_CHUNK_ROWS = 5_000  # turned into text at once
CATALOG_LOCK = 0x4857_5649  # advisory lock under which the tables of this module are made

_TYPES: dict[Kind, str] = {
    "bool": "boolean",
    "int": "bigint",
    "float": "double precision",
    "text": "text",
    "json": "jsonb",
}
_KIND_OF: dict[str, Kind] = {name: kind for kind, name in _TYPES.items()}

_TABLES = """
CREATE TABLE IF NOT EXISTS headwater_views (view text PRIMARY KEY, catalog text NOT NULL);
CREATE TABLE IF NOT EXISTS headwater_bookmarks (
  view text, version int, epoch bigint NOT NULL, bookmark text NOT NULL, PRIMARY KEY (view, version)
);
"""
_BOOKMARK = """
SELECT b.version, b.bookmark FROM headwater_views v
JOIN headwater_bookmarks b ON b.view = v.view AND b.version = coalesce(%s, (v.catalog::json->>'active')::int)
WHERE v.view = %s
"""
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, NULL), array_position(i.indkey::int2[], a.attnum)
FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

Connection = psycopg.Connection[tuple[Any, ...]]


def open_store(address: str, view: str, options: dict[str, Any]) -> PostgresStore:
    check_options(view, "postgresql", options, ())
    return PostgresStore(address, view)


class PostgresStore:
    """One view in one database, which may hold others and tables of its own."""

    commit_interval_ms = 0
    batch_records = BATCH_RECORDS

    def __init__(self, dsn: str, view: str) -> None:
        self._dsn, self._view = dsn, view
        with self._session() as db, db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (CATALOG_LOCK,))
            db.execute(_TABLES)

    def catalog(self) -> Catalog:
        with self._session() as db:
            return _catalog(db, self._view)

    def change_catalog(self, change: Callable[[Catalog], Catalog]) -> Catalog:
        with self._session() as db, db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (CATALOG_LOCK,))
            old = _catalog(db, self._view)
            new = change(old)
            db.execute(
                "INSERT INTO headwater_views VALUES (%s, %s) "
                "ON CONFLICT (view) DO UPDATE SET catalog = excluded.catalog",
                (self._view, new.to_json()),
            )
            if new.active != old.active:
                _show(db, self._view, new.active)
        return new

    def writer(self, version: int, epoch: int | None = None) -> PostgresWriter:
        with _available():
            return PostgresWriter(_connect(self._dsn), self._view, version, epoch)

    def reader(self, version: int | None = None) -> PostgresReader:
        return PostgresReader(self._dsn, self._view, version)

    def drop(self, version: int) -> None:
        with self._session() as db, db.transaction():
            db.execute("DELETE FROM headwater_bookmarks WHERE view = %s AND version = %s", (self._view, version))
            if not _catalog(db, self._view).versions:
                db.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(sql.Identifier(self._view)))
                db.execute("DELETE FROM headwater_views WHERE view = %s", (self._view,))
            db.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(_table(self._view, version)))

    def close(self) -> None:
        """Nothing is kept open."""

    @contextmanager
    def _session(self) -> Iterator[Connection]:
        with _available(), _connect(self._dsn) as db:
            yield db


class PostgresWriter:
    """Changes one version's table."""

    wants = Wants()

    def __init__(self, db: Connection, view: str, version: int, epoch: int | None) -> None:
        self._db, self._view, self._version = db, view, version
        self._table = _table(view, version)
        self._key: tuple[str, ...] = ()
        self._use(Columns({}))
        with _available():
            self._read_columns()
            self.epoch = self._claim(epoch)
            self._fresh = FreshKeys(empty=not self._columns.names)

    def _claim(self, epoch: int | None) -> int:
        with self._db.transaction():
            stored = self._stored(lock=True)[0]
            if epoch is not None and stored > epoch:
                raise self._fenced()
            claimed = stored + 1 if epoch is None else epoch
            self._db.execute(
                "INSERT INTO headwater_bookmarks VALUES (%s, %s, %s, '') "
                "ON CONFLICT (view, version) DO UPDATE SET epoch = excluded.epoch",
                (self._view, self._version, claimed),
            )
        return claimed

    def bookmark(self) -> Bookmark:
        with _available():
            return Bookmark.from_json(self._stored()[1])

    def begin(self) -> None:
        with _available():
            self._db.execute("BEGIN")
            # the row's lock makes a newer follower's claim wait for this commit, or this commit see the claim
            if self._stored(lock=True)[0] != self.epoch:
                self._db.execute("ROLLBACK")
                raise self._fenced()

    def delete(self, batch: Batch) -> None:
        if not len(batch) or not self._columns.names:
            return
        keys = [key if isinstance(key, tuple) else (key,) for key in batch.keys]
        names = [sql.Identifier(name) for name in self._key]
        arrays = sql.SQL(", ").join(
            sql.SQL("%s::text[]::{}[]").format(sql.SQL(_TYPES[self._columns.kinds[name]])) for name in self._key
        )
        query = sql.SQL("DELETE FROM {} WHERE ({}) IN (SELECT * FROM unnest({}))").format(
            self._table, sql.SQL(", ").join(names), arrays
        )
        with _available():
            self._db.execute(query, [[key_text(part) for part in column] for column in zip(*keys, strict=True)])

    def upsert(self, batch: Batch) -> None:
        if not len(batch):
            return
        parameters, needed = self._columns.parameters(batch.rows)
        with _available():
            if needed:
                self._key = self._key or batch.columns
                self._migrate(needed)
                parameters, _ = self._columns.parameters(batch.rows)
            if self._fresh.all_new(batch.keys):
                self._send(self._copy_directly, parameters)
            else:
                self._db.execute(self._make)
                self._send(self._copy, parameters)
                self._db.execute(self._merge)
            self._fresh.add(batch.keys)

    def _send(self, statement: sql.Composed, parameters: Sequence[tuple[Any, ...]]) -> None:
        with self._db.cursor().copy(statement) as copy:
            for start in range(0, len(parameters), COPY_CHUNK_ROWS):
                copy.write(copy_text(parameters[start : start + COPY_CHUNK_ROWS]))

    def commit(self, bookmark: Bookmark) -> None:
        with _available():
            self._db.execute(
                "UPDATE headwater_bookmarks SET bookmark = %s WHERE view = %s AND version = %s",
                (bookmark.to_json(), self._view, self._version),
            )
            self._db.execute("COMMIT")

    def abort(self) -> None:
        with _available():
            self._db.execute("ROLLBACK")
            self._read_columns()

    def close(self) -> None:
        self._db.close()

    def _fenced(self) -> Fenced:
        return Fenced(
            f"view {self._view}: a newer follower of version {self._version} has taken over, or it was dropped"
        )

    def _stored(self, *, lock: bool = False) -> tuple[int, str]:
        found = self._db.execute(
            "SELECT epoch, bookmark FROM headwater_bookmarks WHERE view = %s AND version = %s"
            + (" FOR UPDATE" if lock else ""),
            (self._view, self._version),
        ).fetchone()
        return (0, "") if found is None else (int(found[0]), found[1])

    def _read_columns(self) -> None:
        kinds, key = _columns(self._db, self._view, self._version)
        self._key = key
        self._use(Columns(kinds))

    def _use(self, columns: Columns) -> None:
        self._columns = columns
        shape = zlib.crc32(repr(columns.kinds).encode())
        staging = sql.Identifier("pg_temp", f"headwater_staging_{shape:x}")
        names = sql.SQL(", ").join(map(sql.Identifier, columns.names))
        key = sql.SQL(", ").join(map(sql.Identifier, self._key))
        others = [name for name in columns.names if name not in self._key]
        setting = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others)
        action = sql.SQL("DO UPDATE SET {}").format(setting) if others else sql.SQL("DO NOTHING")
        parts = [sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(_TYPES[kind])) for n, kind in columns.kinds.items()]
        self._make = sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} ({}) ON COMMIT DELETE ROWS").format(
            staging, sql.SQL(", ").join(parts)
        )
        self._copy_directly = sql.SQL("COPY {} ({}) FROM STDIN").format(self._table, names)
        self._copy = sql.SQL("COPY {} ({}) FROM STDIN").format(staging, names)
        self._merge = sql.SQL("INSERT INTO {0} ({1}) SELECT {1} FROM {2} ON CONFLICT ({3}) {4}").format(
            self._table, names, staging, key, action
        )

    def _migrate(self, needed: Mapping[str, Kind]) -> None:
        """Add columns; widen others in place (PostgreSQL writes the table anew for that)."""
        old = self._columns
        if not old.names:
            self._create(needed)
        else:
            self._db.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(sql.Identifier(self._view)))
            for name, kind in needed.items():
                self._db.execute(self._alteration(name, old.kinds.get(name), kind))
        active = _catalog(self._db, self._view).active
        if active and (old.names or active == self._version):
            _show(self._db, self._view, active)
        self._use(Columns({**old.kinds, **needed}))

    def _create(self, columns: Mapping[str, Kind]) -> None:
        missing = [name for name in self._key if name not in columns]
        if missing or not self._key:
            raise RecordRefused(f"rows have no column {missing}, which is the view's key")
        parts = [sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(_TYPES[kind])) for n, kind in columns.items()]
        parts.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, self._key))))
        self._db.execute(sql.SQL("CREATE TABLE {} ({})").format(self._table, sql.SQL(", ").join(parts)))

    def _alteration(self, name: str, old: Kind | None, new: Kind) -> sql.Composed:
        column, kind = sql.Identifier(name), sql.SQL(_TYPES[new])
        if old is None:
            return sql.SQL("ALTER TABLE {} ADD COLUMN {} {}").format(self._table, column, kind)
        value = {
            "json": sql.SQL("to_jsonb({})"),
            "int": sql.SQL("{}::int::bigint"),
            "float": sql.SQL("{}::int::double precision") if old == "bool" else sql.SQL("{}::double precision"),
        }.get(new, sql.SQL("{}::text"))
        return sql.SQL("ALTER TABLE {} ALTER COLUMN {} TYPE {} USING {}").format(
            self._table, column, kind, value.format(column)
        )


class PostgresReader:
    """A connection for each thread that reads."""

    poll_s = 0.005

    def __init__(self, dsn: str, view: str, version: int | None) -> None:
        self._dsn, self._view, self._version = dsn, view, version
        self._own = threading.local()
        self._all: list[Connection] = []

    def bookmark(self) -> Bookmark:
        with _available():
            return self._found(self._connection())[1]

    @contextmanager
    def snapshot(self) -> Iterator[PostgresSnapshot]:
        with _available():
            db = self._connection()
            db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            with _available():
                version, bookmark = self._found(db)
                kinds, _ = _columns(db, self._view, version)
            yield PostgresSnapshot(db, self._view, version, bookmark, kinds)
        finally:
            if not db.closed:
                with _available():
                    db.execute("ROLLBACK")

    def close(self) -> None:
        for db in self._all:
            db.close()
        self._all.clear()

    def _found(self, db: Connection) -> tuple[int, Bookmark]:
        found = db.execute(_BOOKMARK, (self._version, self._view)).fetchone()
        return (self._version or 0, Bookmark()) if found is None else (found[0], Bookmark.from_json(found[1]))

    def _connection(self) -> Connection:
        db: Connection | None = getattr(self._own, "db", None)
        if db is None or db.closed:
            db = self._own.db = _connect(self._dsn)
            self._all = [each for each in self._all if not each.closed] + [db]
        return db


class PostgresSnapshot:
    """One version inside a repeatable-read transaction."""

    def __init__(self, db: Connection, view: str, version: int, bookmark: Bookmark, kinds: Mapping[str, Kind]) -> None:
        self.bookmark, self.version = bookmark, version
        self._db, self._view, self._kinds = db, view, kinds
        self._table = _table(view, version)

    def get(self, key: object) -> Row | None:
        if not self._kinds:
            return None
        columns = self.bookmark.key
        found = normalise_key(key, columns)
        parts = found if isinstance(found, tuple) else (found,)
        where = sql.SQL(" AND ").join(
            sql.SQL("{} = %s::text::{}").format(sql.Identifier(n), sql.SQL(_TYPES[self._kinds[n]])) for n in columns
        )
        query = sql.SQL("SELECT * FROM {} WHERE {}").format(self._table, where)
        rows = self._rows(query, [key_text(part) for part in parts])
        return next(rows, None)

    def scan(self) -> Iterator[Row]:
        if self._kinds:
            yield from self._rows(sql.SQL("SELECT * FROM {}").format(self._table), ())

    def count(self) -> int:
        if not self._kinds:
            return 0
        with _available():
            found = self._db.execute(sql.SQL("SELECT count(*) FROM {}").format(self._table)).fetchone()
        return 0 if found is None else int(found[0])

    def query(self, text: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """Rows of an SQL query, which reads the view by its name (its active version)."""
        try:
            # prepared: one statement only, so that nothing can follow the end of this read-only transaction
            return list(self._rows(text, parameters, prepare=True))
        except RecordRefused as error:
            raise BadView(f"view {self._view}: {error}") from error

    def _rows(self, query: Any, parameters: Any, *, prepare: bool | None = None) -> Iterator[Row]:
        with _available():
            cursor = self._db.execute(query, parameters or None, prepare=prepare)
            names = [column.name for column in cursor.description or ()]
            for row in cursor:
                yield dict(zip(names, row, strict=True))


def _connect(dsn: str) -> Connection:
    return psycopg.connect(
        dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, options="-c client_min_messages=warning"
    )


def _catalog(db: Connection, view: str) -> Catalog:
    found = db.execute("SELECT catalog FROM headwater_views WHERE view = %s", (view,)).fetchone()
    return Catalog.from_json(None if found is None else found[0])


def _columns(db: Connection, view: str, version: int) -> tuple[dict[str, Kind], tuple[str, ...]]:
    """The columns of a version's table and those of its key, in the key's order."""
    table = _table(view, version).as_string(None)
    found = db.execute(_COLUMNS, (table,)).fetchall()
    key = sorted((place, name) for name, _, place in found if place is not None)
    return {name: _KIND_OF.get(kind, "text") for name, kind, _ in found}, tuple(name for _, name in key)


def _show(db: Connection, view: str, version: int) -> None:
    """Make the view's name mean this version, if it has a table yet."""
    db.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(sql.Identifier(view)))
    if version and _columns(db, view, version)[0]:
        db.execute(sql.SQL("CREATE VIEW {} AS SELECT * FROM {}").format(sql.Identifier(view), _table(view, version)))


def _table(view: str, version: int) -> sql.Identifier:
    return sql.Identifier(f"{view}__v{version}")


@contextmanager
def _available() -> Iterator[None]:
    """PostgreSQL's errors as ours: what a row is to blame for, and what the server is."""
    try:
        yield
    except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError, UnicodeEncodeError) as error:
        raise RecordRefused(f"PostgreSQL refused it: {str(error).splitlines()[0]}") from error
    except psycopg.Error as error:
        raise StoreUnavailable(f"PostgreSQL: {str(error).strip() or type(error).__name__}") from error
