"""A segment: one `.log` file with its indexes, and finding batches in it.

Everything about a closed segment is read when first asked for: opening a log of a thousand segments touches only the
last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headwater.errors import Corrupted
from headwater.log.aborted import AbortedIndex
from headwater.log.context import Context
from headwater.log.files import LogFile
from headwater.log.indexes import OffsetIndex, TimeIndex
from headwater.log.layout import ABORTED, DELETED, HEADER_SIZE, INDEX, LOG, TIMES, segment_name
from headwater.log.scanning import BadBatch, Found, corrupted, find_batch_after, headers, parse, whole_batches
from headwater.log.verified import VerifiedRanges

__all__ = ["Segment"]

NO_TIMESTAMP = -1


class Segment:
    """Offsets from `base_offset`, in a file of `size` bytes."""

    __slots__ = (
        "aborted",
        "base_offset",
        "created_ms",
        "file",
        "first_timestamp",
        "folder",
        "gaps",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "size",
        "times",
        "unindexed",
        "verified",
    )

    def __init__(
        self, context: Context, folder: str, base_offset: int, sizes: Mapping[str, int], ending: str = ""
    ) -> None:
        """`sizes`: of its files that exist, by suffix. `ending`: of its files' names, while it is not yet the log's."""
        files, cache = context.files, context.cache
        stem = f"{folder}/{segment_name(base_offset)}"
        self.folder = folder
        self.base_offset = base_offset
        self.size = sizes.get(LOG, 0)
        self.file = LogFile(files, stem + LOG + ending)
        index, times = LogFile(files, stem + INDEX + ending), LogFile(files, stem + TIMES + ending)
        self.offsets = OffsetIndex(index, sizes.get(INDEX, 0) // OffsetIndex.ENTRY.size, cache)
        self.times = TimeIndex(times, sizes.get(TIMES, 0) // TimeIndex.ENTRY.size, cache)
        self.aborted = AbortedIndex(LogFile(files, stem + ABORTED + ending), sizes.get(ABORTED, 0))
        self.verified = VerifiedRanges()
        self.gaps = False  # whether offsets may be missing in it: compaction has been, or may be, here
        self.unindexed = 0  # bytes since the last index entry
        self.created_ms = context.clock.now_ms()
        self.first_timestamp: int | None = None  # of the first batch; None: not read yet, or empty
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset  # of the last record of the batch with the greatest timestamp

    def files(self) -> tuple[LogFile, LogFile, LogFile, LogFile]:
        return self.file, self.offsets.file, self.times.file, self.aborted.file

    def forget_cached(self) -> None:
        """It is leaving the log: its indexes are no longer kept in memory."""
        self.offsets.forget_cached()
        self.times.forget_cached()

    def set_aside(self) -> list[str]:
        """Give its files the names of deleted ones, which who holds them still reads; the names."""
        self.forget_cached()
        filesystem, paths = self.file.filesystem, []
        for file in self.files():
            file.retire()
            if filesystem.exists(file.path):
                filesystem.rename(file.path, file.path + DELETED)
                paths.append(file.path + DELETED)
            file.path += DELETED
        return paths

    # -- writing

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int, interval: int) -> None:
        """A batch was written at `position`: keep the indexes and times."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.first_timestamp is None:
            self.first_timestamp = max_timestamp
        if self.unindexed > interval:
            self.offsets.append(last_offset - self.base_offset, position)
            self.times.append_if_later(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self.unindexed = 0
        self.unindexed += size

    def finish(self) -> None:
        """No more appends: the time index says the greatest timestamp, the files say everything (unsynced)."""
        if self.max_timestamp > NO_TIMESTAMP:
            self.times.append_if_later(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.save_indexes()

    def save_indexes(self) -> None:
        self.offsets.save()
        self.times.save()

    # -- reading

    def locate(self, offset: int) -> Found | None:
        """The batch that contains `offset`, or the first one after it; None when all are before it.

        Starts at an index entry that proves itself, otherwise at the beginning; checks order on the way. Damage is
        stepped over when correct batches up to `offset` follow it, otherwise it is Corrupted.
        """
        return self._locate_from(self.start_near(offset), offset)

    def locate_beyond(self, damage: int, offset: int) -> Found | None:
        """The same, when the batch found is not what was written: its header may have claimed too many offsets."""
        beyond = find_batch_after(self.file, damage + 1, self.size, range(self.base_offset, offset + 1))
        return None if beyond is None else self._locate_from(beyond.position, offset)

    def _locate_from(self, position: int, offset: int) -> Found | None:
        damage: Corrupted | None = None  # the first that was met
        while True:
            last = position
            try:
                for found in self._in_order(position):
                    if found.next_offset > offset:
                        return found
                    last = found.position
                return None
            except BadBatch as bad:
                cause = self._cause(bad, last)
                damage = damage or corrupted(self.file, cause)
                beyond = find_batch_after(self.file, cause.position + 1, self.size, range(self.base_offset, offset + 1))
                if beyond is None:
                    raise damage from None
                position = beyond.position

    def _cause(self, bad: BadBatch, before: int) -> BadBatch:
        """Where headers stop making sense, the batch before may be what is damaged: its length says where they are."""
        try:
            next(whole_batches(self.file, before, self.size, None, gaps=True), None)
        except BadBatch as earlier:
            return earlier
        return bad

    def _in_order(self, position: int) -> Iterator[Found]:
        """By header, from a batch that is known to begin at `position`, or from the segment's beginning."""
        expected = self.base_offset if position == 0 else None
        for found in headers(self.file, position, self.size):
            base = found.header[0]
            if expected is not None and (base < expected or (base > expected and not self.gaps)):
                raise BadBatch(found.position, f"a batch has offset {base} where {expected} is next", whole=True)
            expected = found.next_offset
            yield found

    def start_near(self, offset: int) -> int:
        """A position at or before the batch with `offset`, at which a batch certainly begins."""
        entry = self.offsets.floor(offset - self.base_offset) if offset > self.base_offset else None
        found = None if entry is None else self.proven(*entry)
        return 0 if found is None else found.position

    def proven(self, relative: int, position: int) -> Found | None:
        """The batch that an index entry is about, if that is true."""
        if not 0 <= position <= self.size - HEADER_SIZE:
            return None
        try:
            header, size = parse(self.file.read(HEADER_SIZE, position), 0, position, self.size)
        except BadBatch:
            return None
        found = Found(position, size, header, b"")
        return found if found.next_offset - 1 == self.base_offset + relative else None

    def cut_near(self, start: int, stop: int, limit: int) -> int:
        """The greatest known batch boundary in (start, start + limit], at most `stop`; `start` when none is known."""
        if stop - start <= limit:
            return stop
        entry = self.offsets.floor_value(start + limit)
        return entry[1] if entry is not None and start < entry[1] <= stop else start

    def verify(self, start: int, stop: int, expected: int | None) -> int:
        """Check the bytes of [start, stop) unless that was done; where the last whole correct batch ends.

        Corrupted when already the first batch is not what was written.
        """
        end = self.verified.verified_until(start)
        if end >= stop:
            return stop
        end = start
        try:
            for found in whole_batches(self.file, start, stop, expected, gaps=self.gaps):
                end = found.position + found.size
        except BadBatch as bad:
            if end == start and (bad.whole or stop >= self.size or not self._cut_by(bad, stop)):
                raise corrupted(self.file, bad) from None
        if end > start:
            self.verified.add(start, end)
        return end

    def _cut_by(self, bad: BadBatch, stop: int) -> bool:
        """Whether a batch was only found bad because `stop` cuts it."""
        try:
            return bad.position + next(headers(self.file, bad.position, self.size)).size > stop
        except BadBatch:
            return False

    def first_batch(self) -> Found | None:
        try:
            return next(headers(self.file, 0, self.size), None)
        except BadBatch as bad:
            raise corrupted(self.file, bad) from None

    def last_time(self) -> tuple[int, int]:
        """(greatest timestamp, its batch's last offset) by the time index; (-1, base offset) when it says nothing."""
        if self.max_timestamp > NO_TIMESTAMP:
            return self.max_timestamp, self.max_timestamp_offset
        entry = self.times.last()
        if entry is not None:
            self.max_timestamp, self.max_timestamp_offset = entry[0], entry[1] + self.base_offset
        return self.max_timestamp, self.max_timestamp_offset

    def reindex(self, interval: int) -> None:
        """Make both indexes anew from the log (a damaged index, or one that a crash left behind)."""
        self.forget_indexes()
        position = 0
        try:
            for found in headers(self.file, 0, self.size):
                self.note(found.position, found.size, found.next_offset - 1, found.header[8], interval)
                position = found.position
        except BadBatch as bad:
            raise Corrupted(self.file.path, position, bad.reason) from None
        self.finish()

    def drop_indexes_from(self, offset: int, position: int) -> None:
        """Keep the entries for batches before the one with this base offset at this position."""
        self.offsets.truncate(self.offsets.count_below(position, 1))
        self.times.truncate(self.times.count_below(offset - self.base_offset, 1))
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self.last_time()
        entry = self.offsets.last()
        self.unindexed = position - (entry[1] if entry else 0)

    def resume(self) -> None:
        """Go on appending after a clean shutdown."""
        self.last_time()
        entry = self.offsets.last()
        self.unindexed = self.size - (entry[1] if entry else 0)

    def forget_indexes(self) -> None:
        self.offsets.truncate(0)
        self.times.truncate(0)
        self.unindexed = 0
        self.first_timestamp = None
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
