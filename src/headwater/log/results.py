"""What a log answers: appends, slices of the log, and why it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import BadInput, EnvironmentFailed

if TYPE_CHECKING:
    from headwater.log.regions import FileRegion
    from headwater.wire.errors import ErrorCode

__all__ = ["AppendRefused", "Appended", "OffsetOutOfRange", "ProducerStatus", "Slice", "StorageFailed", "TimedOffset"]


class AppendRefused(BadInput):
    """These batches are not in the log; `code` is what Kafka answers for it."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class OffsetOutOfRange(BadInput):
    """An offset below the log start or beyond the log end was asked for."""

    def __init__(self, offset: int, log_start: int, log_end: int) -> None:
        super().__init__(f"offset {offset} is outside the log, which has {log_start} to {log_end}")
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end


class StorageFailed(EnvironmentFailed):
    """The disk failed this log; it takes no writes until it has recovered. Answer KAFKA_STORAGE_ERROR."""


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where the batches are. They are durable once GroupCommit has called back for `last_offset + 1`."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 unless the topic's timestamps are LogAppendTime
    log_start_offset: int
    duplicate: bool = False  # an idempotent producer's retry: the offsets are those of the first time


class Slice(msgspec.Struct, frozen=True):
    """Whole batches, the first of which contains the offset asked for; `records.length` 0: nothing there yet."""

    records: FileRegion
    base_offset: int  # of the first batch; the offset asked for when the slice is empty
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[
        tuple[int, int], ...
    ]  # (producer id, first offset) of aborted ones, by first offset; committed reads only


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """A record found by time."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerStatus:
    """A producer that the log remembers (DescribeProducers)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int  # -1: it has only written markers
    last_timestamp: int
    coordinator_epoch: int  # -1: no marker yet
    transaction_start_offset: int  # -1: no open transaction
