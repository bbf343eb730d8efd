"""May these batches be appended? Everything Kafka checks before it writes, from the batch headers alone where possible.

Kafka answers: bytes that are not whole batches or do not match their checksum CORRUPT_MESSAGE; batches that break the
format's rules INVALID_RECORD; too large MESSAGE_TOO_LARGE; outside the allowed time INVALID_TIMESTAMP.
"""

from __future__ import annotations

from typing import NamedTuple

import google_crc32c

from headwater.filesystem import Buffer
from headwater.log.layout import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    LENGTH_FROM,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    Header,
)
from headwater.log.results import AppendRefused
from headwater.log.settings import FOREVER_MS, LogSettings
from headwater.wire.errors import ErrorCode

__all__ = ["Admitted", "admit"]

ZSTD = 4  # the newest codec
CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


class Admitted(NamedTuple):
    """A batch that may be written, but for its producer's sequence: `body` is everything from the checksum's start."""

    header: Header
    body: bytes  # from CRC_FROM on; what the checksum covers
    checksum: int

    @property
    def size(self) -> int:
        return CRC_FROM + len(self.body)


def admit(batches: Buffer, settings: LogSettings, now_ms: int, client: bool) -> list[Admitted]:
    """The batches, ready to be written; AppendRefused if any of them cannot be."""
    view = memoryview(batches)
    total = len(view)
    if total == 0:
        raise AppendRefused(ErrorCode.INVALID_RECORD, "there is no record batch to append")
    admitted = []
    position = 0
    while position < total:
        left = total - position
        if left < HEADER_SIZE:
            raise AppendRefused(
                ErrorCode.CORRUPT_MESSAGE, f"{left} bytes at byte {position} are too few for a record batch"
            )
        header: Header = HEADER.unpack_from(view, position)
        size = header[1] + LENGTH_FROM
        if header[3] != MAGIC:
            raise AppendRefused(
                ErrorCode.INVALID_RECORD, f"record batch magic {header[3]}: only {MAGIC} can be appended"
            )
        if size < HEADER_SIZE or size > left:
            raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"a record batch of {size} bytes in the {left} that came")
        if size > settings.max_message_bytes and client:
            raise AppendRefused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record batch of {size} bytes is larger than max.message.bytes, {settings.max_message_bytes}",
            )
        body = bytes(view[position + CRC_FROM : position + size])
        if google_crc32c.value(body) != header[4]:
            raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, "a record batch does not match its checksum")
        _check_rules(header, client)
        admitted.append(_timed(Admitted(header, body, header[4]), settings, now_ms, client))
        position += size
    return admitted


def _check_rules(header: Header, client: bool) -> None:
    base, _, _, _, _, attributes, last_delta, _, _, producer_id, epoch, sequence, count = header
    if count <= 0 or last_delta != count - 1:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD, f"a record batch says it has {count} records, and offsets for {last_delta + 1}"
        )
    if attributes & COMPRESSION_MASK > ZSTD:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"unknown compression {attributes & COMPRESSION_MASK}")
    if not client:
        return
    if base != 0:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD, f"the base offset of a record batch to append must be 0, not {base}"
        )
    if attributes & CONTROL:
        raise AppendRefused(ErrorCode.INVALID_RECORD, "clients cannot write control batches")
    if producer_id >= 0:
        if epoch < 0 or sequence < 0:
            raise AppendRefused(
                ErrorCode.INVALID_RECORD, f"producer {producer_id} sends epoch {epoch}, sequence {sequence}"
            )
    elif attributes & TRANSACTIONAL:
        raise AppendRefused(ErrorCode.INVALID_RECORD, "a transactional record batch without a producer id")


def _timed(batch: Admitted, settings: LogSettings, now_ms: int, client: bool) -> Admitted:
    """Check the producer's timestamps, or put ours in their place."""
    header = batch.header
    if settings.message_timestamp_type == "LogAppendTime":
        return _stamped(batch, now_ms)
    if not client:
        return batch
    if header[5] & LOG_APPEND_TIME:
        raise AppendRefused(
            ErrorCode.INVALID_TIMESTAMP, "the topic takes the producer's timestamps, the batch has a log append time"
        )
    if header[8] - now_ms > settings.message_timestamp_after_max_ms:
        raise AppendRefused(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header[8]} is more than {settings.message_timestamp_after_max_ms} ms ahead",
        )
    before = settings.message_timestamp_before_max_ms
    if before != FOREVER_MS and 0 <= header[7] < now_ms - before:
        raise AppendRefused(ErrorCode.INVALID_TIMESTAMP, f"timestamp {header[7]} is more than {before} ms old")
    return batch


def _stamped(batch: Admitted, now_ms: int) -> Admitted:
    """With the log append time for all its records, as attribute and greatest timestamp; the records stay."""
    fields = list(batch.header)
    fields[5] |= LOG_APPEND_TIME
    fields[8] = now_ms
    rest = HEADER.pack(*fields)[CRC_FROM:]
    body = rest + batch.body[HEADER_SIZE - CRC_FROM :]
    fields[4] = google_crc32c.value(body)
    return Admitted(tuple(fields), body, fields[4])  # type: ignore[arg-type]
