"""Reading tables in chunks while the stream goes on: a thread with its own connections.

A table with a primary key is read in chunks of its key's order, each by one COPY in a snapshot of its own, followed by
a marker in the database's log (see `pg_visibility`). After a kill it goes on behind the last chunk that is in the log.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from headwater.capture.errors import CaptureError, SourceLost
from headwater.capture.pg_catalog import Catalog, TableDetails
from headwater.capture.pg_connection import command, copy_rows, raw_connect
from headwater.capture.pg_copy import copy_values
from headwater.capture.pg_plan import TablePlan, plan_for
from headwater.capture.pg_visibility import Visibility
from headwater.capture.pgoutput import Relation, RelationColumn
from headwater.capture.settings import Settings
from headwater.errors import HeadwaterError

__all__ = ["CHUNK_PREFIX", "Chunk", "ChunkReader", "TableTask"]

CHUNK_PREFIX = "headwater.chunk"
CHUNKS_AHEAD = 2  # read but not yet published: one being written, one being read
CHUNK_BYTES_MAX = 32 << 20  # a chunk of wide rows ends early
VISIBLE_TIMEOUT_S = 60.0  # transactions become visible within milliseconds of their commit, or wait for a standby
VISIBLE_POLL_S = 0.01
REPORT_S = 30.0  # how often a wait for a user's transaction is reported

_log = logging.getLogger("headwater.capture")


@dataclass(slots=True)
class TableTask:
    """A table to read, and how far it has got."""

    oid: int
    schema: str
    name: str
    after: list[str] | None = None  # the key of the last row that is in the log
    rows: int = 0
    total: int = 0  # an estimate
    kind: str = "true"  # `source.snapshot` of its rows: "incremental" for tables read again on demand
    must_see: Sequence[int] = ()
    added: bool = False  # to the publication while the stream was running
    not_before: int | None = None  # the transaction before which all must have ended

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(slots=True)
class Chunk:
    """Rows of one table as one snapshot saw them, in the order of their key."""

    task: TableTask
    plan: TablePlan
    marker: str
    snapshot: Visibility
    rows: list[tuple[bytes | None, bytes]] = field(repr=False)
    first: list[str] | None = None  # the key before the chunk
    last: list[str] | None = None  # its last key; None: the table is at its end
    bytes: int = 0


class ChunkReader:
    """Reads the tables that `start` is given, one after the other, until `stop`."""

    def __init__(self, dsn: str, settings: Settings, base: Visibility | None, failed: Callable[[Exception], None]):
        self._dsn = dsn
        self._settings = settings
        self._base = base
        self._failed = failed
        self._tasks: queue.Queue[TableTask | None] = queue.Queue()
        self._again: queue.Queue[Chunk] = queue.Queue()
        self._room = threading.Semaphore(CHUNKS_AHEAD)
        self._stopping = threading.Event()
        self._cancelled: set[str] = set()
        self._thread: threading.Thread | None = None
        self.ready: dict[str, Chunk] = {}  # by marker

    def start(self, task: TableTask) -> None:
        self._tasks.put(task)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="headwater-capture-chunks", daemon=True)
            self._thread.start()

    def cancel(self, table: str) -> None:
        self._cancelled.add(table)

    def taken(self) -> None:
        """A chunk has been published: there is room for another."""
        self._room.release()

    def stop(self) -> None:
        self._stopping.set()
        self._tasks.put(None)
        self._room.release()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            catalog = Catalog(self._dsn)
            try:
                while (task := self._tasks.get()) is not None and not self._stopping.is_set():
                    self._cancelled.discard(task.full_name)
                    self._read_table(catalog, task)
            finally:
                catalog.close()
        except (HeadwaterError, psycopg.Error) as error:
            self._failed(error if isinstance(error, CaptureError) else SourceLost(f"snapshot: {error}"))

    def _read_table(self, catalog: Catalog, task: TableTask) -> None:
        connection = raw_connect(self._dsn, replication=False)
        try:
            self._wait_until_seen(catalog, task)
            after: list[str] | None = task.after
            at_end = False
            while not at_end and not self._stopping.is_set() and task.full_name not in self._cancelled:
                self._room.acquire()
                if self._stopping.is_set():
                    return
                chunk = read_chunk(catalog, connection, task, self._settings, after=after)
                self._publish(catalog, chunk)
                at_end, after = chunk.last is None, chunk.last
        finally:
            connection.finish()

    def _publish(self, catalog: Catalog, chunk: Chunk) -> None:
        self.ready[chunk.marker] = chunk
        emit_marker(catalog, chunk.marker)

    def read_again(self, catalog: Catalog, chunk: Chunk) -> None:
        """The same rows in a newer snapshot: too much changed to know which of them are stale."""
        connection = raw_connect(self._dsn, replication=False)
        try:
            bounds = {"after": chunk.first, "until": chunk.last}
            again = read_chunk(catalog, connection, chunk.task, self._settings, **bounds, whole=True)
            again.last = chunk.last  # rows behind the end of the table are new: the stream has them
            self._publish(catalog, again)
        finally:
            connection.finish()

    def _wait_until_seen(self, catalog: Catalog, task: TableTask) -> None:
        """Until snapshots see whatever came out of the stream before this table was watched.

        What transactions wrote into a table before it was published is not in the stream, also when they commit
        after that: they must have ended before the first chunk is read, however long they take.
        """
        if task.added:
            self._wait_for_writers(catalog, task)
        end = time.monotonic() + VISIBLE_TIMEOUT_S
        while not self._stopping.is_set():
            now = Visibility.parse(catalog.rows("SELECT pg_current_snapshot()::text")[0][0])
            if (self._base is None or now.covers(self._base)) and all(now.sees(xid) for xid in task.must_see):
                return
            if time.monotonic() > end:
                raise SourceLost(f"{task.full_name}: transactions stay invisible after their commit; a standby down?")
            self._stopping.wait(VISIBLE_POLL_S)

    def _wait_for_writers(self, catalog: Catalog, task: TableTask) -> None:
        running = Visibility.parse(catalog.rows("SELECT pg_current_snapshot()::text")[0][0])
        waiting_since = time.monotonic()
        while not self._stopping.is_set():
            now = Visibility.parse(catalog.rows("SELECT pg_current_snapshot()::text")[0][0])
            if now.xmin >= running.xmax:
                return
            if time.monotonic() - waiting_since > REPORT_S:
                waiting_since = time.monotonic()
                _log.warning("%s is read once transaction %d ends, which is running", task.full_name, now.xmin)
            self._stopping.wait(VISIBLE_POLL_S)


def read_chunk(
    catalog: Catalog,
    connection: Any,
    task: TableTask,
    settings: Settings,
    *,
    after: list[str] | None,
    until: list[str] | None = None,
    whole: bool = False,
) -> Chunk:
    """Up to `chunk_rows` rows behind `after` (or those up to `until`), in one snapshot; fewer if they are wide.

    `whole`: however wide they are, because the next chunk begins behind them.
    """
    command(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    snapshot = Visibility.parse(command(connection, "SELECT pg_current_snapshot()::text")[0][0] or "")
    details = catalog.details(task.oid)
    order = catalog.key_order(task.oid)
    plan = plan_of_table(task, details, catalog, settings)
    query = chunk_query(task, details, settings, order, after=after, until=until)
    key_at = [list(details.columns).index(name) for name in order]
    rows: list[tuple[bytes | None, bytes]] = []
    size, line, cut = 0, b"", False
    for line in copy_rows(connection, query):
        fragments = plan.copied(line)
        row = plan.row % tuple(fragments)
        rows.append((plan.key_of(fragments), row))
        size += len(row)
        if size > CHUNK_BYTES_MAX and not whole:
            cut = True
            break
    if cut:  # the rest of the COPY is given up with its connection
        connection.reset()
    else:
        command(connection, "COMMIT")
    full = cut or (until is None and len(rows) >= settings.chunk_rows)
    last = copy_values(line)
    end = [_text(last[i]) for i in key_at] if rows and full else until
    return Chunk(task, plan, uuid.uuid4().hex, snapshot, rows, after, end, size)


def emit_marker(catalog: Catalog, marker: str) -> None:
    """Into the database's log, at once: a message alone is not flushed before PostgreSQL 17."""
    if catalog.version >= 17:
        catalog.rows("SELECT pg_logical_emit_message(false, %s, %s, true)", CHUNK_PREFIX, marker)
    else:
        catalog.rows("SELECT pg_logical_emit_message(true, %s, %s)", CHUNK_PREFIX, marker)


def plan_of_table(task: TableTask, details: TableDetails, catalog: Catalog, settings: Settings) -> TablePlan:
    """The plan for rows as SELECT gives them: as if the stream had announced the table as it is now."""
    columns = tuple(
        RelationColumn(c.name, c.type_oid, c.modifier, c.name in details.key) for c in details.columns.values()
    )
    needed = next((c.type_oid for c in columns if c.type_oid not in catalog.types()), None)
    relation = Relation(task.oid, task.schema, task.name, "f", columns)
    return plan_for(relation, details, catalog.types(needed), settings)


def chunk_query(
    task: TableTask,
    details: TableDetails,
    settings: Settings,
    order: Sequence[str],
    *,
    after: Sequence[str] | None = None,
    until: Sequence[str] | None = None,
) -> str:
    """`order` empty: the whole table."""
    condition = settings.row_filters.get(task.full_name)
    conditions = [sql.SQL("({})").format(sql.SQL(condition))] if condition else []
    for bound, operator in ((after, ">"), (until, "<=")):
        if bound is not None:
            conditions.append(_bound(details, order, bound, operator))
    query = sql.SQL("SELECT {} FROM {}{}").format(
        sql.SQL(", ").join(sql.Identifier(name) for name in details.columns),
        sql.Identifier(task.schema, task.name),
        sql.SQL(" WHERE ") + sql.SQL(" AND ").join(conditions) if conditions else sql.SQL(""),
    )
    if order:
        query += sql.SQL(" ORDER BY {}").format(sql.SQL(", ").join(map(sql.Identifier, order)))
        if until is None:
            query += sql.SQL(" LIMIT {}").format(sql.Literal(settings.chunk_rows))
    return query.as_string(None)


def _bound(details: TableDetails, order: Sequence[str], bound: Sequence[str], operator: str) -> sql.Composed:
    values = [
        sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(details.columns[name].type_name))
        for name, text in zip(order, bound, strict=True)
    ]
    return sql.SQL("({}) {} ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, order)),
        sql.SQL(operator),
        sql.SQL(", ").join(values),
    )


def whole_table(catalog: Catalog, dsn: str, task: TableTask, settings: Settings) -> Iterator[Any]:
    """First the snapshot, then every row of a table that has no key to cut chunks by."""
    connection = raw_connect(dsn, replication=False)
    try:
        command(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield Visibility.parse(command(connection, "SELECT pg_current_snapshot()::text")[0][0] or "")
        details = catalog.details(task.oid)
        plan = plan_of_table(task, details, catalog, settings)
        yield plan
        for line in copy_rows(connection, chunk_query(task, details, settings, [])):
            fragments = plan.copied(line)
            yield plan.key_of(fragments), plan.row % tuple(fragments)
    finally:
        connection.finish()


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else ""
