"""From a commit in a database to a token: `token_of_commit`.

A capture stores its position in the same transaction as the records, so once it has passed a commit, everything the
commit changed is in the log, before where its topics end then. Those ends are the token: it may cover more
than the commit, never less.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from headwater.capture.publisher import read_state
from headwater.client import Connection
from headwater.errors import BadInput
from headwater.views.errors import NotCovered
from headwater.views.tail import ends_of

__all__ = ["lsn_of", "token_of_commit"]

POLL_S = 0.02


def token_of_commit(
    connection: Connection, capture: str, commit: str | int, *, topics: Sequence[str], timeout: float = 5.0
) -> str:
    """The token of a PostgreSQL commit (`SELECT pg_current_wal_lsn()` after it), once the capture has passed it.

    `topics`: of the capture, those that the view follows (`view.definition.topics`) or is derived from.
    """
    wanted, end = lsn_of(commit), time.monotonic() + timeout
    while True:
        place = read_state(connection, capture).get("position")
        if place is not None and lsn_of(place["lsn"]) >= wanted:
            return ends_of(connection, topics).token()
        if time.monotonic() > end:
            reached = "nowhere yet" if place is None else place["lsn"]
            raise NotCovered(f"capture {capture!r} has not passed {commit} within {timeout} s: it is at {reached}")
        time.sleep(POLL_S)


def lsn_of(commit: str | int) -> int:
    """A log sequence number as PostgreSQL prints it (`16/B374D848`), or as a number."""
    if isinstance(commit, int):
        return commit
    high, separator, low = commit.partition("/")
    try:
        return (int(high, 16) << 32) + int(low, 16) if separator else int(commit)
    except ValueError as error:
        raise BadInput(f"not a PostgreSQL log position: {commit!r} (it looks like 16/B374D848)") from error
