"""Is a log due for compaction, and what of it? Looks at sizes and times only.

    clean            dirty            not yet
    |----------------|----------------|------------------------ log end
    log start        cleaned upto     limit

The limit is a segment's beginning: never the active segment, nothing a transaction may still decide, nothing younger
than `min.compaction.lag.ms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.log.layout import RELATIVE_OFFSET_MAX
from headwater.log.segment import Segment

if TYPE_CHECKING:
    from headwater.log.partition import PartitionLog
    from headwater.log.settings import LogSettings

__all__ = ["Candidate", "Source", "examine", "grouped", "roll_if_lagging"]


@dataclass(frozen=True, slots=True)
class Source:
    """A closed segment as it is when a pass begins."""

    segment: Segment
    path: str
    size: int
    base: int
    following: int  # the next segment's base offset


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a pass over a log would work on."""

    log: PartitionLog
    sources: tuple[Source, ...]  # clean and dirty ones, up to the limit
    dirty_from: int
    limit: int
    dirty_ratio: float
    overdue: bool  # something has waited longer than max.compaction.lag.ms

    @property
    def due(self) -> bool:
        return self.overdue or self.dirty_ratio > self.log.settings.min_cleanable_dirty_ratio


def examine(log: PartitionLog, cleaned_upto: int, now_ms: int) -> Candidate | None:
    """What could be compacted; None when nothing is dirty."""
    start = log.log_start_offset
    dirty_from = cleaned_upto if start <= cleaned_upto <= log.log_end_offset else start
    sources = _sources(log, dirty_from, now_ms)
    dirty = [source for source in sources if source.following > dirty_from]
    dirty_bytes = sum(source.size for source in dirty)
    if not dirty_bytes:
        return None
    ratio = dirty_bytes / sum(source.size for source in sources)
    overdue = any(_first_time(source.segment) < now_ms - log.settings.max_compaction_lag_ms for source in dirty)
    return Candidate(log, tuple(sources), dirty_from, sources[-1].following, ratio, overdue)


def _sources(log: PartitionLog, dirty_from: int, now_ms: int) -> list[Source]:
    decided, lag_ms = log.last_stable_offset, log.settings.min_compaction_lag_ms
    sources: list[Source] = []
    for segment, following in zip(log.segments[:-1], log.bases[1:], strict=True):
        too_young = lag_ms > 0 and following > dirty_from and _last_time(segment) > now_ms - lag_ms
        if following > decided or too_young:
            break
        sources.append(Source(segment, segment.file.path, segment.size, segment.base_offset, following))
    return sources


def _last_time(segment: Segment) -> int:
    timestamp, _ = segment.last_time()
    return timestamp if timestamp >= 0 else segment.created_ms


def _first_time(segment: Segment) -> int:
    """Of the first batch; of the segment's making when its records have no times."""
    if segment.first_timestamp is None and segment.size:
        batch = segment.first_batch()
        segment.first_timestamp = -1 if batch is None else batch.header[8]
    first = segment.first_timestamp
    return first if first is not None and first >= 0 else segment.created_ms


def roll_if_lagging(log: PartitionLog, now_ms: int) -> None:
    """Close an active segment whose first record must not wait longer for compaction."""
    active, lag_ms = log.segments[-1], log.settings.max_compaction_lag_ms
    if log.settings.cleanup_compact and active.size and _first_time(active) < now_ms - lag_ms:
        log.roll()


def grouped(sources: tuple[Source, ...], settings: LogSettings) -> list[list[Source]]:
    """Neighbours that fit together into one segment."""
    groups: list[list[Source]] = []
    size = index_size = 0
    for source in sources:
        index_bytes = source.segment.offsets.count * source.segment.times.ENTRY.size
        fits = (
            groups
            and size + source.size <= settings.segment_bytes
            and index_size + index_bytes <= settings.segment_index_bytes
            and source.following - groups[-1][0].base <= RELATIVE_OFFSET_MAX
        )
        if not fits:
            groups.append([])
            size = index_size = 0
        groups[-1].append(source)
        size += source.size
        index_size += index_bytes
    return groups
