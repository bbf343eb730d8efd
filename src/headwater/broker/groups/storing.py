"""Writing to `__consumer_offsets`: steps as one batch each, all the offset commits of one turn of the loop together.

A group's records are appended in the order of its steps. Offset commits depend on nothing that happens within the same
turn, so they may wait for its end and share a batch; whatever else is appended to the partition sends them on first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headwater.broker.groups.effects import Record
from headwater.broker.internal import CONSUMER_OFFSETS
from headwater.broker.promise import Promise
from headwater.wire import batches
from headwater.wire.records.groups import GROUP_RECORDS, OffsetCommitValue

if TYPE_CHECKING:
    from headwater.broker.services import Services
    from headwater.log.results import Appended

__all__ = ["GroupLog", "Producer"]

# A shared batch is closed at this size: well below what a topic accepts by default (1 MiB), large enough that the
# cost of a batch (header, checksum, fsync request) disappears among its records.
SHARED_BATCH_BYTES_MAX = 256 * 1024

EXPIRE_TIMESTAMP_VERSION = 1  # the only version of OffsetCommitValue with an expiry of its own

Producer = tuple[int, int]
"""(producer id, epoch) of a transaction."""


class GroupLog:
    """`applied` is called with the records of a shared batch once it is in the log (not yet on disk); `lost` when the
    disk failed after an append: what was applied may be more than what the log will have."""

    def __init__(self, services: Services, applied: Callable[[list[Record]], None], lost: Callable[[], object]) -> None:
        self._services = services
        self._applied = applied
        self._lost = lost
        self._shared: dict[int, _SharedBatch] = {}

    def partition_of(self, group_id: str) -> int:
        return self._services.internal.partition_of(CONSUMER_OFFSETS, group_id)

    def append(self, group_id: str, records: Iterable[Record], producer: Producer | None = None) -> Promise[Appended]:
        """One batch, now. A promise that has failed when this returns means: not in the log."""
        partition = self.partition_of(group_id)
        self._send(partition)
        wall_ms = self._services.loop.now_ms()
        return self._append(partition, [_encode(record, wall_ms) for record in records], producer)

    def append_shared(self, group_id: str, records: list[Record]) -> Promise[Appended]:
        """With others, at the end of this turn at the latest. The promise fails if the batch is refused."""
        partition = self.partition_of(group_id)
        shared = self._shared.get(partition)
        if shared is None:
            shared = self._shared[partition] = _SharedBatch()
            self._services.loop.call_soon(self._send, partition)
        wall_ms = self._services.loop.now_ms()
        for record in records:
            encoded = _encode(record, wall_ms)
            shared.bytes += len(encoded.key or b"") + len(encoded.value or b"")
            shared.encoded.append(encoded)
        shared.records += records
        promise = shared.promise
        if shared.bytes >= SHARED_BATCH_BYTES_MAX:
            self._send(partition)
        return promise

    def _send(self, partition: int) -> None:
        shared = self._shared.pop(partition, None)
        if shared is None:
            return
        stored = self._append(partition, shared.encoded, None)
        if stored.error is None:
            self._applied(shared.records)
        stored.then(shared.settle)

    def _append(self, partition: int, encoded: list[batches.Record], producer: Producer | None) -> Promise[Appended]:
        if producer is None:
            batch = batches.encode_batch(encoded)
        else:
            batch = batches.encode_batch(
                encoded, producer_id=producer[0], producer_epoch=producer[1], transactional=True
            )
        stored = self._services.internal.append(CONSUMER_OFFSETS, partition, batch)
        if not stored.done:
            stored.then(self._check)
        return stored

    def _check(self, stored: Promise[Appended]) -> None:
        if stored.error is not None:
            self._lost()


class _SharedBatch:
    """Commits that wait for the end of the turn."""

    __slots__ = ("bytes", "encoded", "promise", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.encoded: list[batches.Record] = []
        self.bytes = 0
        self.promise: Promise[Appended] = Promise()

    def settle(self, stored: Promise[Appended]) -> None:
        try:
            appended = stored.result()
        except Exception as error:
            self.promise.fail(error)
        else:
            self.promise.resolve(appended)


def _encode(record: Record, wall_ms: int) -> batches.Record:
    value = record.value
    version = None
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp >= 0:
        version = EXPIRE_TIMESTAMP_VERSION
    return batches.Record(
        key=GROUP_RECORDS.encode_key(record.key),
        value=None if value is None else GROUP_RECORDS.encode_value(value, version),
        timestamp=wall_ms,
    )
