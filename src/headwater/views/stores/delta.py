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

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from headwater.views.bookmark import Bookmark
from headwater.views.errors import BadView, Fenced, RecordRefused, StoreUnavailable
from headwater.views.rows import Batch, Row, key_text
from headwater.views.stores import Catalog, Wants, check_options
from headwater.views.stores.columns import Columns, Kind, from_stored, to_stored
from headwater.views.stores.delta_commits import CommitMeta, delta_available, meta_of, open_table
from headwater.views.stores.delta_reading import OFFSET, OP, VALID_FROM, DeltaReader, DeltaSnapshot
from headwater.views.stores.folders import CatalogFile
from headwater.views.stores.fresh import FreshKeys

__all__ = ["DeltaSnapshot", "DeltaStore", "open_store"]

BATCH_RECORDS = 200_000  # of one commit, when behind
COMMIT_INTERVAL_MS = 5_000  # a commit is some files; fewer, larger ones read better
COMMIT_ATTEMPTS_MAX = 20  # claims that lose against other commits

GONE = "_gone"  # in a batch on its way: the key is to be deleted
_OWN = (OFFSET, OP, VALID_FROM)

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
        return DeltaReader(lambda: self.catalog().active, self._table, self._view, version, history=self._history)

    def drop(self, version: int) -> None:
        shutil.rmtree(self._table(version), ignore_errors=True)
        if not self.catalog().versions:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._catalog = CatalogFile(self._folder)

    def close(self) -> None:
        """Nothing is kept open."""

    def _table(self, version: int) -> Path:
        return self._folder / f"v{version}"


class DeltaWriter:
    """Collects a batch and commits it onto the version it has read."""

    def __init__(self, path: Path, view: str, epoch: int | None, *, history: bool) -> None:
        self._path, self._view = path, view
        self.wants = Wants(history=history, offsets=True)
        with delta_available():
            self._claim(epoch)
        self._reset()
        self._fresh = FreshKeys(empty=not self._meta.kinds)

    def bookmark(self) -> Bookmark:
        return self._meta.bookmark

    def begin(self) -> None:
        if not self._path.exists():
            raise self._fenced()
        with delta_available():
            self._table.update_incremental()
            self._check(meta_of(self._table))
        self._reset()

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
        self._fit()  # says now which row cannot be stored

    def commit(self, bookmark: Bookmark) -> None:
        with delta_available():
            try:
                self._write(bookmark)
            except CommitFailedError as error:
                self._table.update_incremental()
                self._check(meta_of(self._table))
                raise StoreUnavailable(f"somebody else changed {self._path}: {error}") from error
        for batch in self._upserts:
            self._fresh.add(batch.keys)
        self._reset()

    def abort(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._upserts: list[Batch] = []
        self._deletes: list[Batch] = []
        self._rows: list[Any] = []
        self._columns = Columns(self._meta.kinds or {})

    def close(self) -> None:
        self.abort()

    def _claim(self, epoch: int | None) -> None:
        if epoch is not None and not self._path.exists():
            raise self._fenced()
        for _ in range(COMMIT_ATTEMPTS_MAX):
            self._table = open_table(self._path) or self._create()
            meta = meta_of(self._table)
            if epoch is not None and meta.epoch > epoch:
                raise self._fenced()
            self.epoch = meta.epoch + 1 if epoch is None else epoch
            self._meta = CommitMeta(self.epoch, meta.bookmark, meta.kinds)
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

    def _check(self, found: CommitMeta) -> None:
        if found.epoch != self.epoch:
            raise self._fenced()

    def _fenced(self) -> Fenced:
        return Fenced(f"view {self._view}: a newer follower of {self._path} has taken over, or it was dropped")

    def _write(self, bookmark: Bookmark) -> None:
        columns = self._columns
        had = self._meta.kinds or {}
        if any(had.get(name, kind) != kind for name, kind in columns.kinds.items()):
            self._rewrite(columns)
        meta = CommitMeta(self.epoch, bookmark, columns.kinds)
        source = self._source(columns)
        if source is None or self.wants.history or self._all_new():
            self._append(source, meta)
        else:
            self._merge(source, columns, meta)
        self._meta = meta

    def _all_new(self) -> bool:
        """Whether no key of the batch is in the table: then an append does, and a MERGE need not look for them."""
        return not self._deletes and all(self._fresh.all_new(batch.keys) for batch in self._upserts)

    def _append(self, rows: Any, meta: CommitMeta) -> None:
        given = _own_schema(history=self.wants.history).empty_table() if rows is None else rows.drop_columns([GONE])
        write_deltalake(self._table, given, mode="append", schema_mode="merge", commit_properties=meta.properties())
        self._table.update_incremental()

    def _merge(self, source: Any, columns: Columns, meta: CommitMeta) -> None:
        missing = [name for name in columns.names if name not in (self._meta.kinds or {})]
        if missing:  # new columns first, in a commit that moves nothing
            added = source.slice(0, 0).drop_columns([GONE])
            still = CommitMeta(self.epoch, self._meta.bookmark, columns.kinds)
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
        self._meta = CommitMeta(self.epoch, self._meta.bookmark, {name: columns.kinds[name] for name in old})
        properties = self._meta.properties()
        write_deltalake(self._table, table, mode="overwrite", schema_mode="overwrite", commit_properties=properties)
        self._table.update_incremental()

    def _fit(self) -> None:
        """The columns that hold what is there and what has come, and the rows that have come in them."""
        while True:
            found = [self._columns.parameters(batch.rows) for batch in self._upserts]
            needed = next((needed for _, needed in found if needed), None)
            if needed is None:
                break
            self._columns = Columns({**self._columns.kinds, **needed})
        self._rows = [_arrow(self._columns, parameters) for parameters, _ in found]

    def _key(self) -> tuple[str, ...]:
        batches = [*self._upserts, *self._deletes]
        return self._meta.bookmark.key or (batches[0].columns if batches else ())

    def _source(self, columns: Columns) -> Any:
        """The batch as one Arrow table; None when it changes nothing."""
        parts = []
        for batch in self._deletes if columns.names else []:
            keys = [_key_row(batch.columns, key, columns.kinds) for key in batch.keys]
            parts.append(self._part(_arrow(columns, columns.parameters(keys)[0]), batch, gone=True))
        pairs = zip(self._rows, self._upserts, strict=True)
        parts += [self._part(table, batch, gone=False) for table, batch in pairs]
        return pa.concat_tables(parts) if parts else None

    def _part(self, table: Any, batch: Batch, *, gone: bool) -> Any:
        """A table of rows, or of keys that are gone, with the columns of this module's own."""
        size = len(batch)
        table = table.append_column(OFFSET, pa.array(batch.offsets, pa.int64()))
        if self.wants.history:
            table = table.append_column(OP, pa.array(["d" if gone else "u"] * size, pa.string()))
            times = pa.array(batch.times_ms, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
            table = table.append_column(VALID_FROM, times)
        return table.append_column(GONE, pa.array([gone] * size, pa.bool_()))


def _own_schema(*, history: bool) -> Any:
    fields = [pa.field(OFFSET, pa.int64())]
    if history:
        fields += [pa.field(OP, pa.string()), pa.field(VALID_FROM, pa.timestamp("us", "UTC"))]
    return pa.schema(fields)


def _arrow(columns: Columns, rows: Sequence[tuple[Any, ...]]) -> Any:
    """Rows in the columns' order as an Arrow table; RecordRefused for what Arrow cannot hold."""
    schema = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in columns.kinds.items()])
    try:
        values = zip(*rows, strict=True) if rows else [[] for _ in schema]
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
