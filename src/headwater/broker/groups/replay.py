"""The coordinator's state from the log, at start.

Most records of `__consumer_offsets` are offsets that later ones replace. So their bytes are kept by key, and only those
that are left at the end are decoded; everything else goes to the coordinator in the order of the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from headwater.broker.groups.coordinator import Coordinator, commit_of
from headwater.broker.groups.effects import Record
from headwater.wire.batches import BatchHeader, decode_marker, decode_records
from headwater.wire.records.groups import GROUP_RECORDS, OffsetCommitKey, OffsetCommitValue

__all__ = ["replay"]

OFFSET_COMMIT_KEY = struct.pack(">h", 1)  # what the key of every offset commit begins with


class _Last(NamedTuple):
    """The last value of a key, and its place in the log's order (of two commits the later one counts)."""

    order: int
    value: bytes | None


def replay(coordinator: Coordinator, batches: Iterable[tuple[int, BatchHeader, memoryview]]) -> None:
    """Read everything: (partition, header, batch), oldest first within a partition."""
    reader = _Reader(coordinator)
    for partition, header, batch in batches:
        reader.read(partition, header, batch)
    reader.finish()


class _Reader:
    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._order = 0
        self._offsets: dict[bytes, _Last] = {}
        self._open: dict[tuple[int, int], dict[bytes, _Last]] = {}  # by (partition, producer): not decided yet

    def read(self, partition: int, header: BatchHeader, batch: memoryview) -> None:
        if header.control:
            self._decide(partition, header, batch)
            return
        offsets = self._offsets
        if header.transactional:
            offsets = self._open.setdefault((partition, header.producer_id), {})
        for record in decode_records(batch):
            self._order += 1
            if record.key is None:
                continue
            if record.key.startswith(OFFSET_COMMIT_KEY):
                offsets[record.key] = _Last(self._order, record.value)
                continue
            key = GROUP_RECORDS.decode_key(record.key)
            if key is not None:
                value = None if record.value is None else GROUP_RECORDS.decode_value(key, record.value)
                self._coordinator.replay(Record(key, value))

    def _decide(self, partition: int, header: BatchHeader, batch: memoryview) -> None:
        pending = self._open.pop((partition, header.producer_id), {})
        marker = decode_marker(batch)
        if marker is not None and marker.commit:
            for key, last in pending.items():
                known = self._offsets.get(key)
                if known is None or known.order < last.order:
                    self._offsets[key] = last

    def finish(self) -> None:
        for raw, last in self._offsets.items():
            if last.value is not None:
                key, value = _decode(raw, last.value)
                self._coordinator.replay(Record(key, value))
        for (partition, producer_id), pending in self._open.items():
            for raw, last in pending.items():
                if last.value is not None:
                    key, value = _decode(raw, last.value)
                    place = (key.topic, key.partition)
                    self._coordinator.ensure_group(key.group)
                    self._coordinator.offsets.put_pending(partition, producer_id, key.group, place, commit_of(value))


def _decode(raw: bytes, value: bytes) -> tuple[OffsetCommitKey, OffsetCommitValue]:
    key = GROUP_RECORDS.decode_key(raw)
    assert isinstance(key, OffsetCommitKey)
    read = GROUP_RECORDS.decode_value(key, value)
    assert isinstance(read, OffsetCommitValue)
    return key, read
