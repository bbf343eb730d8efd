"""Views as a cache in this machine's memory and on its disk: `lmdb:FOLDER`.

One LMDB environment for all views of the folder; many processes read while one writes. Version 3 of the view `users`
is the named database `users/3`: the key's text → the row's JSON, as it came where the mapping left it alone. The
database `headwater` holds, by view, `users/catalog`, `users/3/epoch` and `users/3/bookmark`. Rows and bookmark are one
transaction, on disk when `commit` returns.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import msgspec

from headwater.views.bookmark import Bookmark
from headwater.views.errors import BadView, Fenced, RecordRefused, StoreUnavailable
from headwater.views.pace import BATCH_RECORDS
from headwater.views.rows import Batch, Row, key_text, normalise_key
from headwater.views.stores import Catalog, Wants, check_options

__all__ = ["LmdbSnapshot", "LmdbStore", "open_store"]

MAP_BYTES_MAX = 1 << 38  # of a folder's data: address space only, the file grows as it is filled
DATABASES_MAX = 256  # versions of views, in one folder
READERS_MAX = 512  # snapshots open at once, in all processes
KEY_BYTES_MAX = 511  # LMDB's own limit

_META = b"headwater"
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode

# An environment may be open only once in a process
_open: dict[str, lmdb.Environment] = {}
_opening = threading.Lock()


def open_store(address: str, view: str, options: dict[str, Any]) -> LmdbStore:
    check_options(view, "lmdb", options, ())
    path = address.partition(":")[2]
    if not path:
        raise BadView(f"view {view}: say where the folder is: lmdb:FOLDER")
    return LmdbStore(Path(path), view)


class LmdbStore:
    """One view in one folder, which may hold others. The environment stays open as long as the process."""

    commit_interval_ms = 0
    batch_records = BATCH_RECORDS

    def __init__(self, folder: Path, view: str) -> None:
        self._env, self._view = _environment(folder), view
        with _available(), self._env.begin(write=True) as txn:
            self._meta = self._env.open_db(_META, txn=txn)

    def catalog(self) -> Catalog:
        with _available(), self._env.begin() as txn:
            return self._catalog(txn)

    def change_catalog(self, change: Callable[[Catalog], Catalog]) -> Catalog:
        with _available(), self._env.begin(write=True) as txn:
            new = change(self._catalog(txn))
            txn.put(f"{self._view}/catalog".encode(), new.to_json().encode(), db=self._meta)
            return new

    def _catalog(self, txn: Any) -> Catalog:
        return Catalog.from_json(txn.get(f"{self._view}/catalog".encode(), db=self._meta))

    def writer(self, version: int, epoch: int | None = None) -> LmdbWriter:
        return LmdbWriter(self._env, self._meta, self._view, version, epoch)

    def reader(self, version: int | None = None) -> LmdbReader:
        return LmdbReader(self._env, self._meta, self._view, version)

    def drop(self, version: int) -> None:
        with _available(), self._env.begin(write=True) as txn:
            # emptied, not deleted: another thread may hold the handle
            txn.drop(self._env.open_db(_rows_name(self._view, version), txn=txn), delete=False)
            for what in ("epoch", "bookmark"):
                txn.delete(f"{self._view}/{version}/{what}".encode(), db=self._meta)
            if not self._catalog(txn).versions:
                txn.delete(f"{self._view}/catalog".encode(), db=self._meta)

    def close(self) -> None:
        """Other stores of this process may use the environment: it stays open."""


class LmdbWriter:
    """Changes one version's database."""

    wants = Wants(texts=True)

    def __init__(self, env: Any, meta: Any, view: str, version: int, epoch: int | None) -> None:
        self._env, self._meta, self._view, self._version = env, meta, view, version
        self._bookmark, self._epoch = (f"{view}/{version}/{what}".encode() for what in ("bookmark", "epoch"))
        self._txn: Any = None
        with _available(), env.begin(write=True) as txn:
            self._rows = env.open_db(_rows_name(view, version), txn=txn)
            stored = int(txn.get(self._epoch, b"0", db=meta))
            if epoch is not None and stored > epoch:
                raise self._fenced()
            self.epoch = stored + 1 if epoch is None else epoch
            txn.put(self._epoch, b"%d" % self.epoch, db=meta)

    def bookmark(self) -> Bookmark:
        with _available(), self._env.begin() as txn:
            return Bookmark.from_json(txn.get(self._bookmark, db=self._meta))

    def begin(self) -> None:
        with _available():
            txn = self._env.begin(write=True)
            if int(txn.get(self._epoch, b"0", db=self._meta)) != self.epoch:
                txn.abort()
                raise self._fenced()
            self._txn = txn

    def delete(self, batch: Batch) -> None:
        with _available():
            for key in _keys(batch):
                self._txn.delete(key, db=self._rows)

    def upsert(self, batch: Batch) -> None:
        if not len(batch):
            return
        values = list(map(_encode, batch.rows)) if batch.raws is None else batch.raws
        items = list(zip(_keys(batch), values, strict=True))
        with _available():
            self._txn.cursor(db=self._rows).putmulti(items)

    def commit(self, bookmark: Bookmark) -> None:
        with _available():
            self._txn.put(self._bookmark, bookmark.to_json().encode(), db=self._meta)
            self._txn.commit()
        self._txn = None

    def abort(self) -> None:
        if self._txn is not None:
            self._txn.abort()
            self._txn = None

    def close(self) -> None:
        self.abort()

    def _fenced(self) -> Fenced:
        return Fenced(
            f"view {self._view}: a newer follower of version {self._version} has taken over, or it was dropped"
        )


class LmdbReader:
    """Snapshots never block the writer, nor it them."""

    poll_s = 0.001

    def __init__(self, env: Any, meta: Any, view: str, version: int | None) -> None:
        self._env, self._meta, self._view, self._version = env, meta, view, version

    def bookmark(self) -> Bookmark:
        with _available(), self._env.begin() as txn:
            return self._found(txn)[1]

    @contextmanager
    def snapshot(self) -> Iterator[LmdbSnapshot]:
        with _available():
            txn = self._env.begin()
        try:
            with _available():
                version, bookmark = self._found(txn)
                rows = self._rows(txn, version)
            yield LmdbSnapshot(txn, rows, version, bookmark)
        finally:
            txn.abort()

    def close(self) -> None:
        """Nothing is kept open."""

    def _found(self, txn: Any) -> tuple[int, Bookmark]:
        version = self._version
        if version is None:
            version = Catalog.from_json(txn.get(f"{self._view}/catalog".encode(), db=self._meta)).active
        return version, Bookmark.from_json(txn.get(f"{self._view}/{version}/bookmark".encode(), db=self._meta))

    def _rows(self, txn: Any, version: int) -> Any:
        try:
            return self._env.open_db(_rows_name(self._view, version), txn=txn, create=False)
        except (lmdb.NotFoundError, lmdb.ReadonlyError):
            return None


class LmdbSnapshot:
    """One version inside a read transaction."""

    def __init__(self, txn: Any, rows: Any, version: int, bookmark: Bookmark) -> None:
        self.bookmark, self.version = bookmark, version
        self._txn, self._rows = txn, rows

    def get(self, key: object) -> Row | None:
        name = key_text(normalise_key(key, self.bookmark.key)).encode()
        if self._rows is None or not 0 < len(name) <= KEY_BYTES_MAX:
            return None
        with _available():
            found = self._txn.get(name, db=self._rows)
        return None if found is None else _decode(found)

    def scan(self) -> Iterator[Row]:
        if self._rows is not None:
            with _available(), self._txn.cursor(db=self._rows) as cursor:
                yield from map(_decode, cursor.iternext(keys=False))

    def count(self) -> int:
        return 0 if self._rows is None else int(self._txn.stat(self._rows)["entries"])


def _environment(folder: Path) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    place = os.path.realpath(folder)
    with _opening, _available():
        if place not in _open:
            _open[place] = lmdb.open(place, map_size=MAP_BYTES_MAX, max_dbs=DATABASES_MAX, max_readers=READERS_MAX)
            _open[place].reader_check()  # free the places of readers that were killed
        return _open[place]


def _rows_name(view: str, version: int) -> bytes:
    return f"{view}/{version}".encode()


def _keys(batch: Batch) -> list[bytes]:
    texts = batch.keys if set(map(type, batch.keys)) <= {str} else list(map(key_text, batch.keys))
    keys = [text.encode() for text in texts]
    if keys and (len(max(keys, key=len)) > KEY_BYTES_MAX or not min(map(len, keys))):
        raise RecordRefused(f"LMDB keeps keys of 1 to {KEY_BYTES_MAX} bytes")
    return keys


@contextmanager
def _available() -> Iterator[None]:
    try:
        yield
    except lmdb.Error as error:
        raise StoreUnavailable(f"LMDB: {error}") from error
