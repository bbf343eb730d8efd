"""How far every capture is, as it last said in the log: readable also while it is down."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from headwater.capture.errors import CaptureError
from headwater.capture.publisher import captures, read_state
from headwater.client import Connection

__all__ = ["statuses"]


def statuses(connection: Connection, names: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """One description for each capture, or for those named."""
    known = captures(connection)
    for name in names or known:
        if name not in known:
            raise CaptureError(f"no capture named {name!r} has written to this log; there are: {', '.join(known)}")
        yield _describe(name, read_state(connection, name))


def _describe(name: str, state: dict[str, Any]) -> dict[str, Any]:
    said = dict(state.get("status", {}))
    said.pop("snapshot", None)  # as of then; the stored progress of each table is newer
    position = state.get("position", {})
    return {
        "name": name,
        "position": position.get("lsn", "the beginning"),
        "age_s": round(time.time() - said.pop("time_ms", 0) / 1000, 1),
        **said,
        "tables": [
            {"table": key.removeprefix("snapshot/"), "rows": known.get("rows", 0), "done": bool(known.get("done"))}
            for key, known in sorted(state.items())
            if key.startswith("snapshot/")
        ],
    }
