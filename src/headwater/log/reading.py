"""Reading a slice: which bytes of which file, never beyond what the reader may see, never bytes that are not what was
written.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import TYPE_CHECKING

from headwater.errors import Corrupted
from headwater.log.regions import FileRegion
from headwater.log.results import OffsetOutOfRange, Slice
from headwater.log.scanning import BadBatch, Found, corrupted, headers
from headwater.log.segment import Segment

if TYPE_CHECKING:
    from headwater.log.partition import PartitionLog

__all__ = ["read_slice"]

DAMAGE_TOLD_MAX = 100  # places of one log that are reported one by one

_log = logging.getLogger("headwater.log")


def read_slice(log: PartitionLog, offset: int, max_bytes: int, committed: bool, at_least_one: bool) -> Slice:
    start, watermark = log.log_start_offset, log.high_watermark
    stable = log.last_stable_offset
    if not start <= offset <= log.log_end_offset:
        raise OffsetOutOfRange(offset, start, log.log_end_offset)
    limit = stable if committed else watermark
    try:
        number, base, position, stop = _region(log, offset, limit, max_bytes, at_least_one)
    except Corrupted as damage:
        _tell(log, damage)
        raise
    region = FileRegion(log.segments[number].file, position, stop - position)
    aborted = _aborted(log, number, base, stop, limit) if committed and stop > position else ()
    return Slice(region, base, watermark, stable, start, aborted)


def _tell(log: PartitionLog, damage: Corrupted) -> None:
    """Once for each place: whoever runs the broker must know where, and a client may ask again and again."""
    place = damage.path, damage.position
    if place not in log.told and len(log.told) < DAMAGE_TOLD_MAX:
        log.told.add(place)
        _log.error("%s; nothing of it is served; `headwater verify` says what else is damaged", damage)


def _region(
    log: PartitionLog, offset: int, limit: int, max_bytes: int, at_least_one: bool
) -> tuple[int, int, int, int]:
    """(number of the segment, base offset of the first batch, position, end position); empty at or beyond the limit."""
    segments, recent = log.segments, log.recent
    last = len(segments) - 1
    if offset >= limit:
        return last, offset, segments[last].size, segments[last].size
    if offset >= recent.first_offset:
        size = segments[last].size
        base, position, first_end = recent.batch(offset, size)
        stop = size if limit == log.log_end_offset else recent.batch(limit, size)[1]
        if stop - position > max_bytes:
            stop = max(recent.boundary(position + max_bytes), position)
            if stop == position and at_least_one:
                stop = first_end
        return last, base, position, stop
    return _older_region(log, offset, limit, max_bytes, at_least_one)


def _older_region(
    log: PartitionLog, offset: int, limit: int, max_bytes: int, at_least_one: bool
) -> tuple[int, int, int, int]:
    """The same for what has to be found by the indexes, and verified."""
    number = max(0, bisect_right(log.bases, offset) - 1)
    found = log.segments[number].locate(offset)
    while found is None and number + 1 < len(log.segments):
        number += 1
        found = log.segments[number].locate(offset)
    if found is None or found.header[0] >= limit:
        return number, offset, 0, 0
    try:
        return _region_from(log, number, found, limit, (max_bytes, at_least_one))
    except Corrupted:
        beyond = log.segments[number].locate_beyond(found.position, offset)
        if beyond is None or beyond.header[0] >= limit:
            raise
        return _region_from(log, number, beyond, limit, (max_bytes, at_least_one))


def _region_from(
    log: PartitionLog, number: int, found: Found, limit: int, bounds: tuple[int, bool]
) -> tuple[int, int, int, int]:
    """From a batch of a segment on. `bounds`: bytes at most, but at least one batch."""
    max_bytes, at_least_one = bounds
    segment = log.segments[number]
    base, position, first_end = found.header[0], found.position, found.position + found.size
    stop = _limit_position(log, number, limit)
    if stop - position > max_bytes:
        stop = segment.cut_near(position, stop, max_bytes)
        if stop < first_end:
            stop = _walk_to(segment, position, position + max_bytes)
            if stop == position and at_least_one:
                stop = first_end
    if stop > position:
        stop = segment.verify(position, stop, base)
        if stop == position:  # a damaged index had cut within the first batch
            stop = segment.verify(position, first_end, base)
    return number, base, position, stop


def _limit_position(log: PartitionLog, number: int, limit: int) -> int:
    """Where the batches below `limit` end in this segment."""
    segment = log.segments[number]
    following = log.bases[number + 1] if number + 1 < len(log.bases) else log.log_end_offset
    if limit >= following:
        return segment.size
    if number == len(log.segments) - 1 and limit >= log.recent.first_offset:
        return log.recent.batch(limit, segment.size)[1]
    found = segment.locate(limit)
    return segment.size if found is None else found.position


def _walk_to(segment: Segment, position: int, bound: int) -> int:
    """The end of the last whole batch that ends at or before `bound`."""
    try:
        for found in headers(segment.file, position, segment.size):
            if found.position + found.size > bound:
                break
            position = found.position + found.size
    except BadBatch as bad:
        if bad.position == position:
            raise corrupted(segment.file, bad) from None
    return position


def _aborted(log: PartitionLog, number: int, first: int, stop: int, limit: int) -> tuple[tuple[int, int], ...]:
    """Aborted transactions with data in [first, end of the region), whose markers may come much later."""
    if not log.has_aborted:
        return ()
    upper = _next_offset(log.segments[number], stop, limit)
    found: list[tuple[int, int]] = []
    for segment in log.segments[number:]:
        for entry in segment.aborted.ending_from(first):
            if entry.first_offset < upper:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper and entry.last_offset >= upper:
                return tuple(sorted(found, key=lambda item: item[1]))
    return tuple(sorted(found, key=lambda item: item[1]))


def _next_offset(segment: Segment, position: int, limit: int) -> int:
    """The first offset after a region that ends at `position`."""
    if position >= segment.size:
        return limit
    try:
        return min(limit, next(headers(segment.file, position, segment.size)).header[0])
    except (BadBatch, Corrupted):
        return limit
