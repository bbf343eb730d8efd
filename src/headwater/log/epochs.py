"""Leader epochs: which offsets were written under which leader. Kept in `leader-epoch-checkpoint`.

0 (version)
number of entries
one line each: epoch, a space, the epoch's first offset
"""

from __future__ import annotations

from bisect import bisect_right

from headwater.errors import Corrupted

__all__ = ["LeaderEpochs"]


class LeaderEpochs:
    """Entries (epoch, first offset), ascending in both."""

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries = entries or []

    @property
    def latest(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, offset: int) -> bool:
        """From `offset` on, batches carry `epoch`; whether that is news."""
        if epoch <= self.latest:
            return False
        while self.entries and self.entries[-1][1] >= offset:
            self.entries.pop()  # an epoch that wrote nothing
        self.entries.append((epoch, offset))
        return True

    def of(self, offset: int) -> int:
        number = bisect_right(self.entries, offset, key=lambda entry: entry[1]) - 1
        return self.entries[number][0] if number >= 0 else -1

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(largest epoch <= the asked one, where the next one begins), as OffsetForLeaderEpoch answers; (-1, -1)
        unknown.
        """
        if not self.entries or epoch < 0 or epoch > self.latest:
            return -1, -1
        if epoch == self.latest:
            return epoch, log_end
        number = bisect_right(self.entries, epoch, key=lambda entry: entry[0]) - 1
        if number < 0:
            return epoch, self.entries[0][1]
        return self.entries[number][0], self.entries[number + 1][1]

    def truncate_start(self, offset: int) -> bool:
        """Forget epochs that ended at or before `offset`; its own now begins there. Whether that changed anything."""
        before = list(self.entries)
        while len(self.entries) > 1 and self.entries[1][1] <= offset:
            self.entries.pop(0)
        if self.entries and self.entries[0][1] < offset:
            self.entries[0] = (self.entries[0][0], offset)
        return before != self.entries

    def truncate_end(self, offset: int) -> bool:
        """Forget epochs that begin at or after `offset`."""
        kept = [entry for entry in self.entries if entry[1] < offset]
        changed = len(kept) != len(self.entries)
        self.entries = kept
        return changed

    def encoded(self) -> bytes:
        lines = [f"{epoch} {offset}\n" for epoch, offset in self.entries]
        return f"0\n{len(lines)}\n{''.join(lines)}".encode()

    @classmethod
    def decoded(cls, content: bytes, path: str) -> LeaderEpochs:
        """None from an empty file: Kafka makes those before it has something to write."""
        if not content:
            return cls()
        lines = content.split(b"\n")
        try:
            if lines[0] != b"0" or int(lines[1]) != len([line for line in lines[2:] if line]):
                raise ValueError("the number of lines is not the one given")
            entries = [(int(epoch), int(offset)) for epoch, offset in (line.split() for line in lines[2:] if line)]
        except (ValueError, IndexError) as error:
            raise Corrupted(path, 0, f"not a leader epoch checkpoint: {error}") from None
        if entries != sorted(entries) or len({epoch for epoch, _ in entries}) != len(entries):
            raise Corrupted(path, 0, "leader epochs do not ascend")
        return cls(entries)
