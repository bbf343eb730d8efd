"""SQLite's side of `verify`: a copy of the database, so that comparing locks nobody out."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.capture.errors import CaptureError
from headwater.capture.publisher import read_state
from headwater.capture.rebuild import Event
from headwater.capture.settings import Settings
from headwater.capture.sqlite import connect
from headwater.capture.sqlite_rows import plan_for
from headwater.capture.sqlite_schema import OWN_PREFIX, SCHEMA, quote, read_table, table_names
from headwater.capture.verify import Row

__all__ = ["SQLiteSnapshot"]

POLL_S = 0.05


class SQLiteSnapshot:
    """The captured tables as they were at one moment."""

    def __init__(self, file: Path, settings: Settings, timeout_s: float) -> None:
        self._file, self._settings, self._timeout_s = file, settings, timeout_s
        self._copy = sqlite3.connect("")  # a temporary file that vanishes with the connection
        live = connect(file)
        try:
            live.backup(self._copy)
        finally:
            live.close()
        found = self._copy.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", [OWN_PREFIX + "log"]).fetchone()
        self._seq = int(found[0]) if found else 0

    @classmethod
    @contextmanager
    def open(cls, file: Path, settings: Settings, timeout_s: float) -> Iterator[SQLiteSnapshot]:
        made = cls(file, settings, timeout_s)
        try:
            yield made
        finally:
            made._copy.close()

    def wait(self) -> None:
        end = time.monotonic() + self._timeout_s
        while True:
            state = read_state(self._settings.connection, self._settings.name)
            unread = [n for n, known in state.items() if n.startswith("snapshot/") and not known.get("done")]
            at = state.get("position", {}).get("seq", -1)
            if at >= self._seq and not unread:
                return
            if time.monotonic() > end:
                raise CaptureError(
                    f"capture {self._settings.name!r} has not reached {self._seq} after {self._timeout_s:.0f} s: it is "
                    f"at {at}. Is it running? `headwater capture status` says more"
                )
            time.sleep(POLL_S)

    def tables(self) -> Iterator[tuple[str, str, Iterator[Row]]]:
        for name in table_names(self._copy):
            if self._settings.captures(SCHEMA, name) and not self._settings.is_outbox(SCHEMA, name):
                yield f"{SCHEMA}.{name}", self._settings.topic(SCHEMA, name), self._rows(name)

    def _rows(self, name: str) -> Iterator[Row]:
        plan = plan_for(read_table(self._copy, name), self._settings, self._file.stem)
        columns = ", ".join(quote(column.name) for column in plan.table.columns)
        for values in self._copy.execute(f"SELECT {columns} FROM {quote(name)}"):
            fragments = plan.fragments(values)
            yield plan.key_of(fragments), plan.row_of(fragments)

    def sees(self, event: Event) -> bool:
        return int(event.source.get("lsn") or 0) <= self._seq
