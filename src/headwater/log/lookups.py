"""Finding records by time, and reading a whole log batch by batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.log.layout import CONTROL
from headwater.log.results import TimedOffset
from headwater.log.scanning import BadBatch, Found, corrupted, headers, whole_batches
from headwater.log.segment import NO_TIMESTAMP, Segment
from headwater.wire.batches import BatchHeader, decode_records

if TYPE_CHECKING:
    from headwater.log.partition import PartitionLog

__all__ = ["batches", "max_timestamp", "offset_for_timestamp"]


def batches(log: PartitionLog, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """From the batch with `offset` to the log end, each verified; Corrupted where one is not what was written."""
    number = max(0, bisect_right(log.bases, offset) - 1)
    for segment in log.segments[number:]:
        found = segment.locate(offset)
        if found is None:
            continue
        try:
            for item in whole_batches(segment.file, found.position, segment.size, found.header[0], gaps=segment.gaps):
                yield BatchHeader(*item.header), memoryview(item.content)
        except BadBatch as bad:
            raise corrupted(segment.file, bad) from None


def offset_for_timestamp(log: PartitionLog, timestamp_ms: int, committed: bool) -> TimedOffset | None:
    """The first record at or after that time, from the log start on and below what the reader may see."""
    limit = log.last_stable_offset if committed else log.high_watermark
    for segment in log.segments:
        if segment.base_offset >= limit:
            return None
        if segment is not log.segments[-1] and segment.last_time()[0] < timestamp_ms:
            continue
        found = _in_segment(log, segment, timestamp_ms, limit)
        if found is not None:
            return found
    return None


def _in_segment(log: PartitionLog, segment: Segment, timestamp_ms: int, limit: int) -> TimedOffset | None:
    entry = segment.times.floor(timestamp_ms - 1)
    start = segment.base_offset if entry is None else segment.base_offset + entry[1]
    if entry is not None and not _time_entry_holds(segment, *entry):
        start = segment.base_offset
    for found in _batches_from(segment, max(start, log.log_start_offset)):
        if found.header[0] >= limit:
            return None
        if found.header[8] >= timestamp_ms and not found.header[5] & CONTROL:
            record = _first_at(segment, found, timestamp_ms, log.log_start_offset)
            if record is not None:
                return record if record.offset < limit else None
    return None


def _time_entry_holds(segment: Segment, timestamp: int, relative: int) -> bool:
    """Whether the batch that a time index entry names has that timestamp: a damaged entry must not hide records."""
    found = segment.locate(segment.base_offset + relative)
    return found is not None and found.header[8] == timestamp


def _batches_from(segment: Segment, offset: int) -> Iterator[Found]:
    found = segment.locate(offset)
    if found is None:
        return
    try:
        yield from headers(segment.file, found.position, segment.size)
    except BadBatch as bad:
        raise corrupted(segment.file, bad) from None


def _first_at(segment: Segment, found: Found, timestamp_ms: int, start: int) -> TimedOffset | None:
    segment.verify(found.position, found.position + found.size, found.header[0])
    for record in decode_records(segment.file.read(found.size, found.position)):
        if record.timestamp >= timestamp_ms and record.offset >= start:
            return TimedOffset(record.offset, record.timestamp, found.header[2])
    return None


def max_timestamp(log: PartitionLog) -> TimedOffset | None:
    """The first record with the greatest timestamp of all."""
    best = None
    for segment in log.segments:
        timestamp, offset = segment.last_time()
        if timestamp > NO_TIMESTAMP and (best is None or timestamp > best[0]):
            best = timestamp, offset, segment
    if best is None:
        return None
    timestamp, offset, segment = best
    found = segment.locate(offset)
    return None if found is None else _first_at(segment, found, timestamp, log.log_start_offset)
