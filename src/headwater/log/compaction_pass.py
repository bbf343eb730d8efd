"""One pass over a log, on a thread of its own: learn the dirty part's keys, then write each group of segments anew.

It reads closed segments and writes `.cleaned` files, with descriptors of its own; the log goes on meanwhile and knows
nothing of it. Every batch read is verified: damage stops the pass, so that it is reported and not copied.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from headwater.clock import Clock
from headwater.errors import Corrupted
from headwater.log.aborted import AbortedIndex, AbortedTransaction
from headwater.log.compaction_filter import AbortedRanges, BatchFilter, Horizon, put_keys
from headwater.log.compaction_keys import LastOffsets
from headwater.log.compaction_plan import Candidate, Source
from headwater.log.context import Context
from headwater.log.files import LogFile, write_all
from headwater.log.layout import CLEANED, CONTROL, Header
from headwater.log.replacement import write_covered
from headwater.log.scanning import BadBatch, Found, corrupted, whole_batches
from headwater.log.segment import Segment
from headwater.wire.errors import CorruptBatch

__all__ = ["CompactionPass", "CompactionStopped", "Pace"]

WORK_MS = 1.0  # computed at a stretch; then
REST_MS = 1.0  # the appending and reading thread has the interpreter for itself
WRITE_BYTES = 1 << 20  # collected before they are written
OPEN_FILES_MAX = 64  # of a pass


class CompactionStopped(Exception):
    """The log was deleted, failed, or the broker stops. Nothing is lost: the next pass begins anew."""


class Pace:
    """Called often by the pass: gives way, and stops it when told to."""

    def __init__(self, clock: Clock) -> None:
        self.stopped = False
        self._clock = clock
        self._since = clock.monotonic_ms()

    def __call__(self) -> None:
        if self.stopped:
            raise CompactionStopped
        if self._clock.monotonic_ms() - self._since >= WORK_MS:
            time.sleep(REST_MS / 1000)
            self._since = self._clock.monotonic_ms()


class CompactionPass:
    """Made on the owner's thread, which calls nothing else while a method runs on another."""

    def __init__(self, candidate: Candidate, pace: Pace, buffer_bytes: int, now_ms: int) -> None:
        log = candidate.log
        self.log = log
        self.pace = pace
        self.upto = candidate.dirty_from  # how far this pass cleans: less than the limit if there are too many keys
        self.bytes_before = self.bytes_after = 0
        self._candidate = candidate
        self._keys = LastOffsets(buffer_bytes)
        self._context = Context(log.context.filesystem, log.context.clock, OPEN_FILES_MAX)
        self._horizon = Horizon(now_ms, log.settings.delete_retention_ms)
        self._interval = log.settings.index_interval_bytes
        self._aborted_files = [
            (segment.aborted.file.path, segment.aborted.count) for segment in log.segments if segment.aborted.count
        ]
        self._last_batches = {
            producer_id: (known.batches[-1].last_offset if known.batches else None, known.epoch)
            for producer_id, known in log.producer_states.items()
        }
        self._aborted = AbortedRanges(())
        self._filter: BatchFilter | None = None

    def learn_keys(self) -> None:
        """Read the dirty part; afterwards `upto` is known."""
        self._aborted = AbortedRanges(self._aborted_entries())
        for source in self._candidate.sources:
            if source.following > self._candidate.dirty_from and not self._learn(source):
                break
        self._filter = BatchFilter(self._keys, self.upto, self._aborted, self._last_batches, self._horizon)

    def _learn(self, source: Source) -> bool:
        """False when the keys no longer fit: the pass ends before that batch."""
        dirty_from = self._candidate.dirty_from
        for found in self._batches(source):
            if found.next_offset <= dirty_from or found.header[5] & CONTROL or found.header in self._aborted:
                continue
            if len(self._keys) and not self._keys.room_for(found.header[12]):
                self.upto = found.header[0]
                return False
            put_keys(self._keys, found, dirty_from, self.pace)
        self.upto = source.following
        return True

    def write(self, group: list[Source]) -> Segment | None:
        """The group's batches that stay, durable in `.cleaned` files; None when that would change nothing."""
        cleaned = Segment(self._context, group[0].segment.folder, group[0].base, {}, CLEANED)
        output = _Output(cleaned, self._interval)
        changed = len(group) > 1
        for source in group:
            entries = {entry.last_offset: entry for entry in self._entries_of(source)}
            for found in self._batches(source):
                changed |= self._keep(found, output, entries)
        if not changed:
            output.discard()
            return None
        output.finish()
        write_covered(cleaned, group[-1].following)
        self.bytes_before += sum(source.size for source in group)
        self.bytes_after += cleaned.size
        return cleaned

    def _keep(self, found: Found, output: _Output, entries: dict[int, AbortedTransaction]) -> bool:
        """Whether the batch changed."""
        assert self._filter is not None
        aborted = entries.get(found.header[0])
        if aborted is not None and self._filter.ends_transaction_with_batches(found.header):
            output.segment.aborted.append(aborted)
        try:
            content = self._filter.kept(found, self.pace)
        except CorruptBatch as error:
            raise Corrupted(output.segment.file.path.removesuffix(CLEANED), found.position, str(error)) from None
        if content is not None:
            output.add(content, found.header)
        return content is not found.content

    def _batches(self, source: Source) -> Iterator[Found]:
        file = LogFile(self._context.files, source.path)
        file.retire()  # never made anew when it is gone
        try:
            for found in whole_batches(file, 0, source.size, None, gaps=True):
                self.pace()
                yield found
        except BadBatch as bad:
            raise corrupted(file, bad) from None
        finally:
            file.close()

    def _aborted_entries(self) -> Iterator[AbortedTransaction]:
        for path, count in self._aborted_files:
            yield from self._read_aborted(path, count)

    def _entries_of(self, source: Source) -> list[AbortedTransaction]:
        index = source.segment.aborted
        return self._read_aborted(index.file.path, index.count) if index.count else []

    def _read_aborted(self, path: str, count: int) -> list[AbortedTransaction]:
        file = LogFile(self._context.files, path)
        file.retire()
        try:
            return AbortedIndex(file, count * AbortedIndex.ENTRY_SIZE).entries()
        finally:
            file.close()


class _Output:
    """A new segment while it is written."""

    def __init__(self, segment: Segment, interval: int) -> None:
        self.segment = segment
        self._interval = interval
        self._filesystem = segment.file.filesystem
        self._buffer = bytearray()
        for file in segment.files():  # all four, so that a crash leaves no doubt which index belongs to which log
            self._filesystem.truncate(file.descriptor(), 0)
            file.pins += 1

    def add(self, content: bytes, header: Header) -> None:
        """A batch made of the one with this header."""
        segment, last = self.segment, header[0] + header[6]
        max_timestamp = int.from_bytes(content[35:43], "big", signed=True)
        segment.note(segment.size, len(content), last, max_timestamp, self._interval)
        segment.size += len(content)
        self._buffer += content
        if len(self._buffer) >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        start = self.segment.size - len(self._buffer)
        write_all(self._filesystem, self.segment.file.descriptor(), self._buffer, start)
        self._buffer.clear()

    def finish(self) -> None:
        """Durable, except for the names."""
        self._flush()
        self.segment.finish()
        for file in self.segment.files():
            self._filesystem.datasync(file.descriptor())
            file.close()

    def discard(self) -> None:
        for file in self.segment.files():
            file.close()
            self._filesystem.remove(file.path)
