"""The captures as a user sees them: `Postgres(...)` and `SQLite(...)`, run here or in a thread of their own."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from headwater.capture.errors import CaptureError
from headwater.capture.pg_verify import PostgresSnapshot
from headwater.capture.postgres import PostgresOptions, PostgresSource
from headwater.capture.runner import Runner
from headwater.capture.settings import Settings
from headwater.capture.source import Source
from headwater.capture.sqlite import SQLiteSource
from headwater.capture.sqlite_verify import SQLiteSnapshot
from headwater.capture.verify import TableVerdict, Verifiable, verify
from headwater.client import Connection

__all__ = ["Capture", "Postgres", "SQLite"]

WAIT_POLL_S = 0.02


class Capture(ABC):
    """A database being followed: `run()` until stopped, or use it as a context manager."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._runner = Runner(settings, self._source)

    @abstractmethod
    def _source(self) -> Source: ...

    @abstractmethod
    def _snapshot(self, timeout_s: float) -> AbstractContextManager[Verifiable]: ...

    def verify(self, timeout_s: float = 60.0) -> list[TableVerdict]:
        """Compare every table with its topic, row by row; the capture must be running, here or elsewhere."""
        return verify(lambda: self._snapshot(timeout_s), self.settings.connection)

    def run(self) -> None:
        """Follow the database in this thread, until `stop` is called or it fails for good."""
        self._runner.run()

    def start(self) -> None:
        """Follow the database in a thread of its own."""
        self._runner.start()

    def stop(self) -> None:
        self._runner.stop()

    def check(self) -> None:
        """Raise what ended the capture, if anything did."""
        self._runner.check()

    def status(self) -> dict[str, Any]:
        """Lag, slot and snapshot progress."""
        return self._runner.status()

    @property
    def events(self) -> int:
        """Records in the log since the start."""
        return self._runner.events

    def wait_for_snapshot(self, timeout_s: float = 60.0) -> None:
        """Until every table has been read once."""
        end = time.monotonic() + timeout_s
        while True:
            self.check()
            tables, stored = self.status().get("snapshot"), self._runner.state
            if tables is not None and all(stored.get(f"snapshot/{t['table']}", {}).get("done") for t in tables):
                return
            if time.monotonic() > end:
                raise CaptureError(f"the snapshot is not done after {timeout_s:.0f} s: {tables}")
            time.sleep(WAIT_POLL_S)

    def __enter__(self) -> Capture:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Postgres(Capture):
    """Follow a PostgreSQL database (14 or later, wal_level=logical).

    `tables`: `schema.table`, with `*` and `?`. `name` identifies the capture: its position, its replication slot and
    its publication are found again by it, and a second capture of the same name takes over from the first.
    """

    def __init__(
        self,
        dsn: str,
        *,
        bootstrap: str | Connection,
        name: str,
        tables: Sequence[str] = ("*",),
        slot: str = "",
        publication: str = "",
        two_phase: bool = True,
        failover: bool = True,
        streaming: bool = True,
        max_wal_bytes: int | None = None,
        at_limit: Literal["report", "stop", "drop"] = "report",
        at_gap: Literal["stop", "resnapshot"] = "stop",
        signal_table: str = "",
        spill_folder: Path | None = None,
        **settings: Any,
    ) -> None:
        connection = Connection(bootstrap) if isinstance(bootstrap, str) else bootstrap
        safe = "".join(c if c.isalnum() else "_" for c in name.lower())
        self.options = PostgresOptions(
            dsn=dsn,
            slot=slot or f"headwater_{safe}",
            publication=publication or f"headwater_{safe}",
            two_phase=two_phase,
            failover=failover,
            streaming=streaming,
            max_wal_bytes=max_wal_bytes,
            at_limit=at_limit,
            at_gap=at_gap,
            signal_table=signal_table,
            spill_folder=spill_folder,
        )
        super().__init__(Settings(name=name, connection=connection, tables=tuple(tables), **settings))

    def _source(self) -> Source:
        return PostgresSource(self.options, self.settings)

    def _snapshot(self, timeout_s: float) -> AbstractContextManager[Verifiable]:
        return PostgresSnapshot.open(self.options.dsn, self.settings, timeout_s)


class SQLite(Capture):
    """Follow an SQLite database by triggers, which this puts into it.

    `tables`: `main.table`, with `*` and `?`. `name` identifies the capture: its position is found again by it.
    """

    def __init__(
        self,
        file: str | Path,
        *,
        bootstrap: str | Connection,
        name: str,
        tables: Sequence[str] = ("*",),
        at_gap: Literal["stop", "resnapshot"] = "stop",
        **settings: Any,
    ) -> None:
        connection = Connection(bootstrap) if isinstance(bootstrap, str) else bootstrap
        self._file, self._at_gap = Path(file), at_gap
        super().__init__(Settings(name=name, connection=connection, tables=tuple(tables), **settings))

    def _source(self) -> Source:
        return SQLiteSource(self._file, self.settings, self._at_gap)

    def _snapshot(self, timeout_s: float) -> AbstractContextManager[Verifiable]:
        return SQLiteSnapshot.open(self._file, self.settings, timeout_s)
