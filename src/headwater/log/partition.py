"""One partition on disk: append, read, look up.

Invariants: log start <= last stable offset <= high watermark <= log end. Nothing at or beyond the high watermark is
ever served; where the topic asks for durable acknowledgements, everything below it is on the disk. Segments ascend
without overlap; only the last one is written to. Every batch keeps the offsets it got.

Appending costs the same whatever is behind: it touches the last segment only, and never a list that grows with the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from headwater.filesystem import Buffer
from headwater.log import lookups, rewriting, truncation
from headwater.log.aborted import AbortedTransaction
from headwater.log.admission import Admitted, admit
from headwater.log.appending import write
from headwater.log.context import Context
from headwater.log.durability import Durability, SyncJob
from headwater.log.epochs import LeaderEpochs
from headwater.log.files import write_whole
from headwater.log.layout import DELETED, EPOCHS_FILE, SNAPSHOT, segment_name
from headwater.log.producers import Producers, RememberedBatch
from headwater.log.reading import read_slice
from headwater.log.recent import RecentBatches
from headwater.log.results import (
    Appended,
    AppendRefused,
    OffsetOutOfRange,
    ProducerStatus,
    Slice,
    StorageFailed,
    TimedOffset,
)
from headwater.log.segment import Segment
from headwater.log.settings import LogSettings
from headwater.log.snapshots import encode_snapshot
from headwater.wire.batches import BatchHeader, Marker, encode_marker
from headwater.wire.errors import ErrorCode

__all__ = ["AppendRefused", "Appended", "Name", "OffsetOutOfRange", "Opened", "PartitionLog", "Slice"]

_log = logging.getLogger("headwater.log")


class Name(NamedTuple):
    topic: str
    partition: int
    topic_id: UUID
    folder: str


@dataclass(slots=True)
class Opened:
    """What creation or recovery found on the disk."""

    segments: list[Segment]
    producers: Producers
    epochs: LeaderEpochs
    log_start: int
    log_end: int  # all of it durable
    recovery_point: int


class Stoppable(Protocol):
    stopped: bool


class PartitionLog:
    """Made by LogDirectory. Not thread-safe: its owner, the event-loop thread, calls it.

    Names below the line are for the other modules of this package.
    """

    def __init__(
        self,
        context: Context,
        name: Name,
        settings: LogSettings,
        opened: Opened,
    ) -> None:
        self.topic = name.topic
        self.partition = name.partition
        self.topic_id = name.topic_id
        self.settings = settings  # may be replaced at any time
        self.failure: StorageFailed | None = None  # why it takes no writes at the moment
        # ----
        self.context = context
        self.folder = name.folder
        self.segments = opened.segments
        self.bases = [segment.base_offset for segment in opened.segments]
        self.producer_states = opened.producers
        self.epochs = opened.epochs
        self.durability = Durability(name.folder, opened.log_end)
        self.recent = RecentBatches(opened.log_end)
        self.recovery_point = opened.recovery_point
        self.has_aborted = any(segment.aborted.count for segment in opened.segments)
        self.compaction: Stoppable | None = None  # the pass that is replacing its closed segments
        self.unscanned_bytes = 0  # written since the recovery point: what a crash would make us read
        self._snapshot_offset = -1  # of the newest that was written since the log was opened
        self._start = opened.log_start
        self.end = opened.log_end  # moved by `appending`
        self.watermark = opened.log_end
        self.told: set[tuple[str, int]] = set()  # damage that has been reported
        self._now_ms = context.clock.now_ms
        self.pwritev = context.filesystem.pwritev

    def __repr__(self) -> str:
        return f"<PartitionLog {self.topic}-{self.partition} {self._start}..{self.end}>"

    @property
    def log_start_offset(self) -> int:
        return self._start

    @property
    def log_end_offset(self) -> int:
        return self.end

    @property
    def high_watermark(self) -> int:
        """What readers may see: what is durable, or the log end where the topic relaxes flushing."""
        return self.watermark

    @property
    def last_stable_offset(self) -> int:
        """What committed readers may see: below it every transaction has ended."""
        unstable = self.producer_states.first_unstable()
        return self.watermark if unstable is None or unstable > self.watermark else unstable

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def unflushed(self) -> bool:
        """Whether an append waits for the disk."""
        return self.durability.offset < self.end

    @property
    def leader_epoch(self) -> int:
        """The newest epoch in the log; -1 when it has none."""
        return self.epochs.latest

    # -- appending

    def append(self, batches: Buffer, *, leader_epoch: int, client: bool = True) -> Appended:
        """Append one or more concatenated v2 batches; AppendRefused when any of them cannot be (then none is).

        `client=False` for the broker's own batches: sequences and client-only rules are not checked.
        """
        if self.failure is not None:
            self._recover_or_refuse()
        settings = self.settings
        now_ms = self._now_ms()
        admitted = admit(batches, settings, now_ms, client)
        if client and (settings.cleanup_compact or settings.compression_type != "producer"):
            admitted = [rewriting.examined(batch, settings) for batch in admitted]
        duplicate = self._check_producers(admitted, client)
        if duplicate is not None:
            return Appended(duplicate.first_offset, duplicate.last_offset, -1, self._start, duplicate=True)
        base = write(self, admitted, leader_epoch, now_ms)
        stamp = now_ms if settings.message_timestamp_type == "LogAppendTime" else -1
        return Appended(base, self.end - 1, stamp, self._start)

    def append_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, leader_epoch: int
    ) -> Appended:
        """Append the control batch that ends a producer's transaction here; AppendRefused for a fenced epoch."""
        if self.failure is not None:
            self._recover_or_refuse()
        states = self.producer_states
        states.check_marker(producer_id, producer_epoch, coordinator_epoch)
        now_ms = self._now_ms()
        content = encode_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
        admitted = admit(content, self.settings, now_ms, client=False)
        offset = write(self, admitted, leader_epoch, now_ms)
        ended = states.record_marker(admitted[0][0], offset, Marker(commit, coordinator_epoch), now_ms)
        if ended is not None and ended.aborted:
            self._index_aborted(producer_id, ended.first_offset, offset)
        if not self.settings.durable_acks:
            states.durable_below(self.end)
        return Appended(offset, offset, -1, self._start)

    def _check_producers(self, admitted: list[Admitted], client: bool) -> RememberedBatch | None:
        """AppendRefused for a batch out of turn; the first batch that is a retry of a remembered one."""
        producing = [header for header, _ in admitted if header[9] >= 0]
        if not producing:
            return None
        states = self.producer_states
        if len(producing) > 1:
            states = states.fork({header[9] for header in producing})
        for header in producing:
            duplicate = states.duplicate(header) if client else None
            if duplicate is not None:
                return duplicate
            states.check(header, client)
            if len(producing) > 1:
                states.record(header, 0, 0)
        return None

    def _index_aborted(self, producer_id: int, first_offset: int, marker_offset: int) -> None:
        undecided = self.producer_states.first_undecided()
        stable = marker_offset + 1 if undecided is None else undecided
        try:
            self.segments[-1].aborted.append(AbortedTransaction(producer_id, first_offset, marker_offset, stable))
        except OSError as error:
            # Without the entry, readers would take the aborted records for committed: cut the marker off again.
            self.fail(error)
            raise AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.folder} cannot be written: {error}") from error
        self.has_aborted = True

    # -- reading

    def read(self, offset: int, max_bytes: int, *, committed: bool = False, at_least_one: bool = True) -> Slice:
        """Whole batches from the one that contains `offset`, below the high watermark (committed: last stable offset).

        At most `max_bytes`, except that `at_least_one` lets the first batch exceed it. OffsetOutOfRange outside the
        log; Corrupted when the bytes there are not what was written.
        """
        return read_slice(self, offset, max_bytes, committed, at_least_one)

    def batches(self, offset: int | None = None) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch from the one with `offset` (default: all) to the log end, verified; for replay at start."""
        return lookups.batches(self, self._start if offset is None else offset)

    def offset_for_timestamp(self, timestamp_ms: int, *, committed: bool = False) -> TimedOffset | None:
        """The first record at or after that time; None when there is none readable."""
        return lookups.offset_for_timestamp(self, timestamp_ms, committed)

    def max_timestamp(self) -> TimedOffset | None:
        """The first of the records with the greatest timestamp; None for an empty log."""
        return lookups.max_timestamp(self)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which `offset` was (or would be) written; -1 when unknown."""
        return self.epochs.of(offset)

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: (largest epoch <= the asked one, its end offset); (-1, -1) when unknown."""
        return self.epochs.end_of(leader_epoch, self.end)

    def producers(self) -> Iterator[ProducerStatus]:
        """Every producer remembered (DescribeProducers)."""
        return self.producer_states.statuses()

    def open_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction here, or None."""
        start = self.producer_states.transaction_start(producer_id)
        return None if start < 0 else start

    # -- shortening

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset (to the high watermark for -1); the new one. OffsetOutOfRange beyond it."""
        wanted = self.watermark if offset == -1 else offset
        if not 0 <= wanted <= self.watermark:
            raise OffsetOutOfRange(wanted, self._start, self.watermark)
        self.raise_start(wanted)
        return self._start

    def truncate_fully(self, offset: int) -> None:
        """Drop everything and go on at `offset`."""
        truncation.truncate_fully(self, offset)

    # ---- for the other modules of this package

    def sync_job(self) -> SyncJob:
        """What would make everything appended so far durable. Any thread."""
        return self.durability.job()

    def synced(self, job: SyncJob) -> bool:
        """The job was done; whether readers may see more now."""
        if self.failure is not None:
            return False
        self.durability.done(job)
        return self.advance(self.durability.offset)

    def flush_to_disk(self) -> None:
        """Make everything appended so far durable, on the caller's thread."""
        if self.failure is not None:
            raise self.failure
        job = self.sync_job()
        try:
            job.run(self.context.filesystem)
        except OSError as error:
            raise self.fail(error) from error
        self.synced(job)

    def advance(self, watermark: int) -> bool:
        if watermark <= self.watermark:
            return False
        self.watermark = watermark
        self.producer_states.durable_below(watermark)
        return True

    def fail(self, error: OSError) -> StorageFailed:
        """Nothing may be written any more: after a failed sync nobody knows which bytes are on the disk."""
        if self.failure is None:
            _log.error("%s takes no writes until it has recovered: %s", self.folder, error)
            self.failure = StorageFailed(
                f"{self.folder}: the disk failed: {error}; the log recovers when it works again"
            )
        return self.failure

    def _recover_or_refuse(self) -> None:
        try:
            truncation.recover(self)
        except OSError as error:
            raise AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.failure} ({error})") from error

    def roll(self) -> None:
        """Begin a new segment at the log end."""
        self.segments[-1].finish()
        self.snapshot()
        segment = Segment(self.context, self.folder, self.end, {})
        for file in segment.files()[:3]:
            file.descriptor()
        self.durability.folder_changed()
        self.segments.append(segment)
        self.bases.append(self.end)
        self.recent.restart(self.end)

    def snapshot(self) -> str:
        """Write the producers' state as of the log end (unsynced); the file's path.

        Once for an offset: writing a synced one anew would make it unsynced.
        """
        path = f"{self.folder}/{segment_name(self.end)}{SNAPSHOT}"
        if self._snapshot_offset == self.end:
            return path
        write_whole(self.context.filesystem, path, encode_snapshot(self.producer_states), durable=False)
        self._snapshot_offset = self.end
        return path

    def save_epochs(self) -> None:
        write_whole(self.context.filesystem, f"{self.folder}/{EPOCHS_FILE}", self.epochs.encoded())

    def raise_start(self, offset: int) -> None:
        if offset > self._start:
            self._start = offset
            if self.epochs.truncate_start(offset):
                self.save_epochs()

    def drop_first(self, count: int) -> list[str]:
        """Let go of the oldest segments; the log starts with the next. The paths of their files, still there."""
        dropped = self.segments[:count]
        del self.segments[:count], self.bases[:count]
        self.raise_start(self.bases[0])
        paths = []
        for segment in dropped:
            segment.forget_cached()
            for file in segment.files():
                file.retire()
                if self.context.filesystem.exists(file.path):
                    paths.append(file.path)
                file.path += DELETED
            snapshot = f"{self.folder}/{segment_name(segment.base_offset)}{SNAPSHOT}"
            if self.context.filesystem.exists(snapshot):
                paths.append(snapshot)
        return paths

    def put_in_place_of(self, old: list[Segment], new: Segment) -> None:
        """Compaction has made one segment of several neighbours."""
        first = self.segments.index(old[0])
        self.segments[first : first + len(old)] = [new]
        self.bases[first : first + len(old)] = [new.base_offset]
        self.has_aborted = any(segment.aborted.count for segment in self.segments)

    def stop_compaction(self) -> None:
        """Its segments are about to change otherwise."""
        if self.compaction is not None:
            self.compaction.stopped = True
            self.compaction = None

    def restart_at(self, opened: Opened) -> None:
        """Go on with what recovery or truncation left."""
        self.segments = opened.segments
        self.bases = [segment.base_offset for segment in opened.segments]
        self.producer_states = opened.producers
        self.epochs = opened.epochs
        self.has_aborted = any(segment.aborted.count for segment in opened.segments)
        self._start, self.end, self.watermark = opened.log_start, opened.log_end, opened.log_end
        self.durability.reset(opened.log_end)
        self._snapshot_offset = -1
        self.recent.restart(opened.log_end)
        self.recovery_point = min(self.recovery_point, opened.recovery_point)
        self.failure = None
