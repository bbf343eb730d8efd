"""Batches and logs for tests of the log."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from headwater.clock import ManualClock
from headwater.filesystem import Filesystem, SystemFilesystem
from headwater.log.compaction import CompactionSettings
from headwater.log.directory import LogDirectory
from headwater.log.partition import PartitionLog
from headwater.log.settings import LogSettings
from headwater.wire.batches import Record, decode_records, encode_batch, split_batches

NOW = 1_700_000_000_000


def batch(*values: str | bytes | None, key: bytes | None = b"k", timestamp: int = NOW, **options: Any) -> bytes:
    """One batch with these values, as a producer sends it."""
    records = [
        Record(key=key, value=value.encode() if isinstance(value, str) else value, timestamp=timestamp)
        for value in values
    ]
    return encode_batch(records, **options)


def keyed(pairs: list[tuple[str, str | None]], *, timestamp: int = NOW, **options: Any) -> bytes:
    records = [
        Record(key=key.encode(), value=None if value is None else value.encode(), timestamp=timestamp)
        for key, value in pairs
    ]
    return encode_batch(records, **options)


def idempotent(sequence: int, *values: str, producer_id: int = 7, epoch: int = 0, **options: Any) -> bytes:
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)


def transactional(sequence: int, *values: str, producer_id: int = 7, epoch: int = 0, **options: Any) -> bytes:
    return idempotent(sequence, *values, producer_id=producer_id, epoch=epoch, transactional=True, **options)


def values_of(data: bytes) -> list[tuple[int, str]]:
    """(offset, value) of every record that is data."""
    return [
        (record.offset, (record.value or b"").decode())
        for header, content in split_batches(data)
        if not header.control
        for record in decode_records(content)
    ]


def read_all(log: PartitionLog, *, committed: bool = False, max_bytes: int = 1 << 20) -> list[tuple[int, str]]:
    """Everything a consumer would see that knows nothing of aborted transactions unless `committed`."""
    records = read_records(log, committed=committed, max_bytes=max_bytes)
    return [(record.offset, (record.value or b"").decode()) for record in records]


def read_records(log: PartitionLog, *, committed: bool = False, max_bytes: int = 1 << 20) -> list[Record]:
    """As a consumer reads: fetch by fetch, leaving out what the answer says is aborted."""
    found: list[Record] = []
    offset = log.log_start_offset
    while True:
        part = log.read(offset, max_bytes, committed=committed)
        content = part.records.read()
        if not content:
            return found
        last = offset
        aborted = list(part.aborted)
        dead: set[int] = set()
        for header, data in split_batches(content):
            last = header.last_offset
            while aborted and aborted[0][1] <= last:
                dead.add(aborted.pop(0)[0])
            if header.control:
                dead.discard(header.producer_id)
                continue
            if header.transactional and header.producer_id in dead:
                continue
            found += [record for record in decode_records(data) if record.offset >= offset]
        offset = last + 1


class Store:
    """A data directory on a real disk that can be closed, killed and opened again."""

    def __init__(
        self,
        path: Path,
        filesystem: Filesystem | None = None,
        clock: ManualClock | None = None,
        compaction: CompactionSettings | None = None,
    ) -> None:
        self.path = path
        self.compaction = compaction
        self.filesystem = filesystem or SystemFilesystem()
        self.clock = clock or ManualClock(NOW)
        self.directory = self._open()

    def _open(self) -> LogDirectory:
        return LogDirectory(
            str(self.path),
            filesystem=self.filesystem,
            clock=self.clock,
            cluster_id="test-cluster",
            compaction=self.compaction,
        )

    def log(self, settings: LogSettings | None = None, topic: str = "events", partition: int = 0) -> PartitionLog:
        log = self.directory.get(topic, partition)
        if log is None:
            return self.directory.create(topic, partition, settings or LogSettings(), uuid.UUID(int=1))
        if settings is not None:
            log.settings = settings
        return log

    def close(self) -> None:
        self.directory.close()

    def kill(self) -> None:
        """Forget everything in memory without closing anything; only the lock goes, as with the process."""
        self.directory.release_lock()

    def reopen(self) -> PartitionLog:
        self.directory = self._open()
        return self.log()
