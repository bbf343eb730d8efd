"""Databases as streams: snapshot, stream, schema; one module per database.

    from headwater import capture

    with capture.Postgres("host=... dbname=shop", bootstrap="127.0.0.1:9092", name="shop", tables=["public.*"]) as shop:
        shop.wait_for_snapshot()

Every committed change becomes a record of the topic `<prefix>.<schema>.<table>`, in commit order, once.
"""

from __future__ import annotations

from headwater.capture.captures import Postgres, SQLite
from headwater.capture.errors import CaptureError, Fenced, GapDetected, LogUnavailable, SourceLost, WalLimitReached
from headwater.capture.rebuild import Rebuilt, rebuild
from headwater.capture.settings import Hash, Mask, Truncate

__all__ = [
    "CaptureError",
    "Fenced",
    "GapDetected",
    "Hash",
    "LogUnavailable",
    "Mask",
    "Postgres",
    "Rebuilt",
    "SQLite",
    "SourceLost",
    "Truncate",
    "WalLimitReached",
    "rebuild",
]
