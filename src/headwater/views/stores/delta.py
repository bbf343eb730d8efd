"""Views as tables of a warehouse in Delta Lake: `delta:FOLDER`, read by DuckDB, Spark, or whatever reads Delta.

Version 3 of the view `users` is the Delta table `FOLDER/users/v3`. Options: `mode = "latest"` (the default), where a
batch is one MERGE and the table holds the rows as they are; or `mode = "history"`, where a batch is one append and
the table holds every row there ever was (slowly changing dimension, type 2):

    _offset       the record that said so            _op          "u" the row as it is from then on, "d" it is gone
    _valid_from   that record's time

Each is in force until the key's next one; `history(key)` and the SQL name `<view>_history` say until when
(`_valid_to`), `<view>` is the rows in force now.

A commit carries the bookmark in its metadata and, as Delta's application transaction `headwater`, the number of
records applied. Commits are made only onto the table version that the writer read, so a writer that has been
overtaken by a newer one (or by an OPTIMIZE) fails, looks again, and finds out which it was.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from headwater.views.bookmark import Bookmark
from headwater.views.errors import BadView, Fenced, RecordRefused, StoreUnavailable
from headwater.views.rows import Batch, Row, key_text, normalise_key
from headwater.views.stores import Catalog, Wants, check_options
from headwater.views.stores.columns import Columns, Kind, from_stored, to_stored
from headwater.views.stores.folders import CatalogFile
from headwater.views.stores.fresh import FreshKeys

__all__ = ["DeltaSnapshot", "DeltaStore", "open_store"]

BATCH_RECORDS = 200_000  # of one commit, when behind
COMMIT_INTERVAL_MS = 5_000  # a commit is some files; fewer, larger ones read better
COMMIT_ATTEMPTS_MAX = 20  # claims that lose against other commits
HISTORY_COMMITS = 50  # looked through for the newest bookmark before all of them are

OFFSET, OP, VALID_FROM, GONE = "_offset", "_op", "_valid_from", "_gone"
_OWN = (OFFSET, OP, VALID_FROM)
_META = "headwater"
_TRANSACTION = "headwater"

_TYPES: dict[Kind, Any] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
    "json": pa.string(),
}


def open_store(address: str, view: str, options: dict[str, Any]) -> DeltaStore:
    check_options(view, "delta", options, ("mode",))
    mode, path = options.get("mode", "latest"), address.partition(":")[2]
    if mode not in ("latest", "history"):
        raise BadView(f"view {view}: mode is {mode!r}; a Delta view is 'latest' or 'history'")
    if not path:
        raise BadView(f"view {view}: say where the folder is: delta:FOLDER")
    return DeltaStore(Path(path) / view, view, history=mode == "history")


class DeltaStore:
    """One view's tables."""

    commit_interval_ms = COMMIT_INTERVAL_MS
    batch_records = BATCH_RECORDS

    def __init__(self, folder: Path, view: str, *, history: bool) -> None:
        self._folder, self._view, self._history = folder, view, history
        self._catalog = CatalogFile(folder)

    def catalog(self) -> Catalog:
        return self._catalog.read()

    def change_catalog(self, change: Callable[[Catalog], Catalog]) -> Catalog:
        return self._catalog.change(change)

    def writer(self, version: int, epoch: int | None = None) -> DeltaWriter:
        return DeltaWriter(self._table(version), self._view, epoch, history=self._history)

    def reader(self, version: int | None = None) -> DeltaReader:
        return DeltaReader(self, self._view, version, history=self._history)

    def drop(self, version: int) -> None:
        shutil.rmtree(self._table(version), ignore_errors=True)
        if not self.catalog().versions:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._catalog = CatalogFile(self._folder)

    def close(self) -> None:
        """Nothing is kept open."""

    def _table(self, version: int) -> Path:
        return self._folder / f"v{version}"


@dataclass(frozen=True, slots=True)
class _Meta:
    """What a commit says beside its data."""

    epoch: int = 0
    bookmark: Bookmark = field(default_factory=Bookmark)
    kinds: Mapping[str, Kind] | None = None

    def properties(self) -> CommitProperties:
        text = json.dumps({"epoch": self.epoch, "bookmark": self.bookmark.to_json(), "kinds": dict(self.kinds or {})})
        applied = Transaction(_TRANSACTION, self.bookmark.applied)
        # no retries: a commit that would have to go onto another version must not be made unseen
        return CommitProperties({_META: text}, max_commit_retries=0, app_transactions=[applied])


class DeltaWriter:
    """Collects a batch and commits it onto the version it has read."""

    def __init__(self, path: Path, view: str, epoch: int | None, *, history: bool) -> None:
        self._path, self._view = path, view
        self.wants = Wants(history=history, offsets=True)
        self._upserts: list[Batch] = []
        self._deletes: list[Batch] = []
        with _available():
            self._claim(epoch)
        self._fresh = FreshKeys(empty=not self._meta.kinds)

    def bookmark(self) -> Bookmark:
        return self._meta.bookmark

    def begin(self) -> None:
        with _available():
            self._table.update_incremental()
            self._check(_meta_of(self._table))
        self._upserts, self._deletes = [], []

    def delete(self, batch: Batch) -> None:
        if len(batch):
            self._deletes.append(batch)

    def upsert(self, batch: Batch) -> None:
        if not len(batch):
            return
        for name in _OWN:
            if any(name in row for row in batch.rows):
                raise RecordRefused(f"a row has a column {name}, which this view uses itself")
        self._upserts.append(batch)
        _arrow(self._fitting().parameters, batch.rows)  # says now which row cannot be stored

    def commit(self, bookmark: Bookmark) -> None:
        with _available():
            try:
                self._write(bookmark)
            except CommitFailedError as error:
                self._table.update_incremental()
                self._check(_meta_of(self._table))
                raise StoreUnavailable(f"somebody else changed {self._path}: {error}") from error
        for batch in self._upserts:
            self._fresh.add(batch.keys)
        self._upserts, self._deletes = [], []

    def abort(self) -> None:
        self._upserts, self._deletes = [], []

    def close(self) -> None:
        self.abort()

    def _claim(self, epoch: int | None) -> None:
        for _ in range(COMMIT_ATTEMPTS_MAX):
            self._table = _open(self._path) or self._create()
            meta = _meta_of(self._table)
            if epoch is not None and meta.epoch > epoch:
                raise self._fenced()
            self.epoch = meta.epoch + 1 if epoch is None else epoch
            self._meta = _Meta(self.epoch, meta.bookmark, meta.kinds)
            try:
                self._append(None, self._meta)
                return
            except CommitFailedError:
                continue
        raise StoreUnavailable(f"{self._path} is being changed by others all the time")

    def _create(self) -> DeltaTable:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        schema = deltalake.Schema.from_arrow(_own_schema(history=self.wants.history))
        return DeltaTable.create(self._path, schema=schema, mode="ignore", name=self._view)

    def _check(self, found: _Meta) -> None:
        if found.epoch != self.epoch:
            raise self._fenced()

    def _fenced(self) -> Fenced:
        return Fenced(f"view {self._view}: a newer follower of {self._path} has taken over")

    def _write(self, bookmark: Bookmark) -> None:
        columns = self._fitting()
        had = self._meta.kinds or {}
        if any(had.get(name, kind) != kind for name, kind in columns.kinds.items()):
            self._rewrite(columns)
        meta = _Meta(self.epoch, bookmark, columns.kinds)
        source = self._source(columns)
        if source is None or self.wants.history or self._all_new():
            self._append(source, meta)
        else:
            self._merge(source, columns, meta)
        self._meta = meta

    def _all_new(self) -> bool:
        """Whether no key of the batch is in the table: then an append does, and a MERGE need not look for them."""
        return not self._deletes and all(self._fresh.all_new(batch.keys) for batch in self._upserts)

    def _append(self, rows: Any, meta: _Meta) -> None:
        given = _own_schema(history=self.wants.history).empty_table() if rows is None else rows.drop_columns([GONE])
        write_deltalake(self._table, given, mode="append", schema_mode="merge", commit_properties=meta.properties())
        self._table.update_incremental()

    def _merge(self, source: Any, columns: Columns, meta: _Meta) -> None:
        missing = [name for name in columns.names if name not in (self._meta.kinds or {})]
        if missing:  # new columns first, in a commit that moves nothing
            added = source.slice(0, 0).drop_columns([GONE])
            still = _Meta(self.epoch, self._meta.bookmark, columns.kinds)
            write_deltalake(
                self._table, added, mode="append", schema_mode="merge", commit_properties=still.properties()
            )
            self._table.update_incremental()
        names = [OFFSET, *columns.names]
        values = {f'"{name}"': f's."{name}"' for name in names}
        key = " AND ".join(f't."{name}" = s."{name}"' for name in self._key())
        merger = self._table.merge(
            source, predicate=key, source_alias="s", target_alias="t", commit_properties=meta.properties()
        )
        merger = merger.when_matched_delete(f"s.{GONE}").when_matched_update(values)
        merger.when_not_matched_insert(values, predicate=f"NOT s.{GONE}").execute()

    def _rewrite(self, columns: Columns) -> None:
        """The table with wider columns, in a commit that moves nothing."""
        old = self._meta.kinds or {}
        table = self._table.to_pyarrow_table()
        for name, kind in columns.kinds.items():
            if name in old and old[name] != kind:
                values = [_widened(value, old[name], kind) for value in table[name].to_pylist()]
                place = table.schema.get_field_index(name)
                table = table.set_column(place, name, pa.array(values, _TYPES[kind]))
        self._meta = _Meta(self.epoch, self._meta.bookmark, {name: columns.kinds[name] for name in old})
        properties = self._meta.properties()
        write_deltalake(self._table, table, mode="overwrite", schema_mode="overwrite", commit_properties=properties)
        self._table.update_incremental()

    def _fitting(self) -> Columns:
        """The columns that hold what is there and what has come."""
        columns = Columns(self._meta.kinds or {})
        for batch in self._upserts:
            _, needed = columns.parameters(batch.rows)
            if needed:
                columns = Columns({**columns.kinds, **needed})
        return columns

    def _key(self) -> tuple[str, ...]:
        batches = [*self._upserts, *self._deletes]
        return self._meta.bookmark.key or (batches[0].columns if batches else ())

    def _source(self, columns: Columns) -> Any:
        """The batch as one Arrow table; None when it changes nothing."""
        parts = [self._part(columns, batch, gone=True) for batch in self._deletes if columns.names]
        parts += [self._part(columns, batch, gone=False) for batch in self._upserts]
        return pa.concat_tables(parts) if parts else None

    def _part(self, columns: Columns, batch: Batch, *, gone: bool) -> Any:
        size = len(batch)
        rows = [_key_row(batch.columns, key, columns.kinds) for key in batch.keys] if gone else list(batch.rows)
        table = _arrow_table(columns, rows)
        table = table.append_column(OFFSET, pa.array(batch.offsets, pa.int64()))
        if self.wants.history:
            table = table.append_column(OP, pa.array(["d" if gone else "u"] * size, pa.string()))
            times = pa.array(batch.times_ms, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
            table = table.append_column(VALID_FROM, times)
        return table.append_column(GONE, pa.array([gone] * size, pa.bool_()))


class DeltaReader:
    """Loads the table as it is at each snapshot."""

    poll_s = 0.05

    def __init__(self, store: DeltaStore, view: str, version: int | None, *, history: bool) -> None:
        self._store, self._view, self._version, self._history = store, view, version, history

    def bookmark(self) -> Bookmark:
        return self._found()[2].bookmark

    @contextmanager
    def snapshot(self) -> Iterator[DeltaSnapshot]:
        version, table, meta = self._found()
        found = DeltaSnapshot(table, self._view, version, meta.bookmark, meta.kinds or {}, history=self._history)
        try:
            yield found
        finally:
            found.close()

    def close(self) -> None:
        """Nothing is kept open."""

    def _found(self) -> tuple[int, DeltaTable | None, _Meta]:
        with _available():
            version = self._store.catalog().active if self._version is None else self._version
            table = _open(self._store._table(version)) if version else None
            return version, table, _Meta() if table is None else _meta_of(table)


class DeltaSnapshot:
    """One version of one table, read through DuckDB."""

    def __init__(
        self,
        table: DeltaTable | None,
        view: str,
        version: int,
        bookmark: Bookmark,
        kinds: Mapping[str, Kind],
        *,
        history: bool,
    ) -> None:
        self.bookmark, self.version = bookmark, version
        self._view, self._kinds, self._history = view, kinds, history
        self._table = table if kinds else None
        self._duck: duckdb.DuckDBPyConnection | None = None

    def get(self, key: object) -> Row | None:
        if self._table is None:
            return None
        where, values = self._where(key)
        return next(self._rows(f"SELECT * FROM {_quoted(self._view)} WHERE {where}", values), None)

    def scan(self) -> Iterator[Row]:
        if self._table is not None:
            yield from self._rows(f"SELECT * FROM {_quoted(self._view)}", [])

    def count(self) -> int:
        if self._table is None:
            return 0
        found = self._open().execute(f"SELECT count(*) FROM {_quoted(self._view)}").fetchone()
        return 0 if found is None else int(found[0])

    def history(self, key: object) -> list[Row]:
        """Every row the key has had, oldest first, each with `_op`, `_valid_from` and `_valid_to` (None: still)."""
        if not self._history:
            raise BadView(f'view {self._view} keeps the latest rows only: give it options = {{ mode = "history" }}')
        if self._table is None:
            return []
        where, values = self._where(key)
        text = f"SELECT * FROM {_quoted(self._view + '_history')} WHERE {where} ORDER BY {OFFSET}"
        return list(self._rows(text, values))

    def query(self, text: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """Rows of an SQL query in DuckDB, which reads the view by its name."""
        try:
            return list(self._rows(text, parameters))
        except duckdb.Error as error:
            raise BadView(f"view {self._view}: {error}") from error

    def arrow(self) -> Any:
        """The rows as an Arrow table."""
        return self._open().execute(f"SELECT * FROM {_quoted(self._view)}").to_arrow_table()

    def close(self) -> None:
        if self._duck is not None:
            self._duck.close()

    def _where(self, key: object) -> tuple[str, list[Any]]:
        columns = self.bookmark.key
        found = normalise_key(key, columns)
        parts = found if isinstance(found, tuple) else (found,)
        return " AND ".join(f"{_quoted(name)}::VARCHAR = ?" for name in columns), [key_text(part) for part in parts]

    def _rows(self, text: str, parameters: Any) -> Iterator[Row]:
        cursor = self._open().execute(text, parameters or None)
        names = [column[0] for column in cursor.description or ()]
        kinds = self._kinds
        for values in cursor.fetchall():
            yield {n: from_stored(v, kinds.get(n, "text")) for n, v in zip(names, values, strict=True)}

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self._duck is None:
            self._duck = duckdb.connect()
            # the table is given to it as Arrow: it needs no other files, nor the network
            self._duck.execute("SET enable_external_access = false")
            if self._table is not None:
                self._duck.register("headwater_table", self._table.to_pyarrow_dataset())
                for name, text in self._views():
                    self._duck.execute(f"CREATE TEMP VIEW {_quoted(name)} AS {text}")
        return self._duck

    def _views(self) -> list[tuple[str, str]]:
        columns = ", ".join(map(_quoted, self._kinds))
        if not self._history:
            return [(self._view, f"SELECT {columns} FROM headwater_table")]
        key = ", ".join(map(_quoted, self.bookmark.key))
        every = (
            f"SELECT DISTINCT ON ({key}, {OFFSET}) {columns}, {OFFSET}, {OP}, {VALID_FROM}, "
            f"lead({VALID_FROM}) OVER (PARTITION BY {key} ORDER BY {OFFSET}) AS _valid_to, "
            f"lead({OFFSET}) OVER (PARTITION BY {key} ORDER BY {OFFSET}) AS _next FROM headwater_table"
        )
        history = f"{self._view}_history"
        latest = f"SELECT {columns} FROM {_quoted('headwater_every')} WHERE _next IS NULL AND {OP} = 'u'"
        return [
            ("headwater_every", every),
            (history, "SELECT * EXCLUDE (_next) FROM headwater_every"),
            (self._view, latest),
        ]


def _open(path: Path) -> DeltaTable | None:
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None


def _meta_of(table: DeltaTable) -> _Meta:
    """What the newest commit of ours says."""
    for limit in (HISTORY_COMMITS, None):
        for commit in table.history(limit):
            if _META in commit:
                body = json.loads(commit[_META])
                return _Meta(body["epoch"], Bookmark.from_json(body["bookmark"]), body["kinds"])
    if table.transaction_version(_TRANSACTION) is not None:
        raise StoreUnavailable(
            f"{table.table_uri}: the commit that holds the view's position was removed from Delta's log; rebuild the "
            "view, and keep delta.logRetentionDuration longer than it may stand still"
        )
    return _Meta()


def _own_schema(*, history: bool) -> Any:
    fields = [pa.field(OFFSET, pa.int64())]
    if history:
        fields += [pa.field(OP, pa.string()), pa.field(VALID_FROM, pa.timestamp("us", "UTC"))]
    return pa.schema(fields)


def _arrow_table(columns: Columns, rows: Sequence[Row]) -> Any:
    schema = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in columns.kinds.items()])
    return _arrow(columns.parameters, rows, schema)


def _arrow(parameters: Callable[[Sequence[Row]], Any], rows: Sequence[Row], schema: Any = None) -> Any:
    """Rows as columns; RecordRefused for what Arrow cannot hold."""
    try:
        found, needed = parameters(rows)
        if needed or schema is None:
            return None
        values = zip(*found, strict=True) if found else [[] for _ in schema]
        arrays = [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)]
    except (pa.ArrowException, UnicodeEncodeError, OverflowError) as error:
        raise RecordRefused(f"the row does not fit the table: {error}") from error
    return pa.Table.from_arrays(arrays, schema=schema)


def _key_row(names: Sequence[str], key: Any, kinds: Mapping[str, Kind]) -> Row:
    parts = key if isinstance(key, tuple) else (key,)
    return {name: _as_kind(part, kinds[name]) for name, part in zip(names, parts, strict=True)}


def _as_kind(value: Any, kind: Kind) -> Any:
    """A part of a key as its column holds it, also when it was spelt as text."""
    if isinstance(value, str) and kind in ("int", "float"):
        try:
            return int(value) if kind == "int" else float(value)
        except ValueError:
            return None  # no number: there is no such row
    return key_text(value) if kind == "text" else value


def _widened(value: Any, old: Kind, new: Kind) -> Any:
    return value if new == old else to_stored(from_stored(value, old), new)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _available() -> Iterator[None]:
    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, OSError) as error:
        raise StoreUnavailable(f"Delta: {error}") from error
