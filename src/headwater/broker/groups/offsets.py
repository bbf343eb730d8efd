"""How far each group has got: committed offsets, those of open transactions, and when they may be forgotten.

State changes by `put`, `remove` and the end of a transaction only, in the order of the log; replay uses the same calls.
A transaction's offsets are `pending` until its marker: a reader that asks for stable offsets is told to wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from headwater.wire.fields import ZERO_UUID

__all__ = ["NOT_COMMITTED", "Commit", "OffsetStore", "Place"]

NOT_COMMITTED = -1
Place = tuple[str, int]
"""(topic, partition)"""


@dataclass(frozen=True, slots=True)
class Commit:
    """One committed offset. `order` grows with the log: of two commits the later counts, whichever is decided first."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_wall_ms: int = -1
    expires_wall_ms: int = -1  # only clients older than KIP-211 set one
    topic_id: UUID = ZERO_UUID  # an offset of a topic that was deleted says nothing about a new one of that name
    order: int = 0


@dataclass(slots=True)
class OffsetStore:
    """All groups' offsets. Bounded by what clients commit: one entry a group and partition, expired by `expired`."""

    _groups: dict[str, dict[Place, Commit]] = field(default_factory=dict)
    _pending: dict[tuple[int, int], dict[str, dict[Place, Commit]]] = field(default_factory=dict)
    _open: dict[str, dict[Place, int]] = field(default_factory=dict)  # how many open transactions have an offset there
    _order: int = 0

    # -- questions

    def of_group(self, group_id: str) -> Mapping[Place, Commit]:
        return self._groups.get(group_id, {})

    def get(self, group_id: str, place: Place) -> Commit | None:
        return self._groups.get(group_id, {}).get(place)

    def places(self, group_id: str) -> list[Place]:
        """Where the group has an offset, or an open transaction wants to commit one."""
        return [
            *self._groups.get(group_id, {}),
            *(self._open.get(group_id, {}).keys() - self._groups.get(group_id, {}).keys()),
        ]

    def is_pending(self, group_id: str, place: Place) -> bool:
        return place in self._open.get(group_id, {})

    def has_pending(self, group_id: str) -> bool:
        return group_id in self._open

    def groups(self) -> Iterator[str]:
        return iter(self._groups)

    def __iter__(self) -> Iterator[tuple[str, Place, Commit]]:
        for group_id, places in self._groups.items():
            for place, commit in places.items():
                yield group_id, place, commit

    def expired(self, group_id: str, wall_ms: int, retention_ms: int, empty_since_ms: int | None) -> list[Place]:
        """Places whose offset nobody has renewed for the retention time.

        It counts from the commit, or from when the group became empty where that is later (KIP-211).
        """
        if self.has_pending(group_id):
            return []
        return [
            place
            for place, commit in self._groups.get(group_id, {}).items()
            if _expiry(commit, retention_ms, empty_since_ms) <= wall_ms
        ]

    # -- changes

    def put(self, group_id: str, place: Place, commit: Commit) -> None:
        self._order += 1
        self._groups.setdefault(group_id, {})[place] = replace(commit, order=self._order)

    def remove(self, group_id: str, place: Place) -> None:
        places = self._groups.get(group_id)
        if places is not None:
            places.pop(place, None)
            if not places:
                del self._groups[group_id]

    def put_pending(self, partition: int, producer_id: int, group_id: str, place: Place, commit: Commit) -> None:
        """An offset of a transaction that is open in that partition of the log."""
        self._order += 1
        places = self._pending.setdefault((partition, producer_id), {}).setdefault(group_id, {})
        if place not in places:
            counts = self._open.setdefault(group_id, {})
            counts[place] = counts.get(place, 0) + 1
        places[place] = replace(commit, order=self._order)

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """Its marker is in the log: its offsets count, unless a later commit has overtaken them, or never did."""
        for group_id, places in self._pending.pop((partition, producer_id), {}).items():
            for place, commit in places.items():
                self._close(group_id, place)
                if committed:
                    known = self.get(group_id, place)
                    if known is None or known.order < commit.order:
                        self._groups.setdefault(group_id, {})[place] = commit

    def drop_pending(self, group_id: str) -> None:
        """The group is deleted: what open transactions want to commit to it goes with it."""
        for groups in self._pending.values():
            groups.pop(group_id, None)
        self._open.pop(group_id, None)

    def _close(self, group_id: str, place: Place) -> None:
        counts = self._open.get(group_id)
        if counts is None:
            return
        counts[place] -= 1
        if not counts[place]:
            del counts[place]
        if not counts:
            del self._open[group_id]


def _expiry(commit: Commit, retention_ms: int, empty_since_ms: int | None) -> int:
    if commit.expires_wall_ms >= 0:
        return commit.expires_wall_ms
    return max(commit.committed_wall_ms, empty_since_ms if empty_since_ms is not None else -1) + retention_ms
