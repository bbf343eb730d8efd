"""Which parts of a segment file have had their checksums verified since it was opened."""

from __future__ import annotations

__all__ = ["VerifiedRanges"]

RANGES_MAX = (
    64  # disjoint ranges remembered for a segment; beyond, the shortest is forgotten and verified again when read
)


class VerifiedRanges:
    """Disjoint, ascending [start, stop) positions. What this process appended counts as verified: it checked it."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, start: int, stop: int) -> None:
        kept = []
        for low, high in self._ranges:
            if high < start or low > stop:
                kept.append((low, high))
            else:
                start, stop = min(start, low), max(stop, high)
        kept.append((start, stop))
        if len(kept) > RANGES_MAX:
            kept.remove(min(kept, key=lambda item: item[1] - item[0]))
        self._ranges = sorted(kept)

    def appended(self, start: int, stop: int) -> None:
        """Bytes were appended at `start`; the hot path of `add`."""
        ranges = self._ranges
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], stop)
        else:
            self.add(start, stop)

    def covers(self, start: int, stop: int) -> bool:
        return self.verified_until(start) >= stop

    def verified_until(self, start: int) -> int:
        """The end of the verified range that contains `start`; `start` itself when none does."""
        for low, high in self._ranges:
            if low <= start < high:
                return high
        return start
