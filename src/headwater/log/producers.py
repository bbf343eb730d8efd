"""What a partition remembers of its producers: sequences for idempotence, open transactions for the last stable offset.

A pure state machine over batch headers: `check` says whether a batch may be appended, `record` that it was; recovery
records without checking.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headwater.log.layout import TRANSACTIONAL, Header
from headwater.log.results import AppendRefused, ProducerStatus
from headwater.wire.batches import Marker
from headwater.wire.errors import ErrorCode

__all__ = ["BATCHES_REMEMBERED", "EndedTransaction", "Producer", "Producers", "RememberedBatch"]

BATCHES_REMEMBERED = 5  # a client has at most this many requests in flight, so a retry can only be of one of them
SEQUENCE_MAX = 2**31 - 1  # after it comes 0
NO_EPOCH = -1


class RememberedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class EndedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int
    aborted: bool


class Producer:
    """One producer id; `transaction_start` is the first offset of its open transaction or -1."""

    __slots__ = ("active_ms", "batches", "coordinator_epoch", "epoch", "last_timestamp", "transaction_start")

    def __init__(self) -> None:
        self.epoch = NO_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_start = -1
        self.active_ms = 0  # when it last wrote here, by our clock
        self.batches: deque[RememberedBatch] = deque(maxlen=BATCHES_REMEMBERED)

    def copy(self) -> Producer:
        other = Producer()
        for name in ("epoch", "coordinator_epoch", "last_timestamp", "transaction_start", "active_ms"):
            setattr(other, name, getattr(self, name))
        other.batches.extend(self.batches)
        return other

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1


class Producers:
    """All producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        # first offset -> producer id; transactions begin at ever greater offsets, so the first key is the smallest
        self._open: dict[int, int] = {}
        # (marker's offset, first offset) of transactions whose marker is not durable yet, by marker
        self._undurable: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._producers)

    def __bool__(self) -> bool:
        return bool(self._producers)

    def items(self) -> Iterable[tuple[int, Producer]]:
        return self._producers.items()

    def statuses(self) -> Iterator[ProducerStatus]:
        for producer_id, known in self._producers.items():
            yield ProducerStatus(
                producer_id,
                known.epoch,
                known.last_sequence,
                known.last_timestamp,
                known.coordinator_epoch,
                known.transaction_start,
            )

    def transaction_start(self, producer_id: int) -> int:
        known = self._producers.get(producer_id)
        return -1 if known is None else known.transaction_start

    def fork(self, producer_ids: set[int]) -> Producers:
        """A trial copy with just these producers, for checking several batches before any of them is written."""
        trial = Producers()
        trial._producers = {key: self._producers[key].copy() for key in producer_ids if key in self._producers}
        return trial

    # -- appends

    def duplicate(self, header: Header) -> RememberedBatch | None:
        """The batch that this one is a retry of."""
        known = self._producers.get(header[9])
        if known is None or known.epoch != header[10]:
            return None
        first_sequence = header[11]
        for batch in known.batches:
            if batch.first_sequence == first_sequence:
                same = batch.last_sequence == last_sequence_of(first_sequence, header[6])
                return batch if same else None
        return None

    def check(self, header: Header, client: bool) -> None:
        """AppendRefused when a data batch breaks the producer's order, epoch or transaction."""
        producer_id, epoch = header[9], header[10]
        known = self._producers.get(producer_id)
        if known is None:
            return  # nothing remembered (new, or expired): any sequence is the first
        if epoch < known.epoch:
            raise _stale_epoch(producer_id, epoch, known.epoch)
        if client:
            self._check_sequence(producer_id, known, epoch, header[11])
        if known.transaction_start >= 0 and not header[5] & TRANSACTIONAL:
            raise AppendRefused(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has an open transaction; its writes must be part of it",
            )

    def _check_sequence(self, producer_id: int, known: Producer, epoch: int, first_sequence: int) -> None:
        if known.epoch == NO_EPOCH:
            return
        last = known.last_sequence if epoch == known.epoch else -1
        expected = 0 if last == SEQUENCE_MAX else last + 1
        if first_sequence != expected:
            raise AppendRefused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} epoch {epoch}: sequence {first_sequence} came, {expected} must be next",
            )

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        known = self._producers.get(producer_id)
        if known is None:
            return
        if epoch < known.epoch:
            raise _stale_epoch(producer_id, epoch, known.epoch)
        if coordinator_epoch < known.coordinator_epoch:
            raise AppendRefused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} of producer {producer_id} < {known.coordinator_epoch}",
            )

    def record(self, header: Header, first_offset: int, now_ms: int) -> None:
        """A data batch is in the log from `first_offset` on."""
        _, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, first_sequence, _ = header
        known = self._known(producer_id, epoch)
        if first_sequence >= 0:  # the broker's own transactional batches have none
            last_sequence = last_sequence_of(first_sequence, delta)
            known.batches.append(
                RememberedBatch(first_sequence, last_sequence, first_offset, first_offset + delta, timestamp)
            )
        known.last_timestamp = timestamp
        known.active_ms = now_ms
        if attributes & TRANSACTIONAL and known.transaction_start < 0:
            known.transaction_start = first_offset
            self._open[first_offset] = producer_id

    def record_marker(self, header: Header, offset: int, marker: Marker, now_ms: int) -> EndedTransaction | None:
        """A marker is in the log; the transaction it ended, if there was one with data."""
        producer_id = header[9]
        known = self._known(producer_id, header[10])
        known.coordinator_epoch = marker.coordinator_epoch
        known.last_timestamp = header[8]
        known.active_ms = now_ms
        start, known.transaction_start = known.transaction_start, -1
        if start < 0:
            return None
        del self._open[start]
        self._undurable.append((offset, start))
        return EndedTransaction(producer_id, start, offset, not marker.commit)

    def _known(self, producer_id: int, epoch: int) -> Producer:
        known = self._producers.get(producer_id)
        if known is None:
            known = self._producers[producer_id] = Producer()
        if epoch != known.epoch:
            known.epoch = epoch
            known.batches.clear()
        return known

    # -- the last stable offset

    def first_unstable(self) -> int | None:
        """The first offset of a transaction that is open, or whose end is not durable yet."""
        first = next(iter(self._open), None)
        if self._undurable:
            ended = min(start for _, start in self._undurable)
            return ended if first is None else min(first, ended)
        return first

    def first_undecided(self) -> int | None:
        """The first offset of an open transaction."""
        return next(iter(self._open), None)

    def durable_below(self, offset: int) -> None:
        """Markers below this offset are durable: their transactions are stable."""
        while self._undurable and self._undurable[0][0] < offset:
            self._undurable.popleft()

    # -- keeping it bounded

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Forget producers that have been silent for so long and have no open transaction; how many."""
        silent = [
            key
            for key, known in self._producers.items()
            if known.transaction_start < 0 and now_ms - known.active_ms >= after_ms
        ]
        for key in silent:
            del self._producers[key]
        return len(silent)

    def restore(self, producer_id: int, known: Producer) -> None:
        """One from a snapshot. Call in ascending order of `transaction_start`."""
        self._producers[producer_id] = known
        if known.transaction_start >= 0:
            self._open[known.transaction_start] = producer_id


def _stale_epoch(producer_id: int, epoch: int, current: int) -> AppendRefused:
    return AppendRefused(
        ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} epoch {epoch} is older than the current {current}"
    )


def last_sequence_of(first_sequence: int, last_offset_delta: int) -> int:
    """The sequence of a batch's last record; after 2^31-1 comes 0."""
    if first_sequence < 0:
        return -1
    last = first_sequence + last_offset_delta
    return last if last <= SEQUENCE_MAX else last - SEQUENCE_MAX - 1
