"""Where the latest batches of the active segment are: readers at the tail find them without touching the disk."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

__all__ = ["RecentBatches"]

RECENT_MAX = 2048  # batches remembered; when full, the older half that is below the high watermark is forgotten


class RecentBatches:
    """Consecutive batches up to the log end, by last offset and position."""

    __slots__ = ("first_offset", "last_offsets", "positions")

    def __init__(self, end: int) -> None:
        self.restart(end)

    def restart(self, end: int) -> None:
        """A new active segment, or the log was cut."""
        self.first_offset = end
        self.last_offsets: list[int] = []
        self.positions: list[int] = []

    def add(self, last_offset: int, position: int, high_watermark: int) -> None:
        self.last_offsets.append(last_offset)
        self.positions.append(position)
        if len(self.positions) > RECENT_MAX:
            self._forget(min(RECENT_MAX // 2, bisect_left(self.last_offsets, high_watermark)))

    def _forget(self, count: int) -> None:
        if count:
            self.first_offset = self.last_offsets[count - 1] + 1
            del self.last_offsets[:count], self.positions[:count]

    def batch(self, offset: int, size: int) -> tuple[int, int, int]:
        """(base offset, position, end position) of the batch with `offset`, in a segment of `size` bytes.

        For the log end: (log end, size, size). Only for offsets from `first_offset` on.
        """
        number = bisect_left(self.last_offsets, offset)
        base = self.last_offsets[number - 1] + 1 if number else self.first_offset
        count = len(self.positions)
        position = self.positions[number] if number < count else size
        return base, position, self.positions[number + 1] if number + 1 < count else size

    def boundary(self, limit: int) -> int:
        """The greatest position of a batch that is <= limit; 0 when none is."""
        number = bisect_right(self.positions, limit)
        return self.positions[number - 1] if number else 0
