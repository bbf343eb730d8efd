"""Which segments a topic no longer wants: too old, too much, or below the log start. Whole segments only, never the
active one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.segment import NO_TIMESTAMP, Segment

if TYPE_CHECKING:
    from headwater.log.partition import PartitionLog

__all__ = ["active_for", "expired", "roll_if_due"]


def active_for(segment: Segment, timestamp: int, now_ms: int) -> int:
    """For how long the segment has been written to, by the time of its records if they have any."""
    first = segment.first_timestamp
    if first is None and segment.size:
        batch = segment.first_batch()
        first = segment.first_timestamp = NO_TIMESTAMP if batch is None else batch.header[8]
    if first is not None and first >= 0:
        return timestamp - first
    return now_ms - segment.created_ms


def roll_if_due(log: PartitionLog, now_ms: int) -> None:
    """Close an active segment all of whose records are too old, so that retention reaches it."""
    active = log.segments[-1]
    settings = log.settings
    if active.size and settings.cleanup_delete and 0 <= settings.retention_ms < now_ms - _newest_time(active):
        log.roll()


def _newest_time(segment: Segment) -> int:
    timestamp, _ = segment.last_time()
    return timestamp if timestamp > NO_TIMESTAMP else segment.created_ms


def expired(log: PartitionLog, now_ms: int) -> int:
    """How many of the oldest segments may go. Never what is not durable, nor what an open transaction needs."""
    settings = log.settings
    excess = log.size - settings.retention_bytes
    count = 0
    for segment, following in zip(log.segments[:-1], log.bases[1:], strict=True):
        if following > log.high_watermark:
            break
        old = settings.cleanup_delete and 0 <= settings.retention_ms < now_ms - _newest_time(segment)
        much = settings.cleanup_delete and settings.retention_bytes >= 0 and excess >= segment.size
        if not (old or much or following <= log.log_start_offset):
            break
        excess -= segment.size
        count += 1
    return count
