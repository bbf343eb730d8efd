"""The deadlines of one group: named, replaceable, fired in order by whoever owns the clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["NEVER", "Now", "Timers"]

NEVER = float("inf")
Key = tuple[str, str]  # (kind, member id or "")


class Now(NamedTuple):
    """The time of an event, twice: what goes into records, and what time-outs are measured with (never goes back)."""

    wall_ms: int
    mono_ms: float


class Timers:
    """At most one deadline per key.

    `earliest` is a lower bound of all deadlines, not always exact: heartbeats move deadlines later thousands of times
    between two firings, and must not pay for a search. Waking up early costs one look through the deadlines.
    """

    __slots__ = ("_deadlines", "earliest")

    def __init__(self) -> None:
        self._deadlines: dict[Key, float] = {}
        self.earliest: float = NEVER

    def set(self, kind: str, member_id: str, at_ms: float) -> None:
        self._deadlines[kind, member_id] = at_ms
        self.earliest = min(self.earliest, at_ms)

    def cancel(self, kind: str, member_id: str = "") -> None:
        self._deadlines.pop((kind, member_id), None)

    def cancel_member(self, member_id: str) -> None:
        for key in [key for key in self._deadlines if key[1] == member_id]:
            del self._deadlines[key]

    def clear(self) -> None:
        self._deadlines.clear()
        self.earliest = NEVER

    def has(self, kind: str, member_id: str = "") -> bool:
        return (kind, member_id) in self._deadlines

    def due(self, now_ms: float) -> Iterator[Key]:
        """Every key whose time has come, earliest first; each is forgotten as it is handed out.

        What a firing cancels does not fire; what it sets anew fires in a later call.
        """
        if self.earliest > now_ms:
            return
        for key in sorted(
            (key for key, at in self._deadlines.items() if at <= now_ms), key=self._deadlines.__getitem__
        ):
            if self._deadlines.get(key, NEVER) <= now_ms:
                del self._deadlines[key]
                yield key
        self.earliest = min(self._deadlines.values(), default=NEVER)
