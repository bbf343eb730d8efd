"""What compaction keeps of each batch. Pure: batches in, batches out, in the order of their offsets.

A record is kept when no later record of the compacted part has its key. Tombstones are kept until the delete horizon
of their batch: `delete.retention.ms` after the first pass that met them, written into the batch in place of its base
timestamp. Records of aborted transactions go at once; a marker goes, after a horizon of its own, once no batch of its
transaction is left. The last batch of an active producer stays, empty if need be, so that its sequence is not
forgotten. Batches keep their first and last offsets, sequences and epochs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import google_crc32c

from headwater.log.aborted import AbortedTransaction
from headwater.log.compaction_keys import LastOffsets
from headwater.log.layout import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_FROM,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Header,
)
from headwater.log.scanning import Found
from headwater.wire.batches import BatchHeader, decode_marker, encode_batch
from headwater.wire.compression import Codec, compress
from headwater.wire.raw_records import RawRecord, raw_records, with_base_timestamp

__all__ = ["AbortedRanges", "BatchFilter", "Horizon", "put_keys"]

PACE_RECORDS = 256  # between two calls of `pace` within a batch: about half a millisecond

Pace = Callable[[], None]


class AbortedRanges:
    """Whether a transactional batch belongs to an aborted transaction. 16 bytes each."""

    def __init__(self, entries: Iterable[AbortedTransaction]) -> None:
        self._ranges: dict[int, tuple[array[int], array[int]]] = {}
        for entry in entries:  # a producer's transactions follow one another, so both arrays ascend
            firsts, lasts = self._ranges.setdefault(entry.producer_id, (array("q"), array("q")))
            firsts.append(entry.first_offset)
            lasts.append(entry.last_offset)

    def __contains__(self, header: Header) -> bool:
        ranges = self._ranges.get(header[9])
        if ranges is None or not header[5] & TRANSACTIONAL:
            return False
        number = bisect_right(ranges[0], header[0]) - 1
        return number >= 0 and header[0] < ranges[1][number]


def put_keys(keys: LastOffsets, found: Found, start: int, pace: Pace) -> None:
    """Remember the keys of a batch, from offset `start` on."""
    base = found.header[0]
    for number, record in enumerate(raw_records(BatchHeader(*found.header), found.content)):
        if record.key is not None and base + record.offset_delta >= start:
            keys.put(record.key, base + record.offset_delta)
        if not number % PACE_RECORDS:
            pace()


@dataclass(frozen=True, slots=True)
class Horizon:
    """Times of a pass."""

    now_ms: int
    delete_retention_ms: int

    @property
    def next_ms(self) -> int:
        return self.now_ms + self.delete_retention_ms


class BatchFilter:
    """One pass. Batches must come in ascending order from the log's first on: markers follow their transactions."""

    def __init__(
        self,
        keys: LastOffsets,
        keys_end: int,
        aborted: AbortedRanges,
        last_batches: Mapping[int, tuple[int | None, int]],
        horizon: Horizon,
    ) -> None:
        """`keys` knows all records of the dirty part below `keys_end`. `last_batches`: the active producers' last
        (data offset or None when only markers are known, epoch)."""
        self._keys = keys
        self._keys_end = keys_end
        self._aborted = aborted
        self._last_batches = last_batches
        self._horizon = horizon
        self._with_batches: set[int] = set()  # producers whose current transaction still has a batch

    def kept(self, found: Found, pace: Pace) -> bytes | None:
        """What is left of the batch; None for nothing."""
        if found.header[5] & CONTROL:
            return self._kept_marker(found)
        if found.header[5] & TRANSACTIONAL:
            self._with_batches.add(found.header[9])
        if found.header in self._aborted:
            return self._last_of_producer(found)
        if found.header[0] >= self._keys_end:
            return found.content
        return self._kept_records(found, pace)

    def ends_transaction_with_batches(self, header: Header) -> bool:
        """For a marker about to be given to `kept`: whether a batch of its transaction was met."""
        return header[9] in self._with_batches

    def _kept_marker(self, found: Found) -> bytes | None:
        header = found.header
        if header[12]:
            if decode_marker(found.content) is None:
                return found.content  # not of a transaction
            if header[9] in self._with_batches:
                self._with_batches.discard(header[9])
                return found.content
        horizon = _horizon_of(header)
        if not header[12] or (horizon is not None and horizon <= self._horizon.now_ms):
            return self._last_of_producer(found)
        if horizon is not None:
            return found.content
        return _rebuilt(found, list(raw_records(BatchHeader(*header), found.content)), self._horizon.next_ms)

    def _kept_records(self, found: Found, pace: Pace) -> bytes | None:
        header = found.header
        horizon = _horizon_of(header)
        tombstones_stay = horizon is None or self._horizon.now_ms < horizon
        kept: list[RawRecord] = []
        tombstones = False
        for number, record in enumerate(raw_records(BatchHeader(*header), found.content)):
            if (
                record.key is not None
                and (record.has_value or tombstones_stay)
                and not self._keys.superseded(record.key, header[0] + record.offset_delta)
            ):
                kept.append(record)
                tombstones |= not record.has_value
            if not number % PACE_RECORDS:
                pace()
        if not kept:
            return self._last_of_producer(found)
        new_horizon = self._horizon.next_ms if tombstones and horizon is None else None
        if len(kept) == header[12] and new_horizon is None:
            return found.content
        return _rebuilt(found, kept, new_horizon)

    def _last_of_producer(self, found: Found) -> bytes | None:
        """Without records, and only if it is what remembers an active producer's sequence or epoch."""
        header = found.header
        known = self._last_batches.get(header[9])
        if known is None:
            return None
        last_offset, epoch = known
        if last_offset is None:
            is_last = bool(header[5] & CONTROL) and header[10] == epoch
        else:
            is_last = header[0] + header[6] == last_offset
        if not is_last:
            return None
        return _emptied(header) if header[12] else found.content


def _horizon_of(header: Header) -> int | None:
    return header[7] if header[5] & DELETE_HORIZON else None


def _emptied(header: Header) -> bytes:
    """The batch without its records."""
    return encode_batch(
        [],
        base_offset=header[0],
        last_offset=header[0] + header[6],
        leader_epoch=header[2],
        producer_id=header[9],
        producer_epoch=header[10],
        base_sequence=header[11],
        transactional=bool(header[5] & TRANSACTIONAL),
        control=bool(header[5] & CONTROL),
        log_append_time=header[8] if header[5] & LOG_APPEND_TIME else None,
        max_timestamp=header[8],
    )


def _rebuilt(found: Found, kept: list[RawRecord], new_horizon: int | None) -> bytes:
    """The batch with fewer records, or a horizon, and everything else as it was."""
    header = found.header
    attributes, base_timestamp = header[5], header[7]
    max_timestamp = header[8]
    if not attributes & LOG_APPEND_TIME:
        max_timestamp = base_timestamp + max(record.timestamp_delta for record in kept)
    if new_horizon is None:
        body = b"".join(record.content for record in kept)
    else:
        shift = base_timestamp - new_horizon
        body = b"".join(with_base_timestamp(record, shift) for record in kept)
        attributes |= DELETE_HORIZON
        base_timestamp = new_horizon
    packed = compress(Codec(attributes & COMPRESSION_MASK), body)
    fields = list(header)
    fields[1] = HEADER_SIZE - LENGTH_FROM + len(packed)
    fields[5], fields[7], fields[8], fields[12] = attributes, base_timestamp, max_timestamp, len(kept)
    content = HEADER.pack(*fields) + packed
    fields[4] = google_crc32c.value(content[CRC_FROM:])
    return HEADER.pack(*fields) + packed
