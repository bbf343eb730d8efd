"""The local keyed store of one partition: an LMDB environment that every worker of the host may open.

The store is a cache of the history beside the checkpoint: losing it loses nothing. It holds exactly one version, known
by (number, digest); data and version change in one transaction. LMDB does the locking: one writer at a time in all
processes, readers keep the version they opened.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lmdb

from headwater.pipeline.stateful.base import Change, Changes, Found, Ranges
from headwater.pipeline.stateful.changelog import ROOT
from headwater.pipeline.stateful.errors import StateFull
from headwater.pipeline.stateful.schema import TableHistory

__all__ = ["Mark", "Reading", "Store", "discard_store", "invert", "open_store"]

STORE_BYTES_MAX = 64 << 30  # address space of one partition's store; the file is sparse and takes what is used
TABLES_MAX = 32  # tables of an operator, the time's own among them
OPEN_STORES_MAX = 64  # stores that one worker process keeps open; the one used longest ago is closed
READERS_MAX = 512  # processes and threads that read one store at once

_MARKS, _META = "#", b"mark"  # the database and the key of the store's own version
_log = logging.getLogger("headwater.pipeline")


@dataclass(frozen=True, slots=True)
class Mark:
    """Which version a store holds, and what has gathered since the last snapshot."""

    version: int = 0
    digest: str = ROOT
    tables: tuple[TableHistory, ...] = ()
    versions_since: int = 0  # changelogs written since the last snapshot
    bytes_since: int = 0  # and their bytes
    write_ms: float = 0.0  # how long it took to write the changelog that led here

    def to_bytes(self, boot: str) -> bytes:
        tables = [table.to_json() for table in self.tables]
        since = [self.versions_since, self.bytes_since, round(self.write_ms, 2)]
        return json.dumps([boot, self.version, self.digest, tables, *since], separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> tuple[str, Mark]:
        boot, version, digest, tables, *since = json.loads(raw)
        histories = tuple(TableHistory.from_json(table) for table in tables)
        return boot, cls(version, digest, histories, *since)


class Reading:
    """One version of the store, unchanged for as long as it is open."""

    def __init__(self, transaction: Any, databases: Mapping[str, Any]) -> None:
        self._transaction, self._databases = transaction, dict(databases)
        self.boot, self.mark = _mark(transaction, self._databases.get(_MARKS))

    def get(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        database = self._databases.get(table)
        if database is None:
            return [None] * len(keys)
        get = self._transaction.get
        return [get(key, None, database) for key in keys]

    def scan(self, table: str, low: bytes, high: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        database = self._databases.get(table)
        if database is None:
            return iter(())
        cursor = self._transaction.cursor(database)
        return _backward(cursor, low, high) if reverse else _forward(cursor, low, high)

    def scan_each(self, table: str, ranges: Ranges, reverse: bool, limit: int | None) -> Found:
        """As `scan` for each range, with one cursor: cheapest when the ranges are in order."""
        database = self._databases.get(table)
        if database is None:
            return [], [0 for _ in ranges]
        cursor = self._transaction.cursor(database)
        return _backward_each(cursor, ranges, limit) if reverse else _forward_each(cursor, ranges, limit)

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Table -> (rows, bytes); costs nothing that grows with the state."""
        return {
            name: _size(self._transaction.stat(database))
            for name, database in self._databases.items()
            if name != _MARKS
        }


def _size(stat: Mapping[str, int]) -> tuple[int, int]:
    pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
    return stat["entries"], pages * stat["psize"]


def _mark(transaction: Any, database: Any) -> tuple[str, Mark]:
    """The boot id and version that a transaction sees; version 0 in a store that was never written."""
    raw = None if database is None else transaction.get(_META, None, database)
    return ("", Mark()) if raw is None else Mark.from_bytes(bytes(raw))


def _forward(cursor: Any, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not (cursor.set_range(low) if low else cursor.first()):
        return
    for pair in cursor.iternext():
        if high and pair[0] >= high:
            return
        yield pair


def _backward(cursor: Any, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
    below_end = cursor.prev() if high and cursor.set_range(high) else cursor.last()
    if not below_end:
        return
    for pair in cursor.iterprev():
        if pair[0] < low:
            return
        yield pair


def _forward_each(cursor: Any, ranges: Ranges, limit: int | None) -> Found:
    pairs: list[tuple[bytes, bytes]] = []
    counts = []
    for low, high in ranges:
        before = len(pairs)
        found = cursor.set_range(low) if low else cursor.first()
        while found and len(pairs) - before != limit:
            pair = cursor.item()
            if high and pair[0] >= high:
                break
            pairs.append(pair)
            found = cursor.next()
        counts.append(len(pairs) - before)
    return pairs, counts


def _backward_each(cursor: Any, ranges: Ranges, limit: int | None) -> Found:
    pairs: list[tuple[bytes, bytes]] = []
    counts = []
    for low, high in ranges:
        before = len(pairs)
        found = cursor.prev() if high and cursor.set_range(high) else cursor.last()
        while found and len(pairs) - before != limit:
            pair = cursor.item()
            if pair[0] < low:
                break
            pairs.append(pair)
            found = cursor.prev()
        counts.append(len(pairs) - before)
    return pairs, counts


class Store:
    """See the module. Made by `open_store`, which keeps one per path and process."""

    def __init__(self, path: Path, bytes_max: int = STORE_BYTES_MAX) -> None:
        self.path = path
        self._bytes_max = bytes_max
        self._boot = _boot_id()
        self._databases: dict[str, Any] = {}
        self._environment = self._open()
        self._file = _identity(path)

    def is_in_place(self) -> bool:
        """Whether its path still leads to it: another process may have thrown it away."""
        return self._file == _identity(self.path)

    def _open(self) -> Any:
        self.path.mkdir(parents=True, exist_ok=True)
        return lmdb.open(
            str(self.path),
            map_size=self._bytes_max,
            max_dbs=TABLES_MAX + 1,
            max_readers=READERS_MAX,
            writemap=True,
            sync=not self._boot,  # a lost store is rebuilt; without a boot id a machine's crash would go unnoticed
            metasync=False,
            readahead=False,
        )

    def close(self) -> None:
        self._environment.close()

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """The newest version. Handles are opened in front of the transaction: LMDB forgets those of a reading one."""
        self._environment.reader_check()
        while True:
            with self._environment.begin() as transaction:
                unknown = [name for name in _names(transaction) if name not in self._databases]
                if not unknown:
                    yield Reading(transaction, self._databases)
                    return
            for name in unknown:
                self._databases[name] = self._environment.open_db(name.encode())

    def is_from_before_the_start(self) -> bool:
        """Whether the machine was started since: what was written last may not have reached the disk then."""
        with self.reading() as reading:
            return reading.mark.version > 0 and reading.boot != self._boot

    def commit(self, expected: Sequence[Mark], changes: Sequence[Changes], mark: Mark) -> bool:
        """Apply the changes and become `mark`, if the store is at one of the `expected` versions: all or nothing."""
        with self._writing() as transaction:
            at = self._mark_in(transaction)
            if (at.version, at.digest) not in {(one.version, one.digest) for one in expected}:
                return False
            for one in changes:
                self._apply(transaction, one)
            self._put_mark(transaction, mark)
        return True

    def rebuild(self, tables: Iterable[tuple[str, Sequence[Change]]], mark: Mark) -> None:
        """Replace everything by what the iterable gives (in key order by table), in one transaction."""
        with self._writing() as transaction:
            for name in _names(transaction):
                transaction.drop(self._database(name, transaction), delete=False)
            for table, entries in tables:
                database = self._database(table, transaction)
                transaction.cursor(database).putmulti([(key, after) for key, _, after in entries])
            self._put_mark(transaction, mark)

    def note_snapshot(self, version: int) -> None:
        """Start counting anew what has gathered since the snapshot of `version`."""
        with self._writing() as transaction:
            at = self._mark_in(transaction)
            self._put_mark(transaction, replace(at, versions_since=max(at.version - version, 0), bytes_since=0))

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        try:
            with self._environment.begin(write=True) as transaction:
                yield transaction
        except BaseException as error:
            self._databases.clear()  # handles opened in a transaction that was given up are not valid
            if not isinstance(error, lmdb.MapFullError):
                raise
            raise StateFull(
                f"the state in {self.path} reached its bound of {self._bytes_max} bytes: more partitions, "
                "or a larger `state_bytes_max`"
            ) from error

    def _apply(self, transaction: Any, changes: Changes) -> None:
        for table, entries in changes.items():
            database = self._database(table, transaction)
            transaction.cursor(database).putmulti([(key, after) for key, _, after in entries if after is not None])
            for key, _, after in entries:
                if after is None:
                    transaction.delete(key, db=database)

    def _put_mark(self, transaction: Any, mark: Mark) -> None:
        transaction.put(_META, mark.to_bytes(self._boot), db=self._database(_MARKS, transaction))

    def _database(self, table: str, transaction: Any) -> Any:
        if table not in self._databases:
            self._databases[table] = self._environment.open_db(table.encode(), transaction)
        return self._databases[table]

    def _mark_in(self, transaction: Any) -> Mark:
        return _mark(transaction, self._database(_MARKS, transaction))[1]


def _names(transaction: Any) -> list[str]:
    return [bytes(name).decode() for name, _ in transaction.cursor()]


def invert(changes: Changes) -> dict[str, list[Change]]:
    """The changes that undo these."""
    return {table: [(key, after, before) for key, before, after in entries] for table, entries in changes.items()}


_open_stores: OrderedDict[tuple[int, Path], Store] = OrderedDict()


def open_store(path: Path, bytes_max: int = STORE_BYTES_MAX) -> Store:
    """The store at `path`, opened once per process; one that LMDB refuses is thrown away and begun empty."""
    key = (os.getpid(), path)  # a forked child must not use its parent's
    store = _open_stores.get(key)
    if store is not None and store.is_in_place():
        _open_stores.move_to_end(key)
        return store
    if store is not None:
        _open_stores.pop(key).close()
    store = _open_or_replace(path, bytes_max)
    _open_stores[key] = store
    while len(_open_stores) > OPEN_STORES_MAX:
        _open_stores.popitem(last=False)[1].close()
    return store


def _open_or_replace(path: Path, bytes_max: int) -> Store:
    try:
        store = Store(path, bytes_max)
        if not store.is_from_before_the_start():
            return store
        store.close()
        reason = "the machine was started since it was written"
    except (lmdb.Error, ValueError, KeyError) as error:
        reason = str(error)
    _log.warning("the local store %s is not used (%s): it will be rebuilt", path, reason)
    discard_store(path)
    return Store(path, bytes_max)


def discard_store(path: Path) -> None:
    """Throw a store away. Whoever still has it open goes on with a store of its own, which is only a cache."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
    with suppress(FileNotFoundError):
        path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
    store = _open_stores.pop((os.getpid(), path), None)
    if store is not None:
        store.close()


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file holds the data; None when there is none."""
    try:
        found = (path / "data.mdb").stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _boot_id() -> str:
    """A name for the time since the machine started; empty where the system gives none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
