"""Making a log shorter at its end: after a failed disk, and when everything is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.layout import CLEANED, SNAPSHOT, SWAP, offset_of
from headwater.log.producers import Producers
from headwater.log.recovery import RecoveryPlan, new_segment, recover_partition
from headwater.log.segment import Segment

if TYPE_CHECKING:
    from headwater.log.partition import PartitionLog

__all__ = ["recover", "truncate_fully"]


def recover(log: PartitionLog) -> None:
    """Cut what is not known to be on the disk, and read the rest again. OSError while the disk still does not work.

    Nothing that was cut had been acknowledged (or the topic had relaxed that). Syncing the cut file proves that the
    disk works.
    """
    from headwater.log.partition import Opened

    log.stop_compaction()
    durable = log.durability.offset
    for segment in log.segments[1:]:
        if segment.base_offset >= durable:
            _discard(log, segment)
    kept = [log.segments[0], *(s for s in log.segments[1:] if s.base_offset < durable)]
    _cut(log, kept[-1], durable)
    found = recover_partition(
        log.context,
        RecoveryPlan(
            log.folder,
            start=log.log_start_offset,
            recovery_point=min(log.recovery_point, durable),
            clean=False,
            index_interval_bytes=log.settings.index_interval_bytes,
            compacted=any(segment.gaps for segment in kept),
        ),
    )
    log.restart_at(
        Opened(found.segments, found.producers, found.epochs, log.log_start_offset, found.log_end, log.recovery_point)
    )


def _cut(log: PartitionLog, segment: Segment, offset: int) -> None:
    found = segment.locate(offset)
    position = segment.size if found is None else found.position
    filesystem = log.context.filesystem
    fd = segment.file.descriptor()
    filesystem.truncate(fd, position)
    filesystem.datasync(fd)
    filesystem.sync_directory(log.folder)


def _discard(log: PartitionLog, segment: Segment) -> None:
    for file in segment.files():
        file.retire()
        if log.context.filesystem.exists(file.path):
            log.context.filesystem.remove(file.path)


def truncate_fully(log: PartitionLog, offset: int) -> None:
    """Drop everything and go on at `offset`; durable when this returns."""
    from headwater.log.partition import Opened

    log.stop_compaction()
    filesystem = log.context.filesystem
    for segment in log.segments:
        _discard(log, segment)
    for entry in filesystem.scan(log.folder):
        if entry.name.endswith((SNAPSHOT, CLEANED, SWAP)) and offset_of(entry.name) is not None:
            filesystem.remove(f"{log.folder}/{entry.name}")
    segment = new_segment(log.context, log.folder, offset)
    filesystem.sync_directory(log.folder)
    epochs = log.epochs
    epochs.truncate_end(offset)
    epochs.truncate_start(offset)
    log.restart_at(Opened([segment], Producers(), epochs, offset, offset, offset))
    log.save_epochs()
