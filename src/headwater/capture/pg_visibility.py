"""Which transactions a PostgreSQL snapshot sees, and which changed rows a chunk of a table may have missed. Pure.

A chunk is read in a snapshot S; then a marker is written to the database's log. When the marker comes out of the
stream, every transaction that S sees has come out before it, because a transaction is in the log before any snapshot
sees it. What remains are transactions that came out before the marker and that S does not see: a row they changed is
newer in the stream than in the chunk, and is left out of the chunk. `ChangeLog` remembers those rows.

The order of commits in the log is not the order in which they become visible (a commit may wait for a standby in
between), so this goes by transaction ids and never by comparing places in the log.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

__all__ = ["ChangeLog", "Visibility"]

KEYS_MAX = 1_000_000  # changed keys remembered for one table (some 100 MB); beyond it its chunk is read again
RECENT_MAX = 20_000  # transactions looked back over: what committed before them has long been visible

_XID_SPACE = 1 << 32


@dataclass(frozen=True, slots=True)
class Visibility:
    """`pg_current_snapshot()`: transactions from xmax on, and those running, are not seen."""

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Visibility:
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(int(xid) for xid in running.split(",") if xid))

    def sees(self, xid: int) -> bool:
        """`xid` is a 32-bit id from the stream, at most half of the id space away."""
        distance = (xid - self.xmax) % _XID_SPACE
        full = self.xmax + (distance if distance < _XID_SPACE // 2 else distance - _XID_SPACE)
        return full < self.xmin or (full < self.xmax and full not in self.running)

    def covers(self, earlier: Visibility) -> bool:
        """Whether everything that `earlier` sees is seen here too."""
        return self.xmax >= earlier.xmax and all(xid >= earlier.xmax or xid in earlier.running for xid in self.running)


@dataclass(slots=True)
class _TableChanges:
    keys: dict[bytes, int] = field(default_factory=dict)  # key -> the last transaction that changed it
    everything: set[int] = field(default_factory=set)  # transactions that truncated, or too many keys to remember
    overflowed: set[int] = field(default_factory=set)


class ChangeLog:
    """The rows that came out of the stream lately, for the tables whose snapshot is under way."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._tables: dict[int, _TableChanges] = {}
        self._recent: deque[tuple[int, int]] = deque(maxlen=RECENT_MAX)
        self._xid = 0

    def transaction(self, lsn: int, xid: int) -> None:
        """The changes that follow are of this transaction."""
        self._xid = xid
        self._recent.append((lsn, xid))

    def watch(self, relation: int) -> list[int]:
        """Remember this table's changes from here on; the transactions that its chunks must see to be complete."""
        self._tables.setdefault(relation, _TableChanges())
        return [xid for _, xid in self._recent]

    def unwatch(self, relation: int) -> None:
        self._tables.pop(relation, None)

    def note(self, relation: int, key: bytes | None) -> None:
        """A row changed (None: all of them)."""
        changes = self._tables[relation]
        if key is None:
            changes.everything.add(self._xid)
        elif len(changes.keys) < self._keys_max:
            changes.keys[key] = self._xid
        else:
            changes.overflowed.add(self._xid)

    def complete(self, relation: int, snapshot: Visibility) -> bool:
        """Whether we know of every changed row that this snapshot misses; if not, the chunk must be read again."""
        return all(snapshot.sees(xid) for xid in self._tables[relation].overflowed)

    def stale(self, relation: int, snapshot: Visibility) -> set[bytes] | None:
        """The keys whose rows are newer in the stream than in a chunk of this snapshot; None: all of them."""
        changes = self._tables[relation]
        if any(not snapshot.sees(xid) for xid in changes.everything):
            return None
        return {key for key, xid in changes.keys.items() if not snapshot.sees(xid)}

    def seen(self, snapshot: Visibility) -> None:
        """Later chunks see whatever this one saw: forget it."""
        while self._recent and snapshot.sees(self._recent[0][1]):
            self._recent.popleft()
        for changes in self._tables.values():
            changes.keys = {key: xid for key, xid in changes.keys.items() if not snapshot.sees(xid)}
            changes.everything = {xid for xid in changes.everything if not snapshot.sees(xid)}
            changes.overflowed = {xid for xid in changes.overflowed if not snapshot.sees(xid)}

    def oldest(self) -> int | None:
        """Where a restart must begin so that it knows again what chunks may miss; None: nothing is under way."""
        return self._recent[0][0] if self._tables and self._recent else None
