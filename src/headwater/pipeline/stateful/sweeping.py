"""Local stores that nobody has written for long are thrown away: they are caches, and queries come and go.

Looked at when a host makes a new store, which is rare. A query that comes back after all rebuilds its stores.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from pathlib import Path

__all__ = ["sweep"]

UNUSED_DAYS_MAX = 7.0  # since the last write to any store of a query on this host

_QUERY = re.compile(r"[0-9a-f]{16}")  # the folders of queries, see StateOptions.store_path
_log = logging.getLogger("headwater.pipeline")


def sweep(root: Path, now_s: float | None = None) -> list[Path]:
    """Delete the stores of queries under `root` that are unused; the folders deleted."""
    oldest = (time.time() if now_s is None else now_s) - UNUSED_DAYS_MAX * 86_400
    unused = [query for query in _queries(root) if _last_write_s(query) < oldest]
    for query in unused:
        _log.info("the local stores in %s were not used for %g days: deleted", query, UNUSED_DAYS_MAX)
        shutil.rmtree(query, ignore_errors=True)
    return unused


def _queries(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return [path for path in root.iterdir() if _QUERY.fullmatch(path.name) and any(path.glob("*/*/data.mdb"))]


def _last_write_s(query: Path) -> float:
    """When any of its stores was written; now, where one disappears meanwhile."""
    try:
        return max(path.stat().st_mtime for path in query.glob("*/*/data.mdb"))
    except (FileNotFoundError, ValueError):
        return time.time()
