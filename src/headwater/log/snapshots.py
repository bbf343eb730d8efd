"""Kafka's producer snapshots: the producers' state at an offset, so that recovery need not read from the beginning.

    version 1 (int16), crc32c of what follows (uint32), count (int32), then for each entry of 48 bytes:
    producer id (int64), epoch (int16), last sequence (int32), last offset (int64), offset delta (int32), timestamp
    (int64), coordinator epoch (int32), first offset of the open transaction or -1 (int64)

We write up to five entries for a producer, one for each batch remembered, oldest first. Kafka reads such a file and
keeps the last of them, which is what it would have written; we get back all five, so that retries are recognised also
across restarts.
"""

from __future__ import annotations

from struct import Struct

import google_crc32c

from headwater.errors import Corrupted
from headwater.log.producers import SEQUENCE_MAX, Producer, Producers, RememberedBatch

__all__ = ["decode_snapshot", "encode_snapshot", "snapshot_entries"]

VERSION = 1
_PREFIX = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_ENTRIES_FROM = _PREFIX.size + _COUNT.size

SnapshotEntry = tuple[int, int, int, int, int, int, int, int]


def encode_snapshot(producers: Producers) -> bytes:
    entries: list[bytes] = []
    for producer_id, known in producers.items():
        for batch in known.batches or (RememberedBatch(-1, -1, -1, -1, known.last_timestamp),):
            delta = batch.last_offset - batch.first_offset
            entries.append(
                _ENTRY.pack(
                    producer_id,
                    known.epoch,
                    batch.last_sequence,
                    batch.last_offset,
                    delta,
                    batch.timestamp,
                    known.coordinator_epoch,
                    known.transaction_start,
                )
            )
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _PREFIX.pack(VERSION, google_crc32c.value(body)) + body


def snapshot_entries(content: bytes, path: str) -> list[SnapshotEntry]:
    """The entries as they are in the file; Corrupted when it is not a whole snapshot."""
    if len(content) < _ENTRIES_FROM:
        raise Corrupted(path, len(content), "a producer snapshot ends in its first fields")
    version, crc = _PREFIX.unpack_from(content)
    if version != VERSION:
        raise Corrupted(path, 0, f"producer snapshot version {version}, {VERSION} is known")
    if google_crc32c.value(content[_PREFIX.size :]) != crc:
        raise Corrupted(path, 2, "a producer snapshot does not match its checksum")
    (count,) = _COUNT.unpack_from(content, _PREFIX.size)
    if len(content) != _ENTRIES_FROM + count * _ENTRY.size:
        raise Corrupted(path, _PREFIX.size, f"{count} entries do not fit a snapshot of {len(content)} bytes")
    return list(_ENTRY.iter_unpack(content[_ENTRIES_FROM:]))


def decode_snapshot(content: bytes, path: str, now_ms: int) -> Producers:
    """The producers; each counts as active now, so that a restart expires nobody early."""
    found: dict[int, Producer] = {}
    for producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, start in snapshot_entries(
        content, path
    ):
        known = found.setdefault(producer_id, Producer())
        known.epoch = epoch
        known.coordinator_epoch = coordinator_epoch
        known.last_timestamp = timestamp
        known.transaction_start = start
        known.active_ms = now_ms
        if last_sequence >= 0:
            first_sequence = last_sequence - delta
            if first_sequence < 0:
                first_sequence += SEQUENCE_MAX + 1
            known.batches.append(
                RememberedBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)
            )
    producers = Producers()
    for producer_id, known in sorted(found.items(), key=lambda item: item[1].transaction_start):
        producers.restore(producer_id, known)
    return producers
