"""How far behind the database we are, and how much of its log it keeps for us.

Its own thread and connection: it must notice a full disk coming also while the log is down and nothing else moves.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Protocol

from headwater.capture.errors import CaptureError, SourceLost, WalLimitReached
from headwater.capture.pg_catalog import Catalog
from headwater.capture.pg_connection import format_lsn
from headwater.errors import HeadwaterError

__all__ = ["Health", "check_limit"]

CHECK_INTERVAL_S = 1.0  # a database writes at most some GB in between

_log = logging.getLogger("headwater.capture")


class Limits(Protocol):
    @property
    def dsn(self) -> str: ...
    @property
    def slot(self) -> str: ...
    @property
    def max_wal_bytes(self) -> int | None: ...
    @property
    def at_limit(self) -> str: ...


class Health:
    """Watches one slot; `check` raises what was found, in the caller's thread."""

    def __init__(self, options: Limits, interval_s: float = 0) -> None:
        self._options = options
        self._interval_s = interval_s or CHECK_INTERVAL_S
        self._stopping = threading.Event()
        self._found: CaptureError | None = None
        self._reported = False
        self.latest: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._run, name="headwater-capture-health", daemon=True)
        self._thread.start()

    def check(self) -> None:
        if self._found is not None:
            raise self._found

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            catalog = Catalog(self._options.dsn)
        except HeadwaterError as error:
            self._found = SourceLost(str(error))
            return
        try:
            while not self._stopping.wait(self._interval_s):
                self._look(catalog)
        except CaptureError as error:
            self._found = error
        except HeadwaterError as error:
            self._found = SourceLost(str(error))
        finally:
            catalog.close()

    def _look(self, catalog: Catalog) -> None:
        slot = catalog.slot(self._options.slot)
        if slot is None:
            raise SourceLost(f"slot {self._options.slot!r} has been dropped while it was in use")
        self.latest = {
            "lag_bytes": catalog.current_lsn() - (slot.confirmed_lsn or 0),
            "kept_bytes": slot.kept_bytes,
            "wal_status": slot.wal_status,
            "restart": format_lsn(slot.restart_lsn or 0),
            "checked_ms": time.time_ns() // 1_000_000,
        }
        if not self._reported:
            self._reported = _over_limit(slot.kept_bytes, self._options)


def check_limit(catalog: Catalog, options: Limits) -> None:
    """Look once: for when nothing is being read because the log is away."""
    slot = catalog.slot(options.slot)
    if slot is not None:
        _over_limit(slot.kept_bytes, options)


def _over_limit(kept: int, options: Limits) -> bool:
    """Whether the database keeps too much for us: reported or raised, as the user chose."""
    limit = options.max_wal_bytes
    if limit is None or kept <= limit:
        return False
    what = (
        f"PostgreSQL keeps {kept:,} bytes of its log for slot {options.slot!r}, more than max_wal_bytes ({limit:,}). "
        "Look for a long transaction, a log that takes no records, or a capture that is too slow"
    )
    if options.at_limit == "stop":
        raise WalLimitReached(f"{what}. The capture stops, as asked (at_limit='stop'); the slot stays")
    if options.at_limit == "drop":
        raise WalLimitReached(
            f"{what}. The slot is dropped, as asked (at_limit='drop'): start again with at_gap='resnapshot'"
        )
    _log.warning("%s", what)
    return True
