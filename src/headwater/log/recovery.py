"""Opening a partition's folder: after a clean shutdown by its last batch, after a crash by scanning what follows the
recovery point.

Everything before the recovery point is on the disk together with its indexes; everything after it is read, byte by
byte:

* a batch that is cut off or wrong, with nothing correct after it and nothing durable beyond, is the torn tail of a
  crash: cut off;
* wrong bytes with correct batches after them, or below the recovery point, are damage: they stay where they are, are
  reported as `Corrupted`,
  and whoever reads them gets that error. Offsets are never given twice: after a damaged end a new segment begins at the
  recovery point.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, field

from headwater.errors import Corrupted
from headwater.log.aborted import AbortedTransaction
from headwater.log.context import Context
from headwater.log.epochs import LeaderEpochs
from headwater.log.files import read_whole
from headwater.log.layout import (
    CLEANED,
    CONTROL,
    DELETED,
    EPOCHS_FILE,
    INDEX,
    LOG,
    RELATIVE_OFFSET_MAX,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    TIMES,
    offset_of,
    segment_name,
)
from headwater.log.producers import Producers
from headwater.log.replacement import finish_replacements
from headwater.log.scanning import BadBatch, Found, corrupted, find_batch_after, headers, whole_batches
from headwater.log.segment import Segment
from headwater.log.snapshots import decode_snapshot
from headwater.wire.batches import decode_marker
from headwater.wire.errors import CorruptBatch

__all__ = ["Recovery", "RecoveryPlan", "recover_partition"]

_log = logging.getLogger("headwater.log")


@dataclass(slots=True)
class Recovery:
    """What was found in a folder."""

    segments: list[Segment]
    producers: Producers
    epochs: LeaderEpochs
    log_end: int
    findings: list[Corrupted] = field(default_factory=list)  # damage; the torn tail of a crash too
    scanned_bytes: int = 0
    epochs_from_file: bool = False
    unsynced: list[Segment] = field(default_factory=list)  # that may be in the system's memory only, names included


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What is known about a partition before its files are looked at."""

    folder: str
    start: int  # the log start offset
    recovery_point: int  # everything below is on the disk
    clean: bool  # whether the last shutdown was
    index_interval_bytes: int
    compacted: bool  # whether offsets may be missing


def recover_partition(context: Context, plan: RecoveryPlan) -> Recovery:
    segments, without_indexes = _segments(context, plan)
    recovery = Recovery(segments, Producers(), LeaderEpochs(), 0)
    _load_epochs(context, recovery, plan.folder)
    _reindex(recovery, without_indexes, plan.index_interval_bytes)
    recovery_point = max(plan.recovery_point, segments[0].base_offset)
    snapshot_offset = _load_snapshot(context, recovery, plan.folder, recovery_point)
    if plan.clean and snapshot_offset == recovery_point == _end_by_headers(segments[-1]):
        segments[-1].resume()
        recovery.log_end = recovery_point
    else:
        _Scan(context, recovery, plan, recovery_point, snapshot_offset).run()
    recovery.epochs.truncate_end(recovery.log_end)
    recovery.producers.durable_below(recovery.log_end)
    for finding in recovery.findings:
        _log.warning("%s", finding)
    return recovery


def _segments(context: Context, plan: RecoveryPlan) -> tuple[list[Segment], list[Segment]]:
    """The folder's segments, and those of them whose indexes are gone; what a crash left half done is removed."""
    folder = plan.folder
    entries = context.filesystem.scan(folder)
    if any(entry.name.endswith(SWAP) for entry in entries):
        finish_replacements(context, folder, entries)
        entries = context.filesystem.scan(folder)
    sizes: dict[int, dict[str, int]] = defaultdict(dict)
    for entry in entries:
        if entry.name.endswith((DELETED, CLEANED, TEMPORARY)):
            context.filesystem.remove(f"{folder}/{entry.name}")
            continue
        base = offset_of(entry.name)
        if base is not None:
            sizes[base][entry.name[20:]] = entry.size
    bases = sorted(base for base, found in sizes.items() if LOG in found)
    segments = [Segment(context, folder, base, sizes[base]) for base in bases]
    if not segments:
        segments = [new_segment(context, folder, plan.start)]
    for segment in segments[:-1]:  # compaction never touches the last
        segment.gaps = plan.compacted
    return segments, [s for s in segments if s.size and not {INDEX, TIMES} <= sizes[s.base_offset].keys()]


def _reindex(recovery: Recovery, segments: list[Segment], interval: int) -> None:
    for segment in segments:
        _log.warning("%s has no indexes; they are made anew", segment.file.path)
        try:
            segment.reindex(interval)
        except Corrupted as finding:
            recovery.findings.append(finding)


def new_segment(context: Context, folder: str, base_offset: int) -> Segment:
    """An empty one, with its files (unsynced)."""
    segment = Segment(context, folder, base_offset, {})
    for file in segment.files()[:3]:
        file.descriptor()
    return segment


def _load_epochs(context: Context, recovery: Recovery, folder: str) -> None:
    """From their file, which is written before the first batch of an epoch; without it, from the batches read."""
    path = f"{folder}/{EPOCHS_FILE}"
    if not context.filesystem.exists(path):
        return
    try:
        recovery.epochs = LeaderEpochs.decoded(read_whole(context.filesystem, path), path)
        recovery.epochs_from_file = bool(recovery.epochs.entries)
    except Corrupted as finding:
        recovery.findings.append(finding)


def _end_by_headers(segment: Segment) -> int | None:
    """One past the last batch, if the segment's end is in order."""
    segment.offsets.drop_padding()
    segment.times.drop_padding()
    end = segment.base_offset
    try:
        for found in headers(segment.file, segment.start_near(end + 2**31 - 1), segment.size):
            end = found.next_offset
    except BadBatch:
        return None
    return end


def _load_snapshot(context: Context, recovery: Recovery, folder: str, recovery_point: int) -> int:
    """Start from the newest whole snapshot at or below the recovery point; the offset it is of."""
    offsets = sorted(
        (
            offset
            for entry in context.filesystem.scan(folder)
            if entry.name.endswith(SNAPSHOT) and (offset := offset_of(entry.name)) is not None
        ),
        reverse=True,
    )
    for offset in offsets:
        path = f"{folder}/{segment_name(offset)}{SNAPSHOT}"
        if offset > recovery_point:
            context.filesystem.remove(path)  # of a log end that may not have survived
            continue
        try:
            recovery.producers = decode_snapshot(read_whole(context.filesystem, path), path, context.clock.now_ms())
        except Corrupted as finding:
            recovery.findings.append(finding)
            context.filesystem.remove(path)
            continue
        return offset
    return recovery.segments[0].base_offset


def _finish(segment: Segment) -> None:
    """A closed segment's indexes are made anew: they go to their files; a full disk does not prevent a start."""
    try:
        segment.finish()
    except OSError as error:
        _log.warning("the indexes of %s cannot be written: %s", segment.file.path, error)


class _Scan:
    """One pass over everything that is not known to be in order: checks it, replays it, makes its indexes anew."""

    def __init__(
        self, context: Context, recovery: Recovery, plan: RecoveryPlan, recovery_point: int, snapshot_offset: int
    ) -> None:
        self._context = context
        self._recovery = recovery
        self._plan = plan
        self._recovery_point = recovery_point
        self._snapshot_offset = snapshot_offset  # the producers are known as of here
        self._now_ms = context.clock.now_ms()

    def run(self) -> None:
        segments = self._recovery.segments
        end = segments[0].base_offset
        for segment, following in zip(segments, [s.base_offset for s in segments[1:]] + [None], strict=True):
            if following is None or following > self._recovery_point:
                before = self._recovery.scanned_bytes
                end = self._check(segment, following or segment.base_offset + RELATIVE_OFFSET_MAX)
                if following is not None:
                    _finish(segment)
                if self._recovery.scanned_bytes > before or segment.base_offset >= self._recovery_point:
                    self._recovery.unsynced.append(segment)
                if following is not None and end < following and not segment.gaps:
                    self._missing(segment, end, following)
            elif following > self._snapshot_offset:
                self._replay_headers(segment)
            end = end if following is None else following
        self._recovery.log_end = max(end, self._recovery_point)
        if end < self._recovery_point:
            self._continue_after_loss(end)

    def _missing(self, segment: Segment, first: int, stop: int) -> None:
        reason = f"offsets {first} to {stop - 1} were on the disk and are missing"
        self._recovery.findings.append(Corrupted(segment.file.path, segment.size, reason))

    def _continue_after_loss(self, end: int) -> None:
        """Offsets are never given twice: go on in a new segment where the recovery point says the log ended."""
        segments = self._recovery.segments
        self._missing(segments[-1], end, self._recovery_point)
        segments.append(new_segment(self._context, self._plan.folder, self._recovery_point))

    def _check(self, segment: Segment, limit: int) -> int:
        """Verify a segment, all of whose offsets are below the limit, from the recovery point on; where they end."""
        position, expected = self._trusted_start(segment)
        segment.aborted.truncate(max(expected, self._recovery_point))
        while position < segment.size:
            try:
                for found in whole_batches(segment.file, position, segment.size, expected, gaps=segment.gaps):
                    self._accept(segment, found)
                    position, expected = found.position + found.size, found.next_offset
            except BadBatch as bad:
                possible = range(expected + 1, limit)
                following = find_batch_after(segment.file, bad.position + 1, segment.size, possible)
                if following is None:
                    self._cut_tail(segment, bad, expected)
                    break
                self._recovery.findings.append(corrupted(segment.file, bad))
                position, expected = following.position, following.header[0]
                segment.offsets.append(following.next_offset - 1 - segment.base_offset, position)
        return expected

    def _trusted_start(self, segment: Segment) -> tuple[int, int]:
        """(position, offset) where checking begins: an index entry below the recovery point and the snapshot, or the
        segment's beginning. Index entries from there on are dropped: they are made again.
        """
        segment.offsets.drop_padding()
        segment.times.drop_padding()
        trusted = min(self._recovery_point, self._snapshot_offset) - 1 - segment.base_offset
        entry = segment.offsets.floor(trusted) if trusted >= 0 else None
        start = None if entry is None else segment.proven(*entry)
        if start is None:
            segment.forget_indexes()
            return 0, segment.base_offset
        segment.drop_indexes_from(start.header[0], start.position)
        return start.position, start.header[0]

    def _accept(self, segment: Segment, found: Found) -> None:
        last = found.next_offset - 1
        segment.note(found.position, found.size, last, found.header[8], self._plan.index_interval_bytes)
        segment.verified.appended(found.position, found.position + found.size)
        self._recovery.scanned_bytes += found.size
        if found.header[2] >= 0 and not self._recovery.epochs_from_file:
            self._recovery.epochs.assign(found.header[2], found.header[0])
        self._replay(segment, found, found.content)

    def _cut_tail(self, segment: Segment, bad: BadBatch, end: int) -> None:
        """Nothing correct follows: cut, unless it had been durable: then it stays as evidence."""
        recovery = self._recovery
        if end < self._recovery_point:
            recovery.findings.append(corrupted(segment.file, bad))
            return
        what = "is not what was written" if bad.whole else "was not written to its end"
        reason = f"the last {segment.size - bad.position} bytes: {bad.reason}; a tail that {what} is cut off"
        recovery.findings.append(Corrupted(segment.file.path, bad.position, reason))
        fd = segment.file.descriptor()
        self._context.filesystem.truncate(fd, bad.position)
        self._context.filesystem.datasync(fd)
        segment.size = bad.position

    def _replay_headers(self, segment: Segment) -> None:
        """Producers only, for a segment that is known to be on the disk."""
        try:
            first = segment.locate(self._snapshot_offset)
            if first is None:
                return
            for found in headers(segment.file, first.position, segment.size):
                if found.header[9] >= 0:
                    control = found.header[5] & CONTROL
                    self._replay(segment, found, segment.file.read(found.size, found.position) if control else b"")
        except BadBatch as bad:
            self._recovery.findings.append(corrupted(segment.file, bad))
        except Corrupted as finding:
            self._recovery.findings.append(finding)

    def _replay(self, segment: Segment, found: Found, content: bytes) -> None:
        """What the batch means for producers and transactions."""
        header, producers = found.header, self._recovery.producers
        if header[9] < 0 or header[0] < self._snapshot_offset:
            return
        if not header[5] & CONTROL:
            producers.record(header, header[0], self._now_ms)
            return
        try:
            marker = decode_marker(content)
        except CorruptBatch:
            return
        if marker is None:
            return
        ended = producers.record_marker(header, header[0], marker, self._now_ms)
        if ended is not None and ended.aborted and header[0] >= self._recovery_point:
            undecided = producers.first_undecided()
            stable = header[0] + 1 if undecided is None else undecided
            segment.aborted.append(AbortedTransaction(header[9], ended.first_offset, header[0], stable))
