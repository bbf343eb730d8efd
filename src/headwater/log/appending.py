"""Writing admitted batches at a log's end: one system call, and what has to be remembered about them.

All or nothing: what a failed write leaves behind the active segment's end is cut off again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.filesystem import Buffer
from headwater.log import retention
from headwater.log.admission import Admitted
from headwater.log.files import LogFile, write_all
from headwater.log.indexes import TimeIndex
from headwater.log.layout import CONTROL, INITIAL, LENGTH_FROM, MAGIC, RELATIVE_OFFSET_MAX
from headwater.log.results import AppendRefused
from headwater.log.segment import Segment
from headwater.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headwater.log.partition import PartitionLog

__all__ = ["write"]

BUFFERS_MAX = 1000  # in one writev; the system's limit is 1024


def write(log: PartitionLog, admitted: list[Admitted], leader_epoch: int, now_ms: int) -> int:
    """Write and remember; the base offset of the first batch."""
    base = offset = log.end
    buffers: list[Buffer] = []
    total = 0
    for header, body in admitted:
        length = header[1]
        buffers += INITIAL.pack(offset, length, leader_epoch, MAGIC, header[4]), body
        total += LENGTH_FROM + length
        offset += header[6] + 1
    try:
        if leader_epoch > log.epochs.latest and log.epochs.assign(leader_epoch, base):
            log.save_epochs()
        segment = _segment_for(log, total, admitted[0][0][8], offset, now_ms)
        position = segment.size
        file = segment.file
        file.used = True
        log.durability.writing(file, now_ms)
        if len(buffers) > BUFFERS_MAX:
            buffers = [b"".join(buffers)]
        written = log.pwritev(file.fd if file.fd >= 0 else file.descriptor(), buffers, position)
        if written != total:
            _write_rest(log, file, buffers, written, position)
    except OSError as error:
        _undo_write(log)
        raise AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.folder} cannot be written: {error}") from error
    _remember(log, admitted, segment, base, now_ms)
    segment.size = position + total
    segment.verified.appended(position, position + total)
    log.unscanned_bytes += total
    log.end = log.durability.end = offset
    if not log.settings.durable_acks:
        log.advance(offset)
    return base


def _write_rest(log: PartitionLog, file: LogFile, buffers: list[Buffer], written: int, position: int) -> None:
    """A disk that is nearly full takes a part of a write, and says so at the next."""
    rest = b"".join(buffers)[written:]
    write_all(log.context.filesystem, file.descriptor(), rest, position + written)


def _undo_write(log: PartitionLog) -> None:
    """All or nothing: what a failed write left behind the active segment's end is cut off again."""
    segment = log.segments[-1]
    try:
        log.context.filesystem.truncate(segment.file.descriptor(), segment.size)
    except OSError as error:
        log.fail(error)


def _remember(log: PartitionLog, admitted: list[Admitted], segment: Segment, offset: int, now_ms: int) -> None:
    """Indexes, recent positions, producers."""
    position = segment.size
    interval, watermark = log.settings.index_interval_bytes, log.watermark
    for header, _ in admitted:
        size = LENGTH_FROM + header[1]
        last = offset + header[6]
        segment.note(position, size, last, header[8], interval)
        log.recent.add(last, position, watermark)
        if header[9] >= 0 and not header[5] & CONTROL:
            log.producer_states.record(header, offset, now_ms)
        position += size
        offset = last + 1


def _segment_for(log: PartitionLog, size: int, timestamp: int, end: int, now_ms: int) -> Segment:
    """The active segment, or a new one if these bytes or that time are too much for it."""
    settings = log.settings
    active = log.segments[-1]
    if active.size and (
        active.size + size > settings.segment_bytes
        or active.offsets.count * TimeIndex.ENTRY.size >= settings.segment_index_bytes
        or end - active.base_offset > RELATIVE_OFFSET_MAX
        or retention.active_for(active, timestamp, now_ms) > settings.segment_ms
    ):
        log.roll()
        active = log.segments[-1]
    if size > settings.segment_bytes:
        raise AppendRefused(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{size} bytes do not fit a segment, segment.bytes is {settings.segment_bytes}",
        )
    return active
