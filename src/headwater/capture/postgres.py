"""PostgreSQL as a source: snapshot, stream and position behind the interface of `source`.

One thread reads. A frame's way: `ReplicationStream.next_frame` → `Assembler.feed` (or straight on, inside a transaction
that arrives after its commit) → `RowWriter.row` → a batch of records. Chunks of snapshots join where their marker is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from struct import Struct
from typing import Any, Literal

from headwater.capture import pgoutput
from headwater.capture.errors import CaptureError, DecodingFailed, GapDetected, WalLimitReached
from headwater.capture.pg_catalog import Catalog
from headwater.capture.pg_connection import ReplicationStream, format_lsn
from headwater.capture.pg_health import Health, check_limit
from headwater.capture.pg_rows import RowWriter
from headwater.capture.pg_slot import Place, Server, check_slot, create_slot, drop_slot, free_slot, identify
from headwater.capture.pg_tables import Tables
from headwater.capture.pg_transactions import Assembler, Closed, Opened, Outside, Row, Step, Transaction
from headwater.capture.pg_verify import VERIFY_PREFIX
from headwater.capture.pg_visibility import ChangeLog, Visibility
from headwater.capture.settings import Settings
from headwater.capture.source import Batch, State
from headwater.capture.spill import SpillStore
from headwater.errors import SettingError

__all__ = ["PostgresOptions", "PostgresSource"]

VERSION_MIN = 14  # protocol 2, streaming of running transactions
BATCH_EVENTS_MAX = 5_000  # records handed over together: small enough that reading and writing overlap
BATCH_BYTES_MAX = 8 << 20  # of frames read for one batch
IDLE_ADVANCE_S = 10.0  # how often an idle database's slot advances
STATUS_INTERVAL_S = 1.0  # how often the server hears from us: far below its wal_sender_timeout of 60 s
FRAME_HEAD = 25  # bytes before a message: type, start, end, time
SKIP_ALL = 1 << 62  # more events than a transaction can have

_log = logging.getLogger("headwater.capture")

_U64 = Struct(">Q").unpack_from
_KEEPALIVE = Struct(">QqB").unpack_from
_DATA = b"w"[0]
_ROW_CHANGES = frozenset(b"IUD")


@dataclass(frozen=True, slots=True)
class PostgresOptions:
    """What only PostgreSQL needs."""

    dsn: str
    slot: str
    publication: str
    two_phase: bool = True
    failover: bool = True
    streaming: bool = True
    max_wal_bytes: int | None = None
    at_limit: Literal["report", "stop", "drop"] = "report"
    at_gap: Literal["stop", "resnapshot"] = "stop"
    spill_folder: Path | None = None
    signal_table: str = ""

    def __repr__(self) -> str:
        return f"PostgresOptions(slot={self.slot!r}, publication={self.publication!r})"  # a dsn may hold a password


class PostgresSource:
    """One database, one slot."""

    def __init__(self, options: PostgresOptions, settings: Settings) -> None:
        self._options = options
        self._settings = settings
        self._confirmed = 0
        self._stream: ReplicationStream | None = None
        self._catalog: Catalog | None = None
        self._tables: Tables | None = None
        self._health: Health | None = None
        self._store = SpillStore(options.spill_folder)
        self._dropping = False  # the user's choice, once the database has kept too much for us
        self._whole_only = False  # the server failed to decode a running transaction: ask for committed ones

    def open(self, state: State) -> None:
        options = self._options
        self._catalog = catalog = Catalog(options.dsn)
        if catalog.version < VERSION_MIN:
            raise SettingError(f"PostgreSQL {catalog.version} is too old: {VERSION_MIN} is the first that can stream")
        server = identify(options.dsn)
        self._changes = ChangeLog()
        self._tables = tables = Tables(options.dsn, options.publication, options.signal_table, self._settings, catalog)
        tables.publish()
        self._place, fresh = self._find_place(state, server, catalog)
        self._writer = RowWriter(self._settings, server.database, tables.plan, tables.reselect)
        base = Visibility.parse(self._place.base) if self._place.base else None
        tables.begin(self._writer, self._changes, {} if fresh else state, base, reread=fresh and "position" in state)
        self._assembler = Assembler(self._store)
        self._steps: Iterator[Step] | None = None
        self._unit: Transaction | None = None
        self._skipping_to = self._place
        self._done_lsn = self._place.lsn
        self._last_commit = 0
        self._received_lsn = self._place.restart
        self._confirmed = self._place.restart
        self._source_time_us = 0
        self._advanced = fresh
        self._advanced_at = self._status_at = time.monotonic()
        self._health = Health(options)
        free_slot(catalog, options.slot, lambda: time.sleep(0.1))
        self._stream = ReplicationStream(options.dsn, options.slot, self._place.restart, self._protocol(catalog))
        tables.resume()

    def _protocol(self, catalog: Catalog) -> dict[str, str]:
        version = catalog.version
        protocol = 4 if version >= 16 else 3 if version >= 15 else 2
        chosen = {
            "proto_version": str(protocol),
            "publication_names": self._options.publication.replace("'", "''"),
            "messages": "true",
        }
        if self._options.streaming and not self._whole_only:
            chosen["streaming"] = "parallel" if protocol == 4 else "on"
        slot = catalog.slot(self._options.slot)
        if slot is not None and slot.two_phase:
            chosen["two_phase"] = "on"
        return chosen

    def _find_place(self, state: State, server: Server, catalog: Catalog) -> tuple[Place, bool]:
        """Where to go on from, and whether that is the beginning."""
        stored, name = state.get("position"), self._options.slot
        found = catalog.slot(name)
        if stored is not None:
            try:
                return check_slot(Place.from_state(stored), name, found, server), False
            except GapDetected as gap:
                if self._options.at_gap == "stop":
                    raise
                _log.warning("capture %s: %s; reading everything again, as asked", self._settings.name, gap)
        elif found is not None and self._settings.snapshot == "never" and found.confirmed_lsn is not None:
            lsn = found.confirmed_lsn
            return Place(server.system, server.timeline, lsn, lsn), True
        drop_slot(catalog, name, lambda: time.sleep(0.1))
        two_phase = self._options.two_phase and catalog.version >= 15
        failover = self._options.failover and catalog.version >= 17
        options = self._options
        return (
            create_slot(options.dsn, name, server, version=catalog.version, two_phase=two_phase, failover=failover),
            True,
        )

    def read(self, timeout_s: float) -> Batch | None:
        stream, tables = self._stream, self._tables
        if stream is None or tables is None:
            raise CaptureError("the source is not open")
        tables.check()
        if (whole := tables.next_whole_table_batch()) is not None:
            whole.confirm = self._confirmed
            whole.state = {"position": self._place.to_state(), **tables.take_state(), **whole.state}
            return whole
        self._fill(stream, timeout_s)
        self._keep_in_touch()
        return self._batch()

    def _fill(self, stream: ReplicationStream, timeout_s: float) -> None:
        """Take frames until there is enough for a batch, or no more have arrived."""
        waited, size = False, 0
        records, assembler, writer = self._writer.records, self._assembler, self._writer
        while len(records) < BATCH_EVENTS_MAX and size < BATCH_BYTES_MAX:
            if self._steps is not None:
                size += self._next_step(self._steps)
            elif (frame := self._next_frame(stream)) is not None:
                size += len(frame)
                if assembler.direct is not None and frame[0] == _DATA and (kind := frame[FRAME_HEAD]) in _ROW_CHANGES:
                    writer.row(_U64(frame, 1)[0], kind, frame, FRAME_HEAD + 1)
                else:
                    self._frame(frame)
            elif records or waited:
                break
            else:
                stream.wait(timeout_s)
                waited = True

    def _next_frame(self, stream: ReplicationStream) -> bytes | None:
        try:
            return stream.next_frame()
        except DecodingFailed as error:
            # Seen with PostgreSQL 16 and 18: a savepoint that changed a table and was rolled back, in a transaction
            # that is streamed while it runs. The same transaction is decoded after its commit without a problem.
            if not self._whole_only:
                _log.warning("capture %s: %s; from here on without streaming", self._settings.name, error)
            self._whole_only = True
            raise

    def _frame(self, frame: bytes) -> None:
        if frame[0] == _DATA:
            self._steps = self._assembler.feed(_U64(frame, 1)[0], frame[FRAME_HEAD:])
            return
        end_lsn, _, reply = _KEEPALIVE(frame, 1)
        self._received_lsn = max(self._received_lsn, end_lsn)
        if self._assembler.idle() and end_lsn > self._done_lsn:
            self._done_lsn = end_lsn
            self._advanced = True
        if reply:
            self._send_status()

    def _next_step(self, steps: Iterator[Step]) -> int:
        """One step of the message at hand; the bytes it took."""
        step = next(steps, None)
        if step is None:
            self._steps = None
            return 0
        if isinstance(step, Row):
            self._row(step)
            return len(step.data)
        if isinstance(step, Opened):
            self._opened(step.transaction)
        elif isinstance(step, Closed):
            self._closed(step)
        else:
            self._outside(step)
        return 0

    def _opened(self, transaction: Transaction) -> None:
        start = self._skipping_to
        skip = 0
        if transaction.lsn < start.lsn:
            skip = SKIP_ALL
        elif transaction.lsn == start.unit:
            skip = start.index
        self._writer.begin(transaction, self._last_commit, skip)
        self._changes.transaction(transaction.lsn, transaction.xid)
        self._unit = transaction

    def _closed(self, closed: Closed) -> None:
        transaction = closed.transaction
        if self._settings.transaction_topic:
            self._writer.end()
        if self._writer.signals and self._tables is not None:
            self._tables.table_signals()
        self._unit = None
        self._last_commit = transaction.lsn
        self._source_time_us = transaction.time_us
        self._done_lsn = max(self._done_lsn, closed.end_lsn)
        if self._tables is not None:
            self._tables.snapshots.release(self._done_lsn)
        self._received_lsn = max(self._received_lsn, closed.end_lsn)
        self._advanced = True

    def _row(self, row: Row) -> None:
        kind = chr(row.data[0])
        if kind in "IUD":
            self._writer.row(row.lsn, row.data[0], row.data, row.at)
        elif kind == "R":
            self._relation(row)
        elif kind == "T":
            self._writer.truncate(row.lsn, row.data, row.at)
        elif kind == "M":
            self._message(row.lsn, pgoutput.logical_message(row.data, row.at))

    def _relation(self, row: Row) -> None:
        if self._tables is not None:
            skipped = self._writer.index < self._writer.skip
            self._tables.relation(pgoutput.relation(row.data, row.at), row.lsn, skipped=skipped)

    def _outside(self, step: Outside) -> None:
        kind = chr(step.data[0])
        if kind == "R" and self._tables is not None:
            self._tables.relation(pgoutput.relation(step.data), step.lsn, skipped=True)
        if kind != "M":
            return
        if step.lsn > self._skipping_to.lsn:
            now_us = time.time_ns() // 1000
            self._writer.begin(Transaction(0, step.lsn, now_us), self._last_commit, 0)
            self._message(step.lsn, pgoutput.logical_message(step.data))
        # A message's lsn is where its record ends; a transaction's is where its commit begins, which may be just there
        self._done_lsn = max(self._done_lsn, step.lsn)
        self._advanced = True

    def _message(self, lsn: int, message: pgoutput.LogicalMessage) -> None:
        if message.prefix == VERIFY_PREFIX:
            self._advanced_at = float("-inf")  # somebody waits for the position
        if self._tables is None or not self._tables.internal_message(lsn, message):
            self._writer.message(lsn, message)
        else:
            self._writer.index += 1

    def _batch(self) -> Batch | None:
        """What has been read so far with the place behind it; None when there is nothing worth writing."""
        tables = self._tables
        if tables is None:
            return None
        now = time.monotonic()
        state = tables.take_state()
        due = self._advanced and now - self._advanced_at >= IDLE_ADVANCE_S
        if not (self._writer.records or state or due):
            return None
        self._advanced, self._advanced_at = False, now
        self._place = self._current_place()
        return Batch(
            records=self._writer.take(),
            state={"position": self._place.to_state(), **state},
            confirm=self._place.restart,
            source_time_us=self._source_time_us,
            new_topics=self._writer.take_topics(),
        )

    def _current_place(self) -> Place:
        held = [lsn for lsn in (self._assembler.oldest_prepared(), self._changes.oldest()) if lsn is not None]
        unit, index, lsn = 0, 0, max(self._done_lsn, self._skipping_to.lsn)
        if self._unit is not None and self._unit.lsn >= lsn:
            unit, index = self._unit.lsn, max(self._writer.index, self._writer.skip)
        elif self._skipping_to.unit >= lsn:
            unit, index = self._skipping_to.unit, self._skipping_to.index
        # Never back: the slot has been told that we have what is before. A table that begins to be read would like to
        # see transactions from before again; instead its chunks must see all that had come out (`ChangeLog.watch`).
        restart = max(min([lsn, *held]), self._place.restart)
        return replace(self._skipping_to, lsn=lsn, restart=restart, unit=unit, index=index)

    def _keep_in_touch(self) -> None:
        now = time.monotonic()
        if now - self._status_at >= STATUS_INTERVAL_S:
            self._send_status(ask=now - self._advanced_at >= IDLE_ADVANCE_S / 2)
            self._check_health()
            if self._tables is not None:
                self._tables.look_for_new()

    def _send_status(self, *, ask: bool = False) -> None:
        self._status_at = time.monotonic()
        if self._stream is not None:
            self._stream.send_status(self._confirmed, time.time_ns() // 1000, ask=ask)

    def confirm(self, confirm: int) -> None:
        self._confirmed = max(self._confirmed, confirm)

    def tick(self) -> None:
        if time.monotonic() - self._status_at >= STATUS_INTERVAL_S:
            self._send_status()
            self._check_health()

    def _check_health(self) -> None:
        if self._health is not None:
            try:
                self._health.check()
            except WalLimitReached:
                self._dropping = self._options.at_limit == "drop"
                raise

    def away(self) -> None:
        catalog = Catalog(self._options.dsn)
        try:
            check_limit(catalog, self._options)
        except WalLimitReached:
            if self._options.at_limit == "drop":
                self._drop(catalog)
            raise
        finally:
            catalog.close()

    def _drop(self, catalog: Catalog) -> None:
        drop_slot(catalog, self._options.slot, lambda: time.sleep(0.1))

    def close(self) -> None:
        if self._tables is not None:
            self._tables.stop()
            self._tables = None
        if self._stream is not None:
            self._send_last_status(self._stream)
            self._stream = None
        if self._health is not None:
            self._health.close()
            self._health = None
        if self._catalog is not None:
            if self._dropping:
                self._drop(self._catalog)
            self._catalog.close()
            self._catalog = None
        self._store.clear()

    def _send_last_status(self, stream: ReplicationStream) -> None:
        try:
            stream.send_status(self._confirmed, time.time_ns() // 1000)
        except CaptureError:
            pass  # the connection is gone already: the slot learns it from the next one
        finally:
            stream.close()

    def status(self) -> Mapping[str, Any]:
        shown: dict[str, Any] = {"slot": self._options.slot, "confirmed": format_lsn(self._confirmed)}
        if self._tables is not None:
            shown["snapshot"] = self._tables.progress()
        if self._health is not None:
            shown.update(self._health.latest)
        return shown
