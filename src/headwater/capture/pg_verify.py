"""PostgreSQL's side of `verify`: all tables in one snapshot, and what that snapshot has seen of the stream."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headwater.capture.errors import CaptureError
from headwater.capture.pg_catalog import Catalog, TableRef
from headwater.capture.pg_connection import command, copy_rows, format_lsn, parse_lsn, raw_connect
from headwater.capture.pg_snapshot import TableTask, chunk_query, plan_of_table
from headwater.capture.pg_visibility import Visibility
from headwater.capture.publisher import read_state
from headwater.capture.rebuild import Event
from headwater.capture.settings import Settings
from headwater.capture.verify import Row

__all__ = ["VERIFY_PREFIX", "PostgresSnapshot"]

VERIFY_PREFIX = "headwater.verify"  # of a logical message: the capture stores its position as soon as it sees one
POLL_S = 0.1


class PostgresSnapshot:
    """The captured tables as one transaction sees them."""

    def __init__(self, dsn: str, settings: Settings, timeout_s: float) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._catalog = Catalog(dsn)
        self._connection = raw_connect(dsn, replication=False)
        command(self._connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        seen = command(self._connection, "SELECT pg_current_snapshot()::text")[0][0]
        self._seen = Visibility.parse(seen or "")
        marker = "SELECT pg_logical_emit_message(true, %s, %s)::text"
        self._place = parse_lsn(self._catalog.rows(marker, VERIFY_PREFIX, uuid.uuid4().hex)[0][0])

    @classmethod
    @contextmanager
    def open(cls, dsn: str, settings: Settings, timeout_s: float) -> Iterator[PostgresSnapshot]:
        made = cls(dsn, settings, timeout_s)
        try:
            yield made
        finally:
            made._connection.finish()
            made._catalog.close()

    def wait(self) -> None:
        end = time.monotonic() + self._timeout_s
        while True:
            state = read_state(self._settings.connection, self._settings.name)
            unread = [name.removeprefix("snapshot/") for name, known in state.items() if _unread(name, known)]
            at = parse_lsn(state["position"]["lsn"]) if "position" in state else 0
            if at > self._place and not unread:
                return
            if time.monotonic() > end:
                why = f"{', '.join(unread)} still to be read" if unread else f"it is at {format_lsn(at)}"
                raise CaptureError(
                    f"capture {self._settings.name!r} has not reached {format_lsn(self._place)} after "
                    f"{self._timeout_s:.0f} s: {why}. Is it running? `headwater capture status` says more"
                )
            time.sleep(POLL_S)

    def tables(self) -> Iterator[tuple[str, str, Iterator[Row]]]:
        for table in self._catalog.tables(self._settings):
            if not self._settings.is_outbox(table.schema, table.name):
                yield table.full_name, self._settings.topic(table.schema, table.name), self._rows(table)

    def _rows(self, table: TableRef) -> Iterator[Row]:
        task = TableTask(table.oid, table.schema, table.name)
        details = self._catalog.details(table.oid)
        plan = plan_of_table(task, details, self._catalog, self._settings)
        for line in copy_rows(self._connection, chunk_query(task, details, self._settings, [])):
            fragments = plan.copied(line)
            yield plan.key_of(fragments), plan.row_of(fragments)

    def sees(self, event: Event) -> bool:
        xid = event.source.get("txId")
        if xid is not None:
            return self._seen.sees(xid)
        return int(event.source.get("lsn") or 0) <= self._place


def _unread(name: str, known: Any) -> bool:
    return name.startswith("snapshot/") and not known.get("done")
