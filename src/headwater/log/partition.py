"""One partition on disk: append, read, look up. Interface first; the parts follow in the next commits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from headwater.filesystem import Buffer
from headwater.log.results import Appended, AppendRefused, OffsetOutOfRange, ProducerStatus, Slice, TimedOffset
from headwater.log.settings import LogSettings

if TYPE_CHECKING:
    from headwater.wire.batches import BatchHeader

__all__ = ["AppendRefused", "Appended", "OffsetOutOfRange", "PartitionLog", "Slice"]


class PartitionLog:
    """Made by LogDirectory. Not thread-safe: its owner, the event-loop thread, calls it."""

    topic: str
    partition: int
    topic_id: UUID
    settings: LogSettings  # may be replaced at any time

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int:
        """What readers may see: what is durable, or the log end where the topic relaxes flushing."""
        ...

    @property
    def last_stable_offset(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of all segments."""
        ...

    @property
    def unflushed(self) -> bool:
        """Whether an append waits for the disk."""
        ...

    @property
    def leader_epoch(self) -> int:
        """The newest epoch in the log; -1 when it has none."""
        ...

    @property
    def failure(self) -> Exception | None:
        """Why the log takes no writes at the moment."""
        ...

    def append(self, batches: Buffer, *, leader_epoch: int, client: bool = True) -> Appended:
        """Append one or more concatenated v2 batches; AppendRefused when any of them cannot be (then none is).

        `client=False` for the broker's own batches: sequences and client-only rules are not checked.
        """
        ...

    def append_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, leader_epoch: int
    ) -> Appended:
        """Append the control batch that ends a producer's transaction here; AppendRefused for a fenced epoch."""
        ...

    def read(self, offset: int, max_bytes: int, *, committed: bool = False, at_least_one: bool = True) -> Slice:
        """Whole batches from the one that contains `offset`, below the high watermark (committed: last stable offset).

        At most `max_bytes`, except that `at_least_one` lets the first batch exceed it. OffsetOutOfRange outside the log;
        Corrupted when the bytes there are not what was written.
        """
        ...

    def batches(self, offset: int | None = None) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch from the one that contains `offset` (default: all) to the log end; for replay at start."""
        ...

    def offset_for_timestamp(self, timestamp_ms: int, *, committed: bool = False) -> TimedOffset | None:
        """The first record at or after that time; None when there is none readable."""
        ...

    def max_timestamp(self) -> TimedOffset | None:
        """The first of the records with the greatest timestamp; None for an empty log."""
        ...

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which `offset` was (or would be) written; -1 when unknown."""
        ...

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: (largest epoch <= the asked one, its end offset); (-1, -1) when unknown."""
        ...

    def producers(self) -> Iterator[ProducerStatus]:
        """Every producer remembered (DescribeProducers)."""
        ...

    def open_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction here, or None."""
        ...

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset (to the high watermark for -1); the new one. OffsetOutOfRange beyond the high watermark."""
        ...

    def truncate_fully(self, offset: int) -> None:
        """Drop everything and go on at `offset`."""
        ...
