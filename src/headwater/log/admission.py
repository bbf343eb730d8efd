"""May these batches be appended? Everything Kafka checks before it writes, from the batch headers alone where possible.

Kafka answers: bytes that are not whole batches or do not match their checksum CORRUPT_MESSAGE; batches that break the
format's rules INVALID_RECORD; too large MESSAGE_TOO_LARGE; outside the allowed time INVALID_TIMESTAMP.
"""

from __future__ import annotations

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

__all__ = ["CODECS", "Admitted", "admit"]

CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


# A batch that may be written, but for its producer's sequence: its header, and everything the checksum covers. A plain
# tuple, because one is made for every batch that is appended.
Admitted = tuple[Header, bytes]

_RARE = CONTROL | LOG_APPEND_TIME | TRANSACTIONAL | 0x04  # attributes that need a second look (and zstd's bit)


def admit(batches: Buffer, settings: LogSettings, now_ms: int, client: bool) -> list[Admitted]:
    """The batches, ready to be written; AppendRefused if any of them cannot be."""
    view = memoryview(batches)
    total = len(view)
    admitted: list[Admitted] = []
    position = 0
    stamping = settings.message_timestamp_type == "LogAppendTime"
    while position < total:
        if total - position < HEADER_SIZE:
            raise _too_short(total - position)
        header: Header = HEADER.unpack_from(view, position)
        stop = position + header[1] + LENGTH_FROM
        if header[3] != MAGIC or stop > total or header[1] < HEADER_SIZE - LENGTH_FROM:
            raise _malformed(header, total - position)
        body = bytes(view[position + CRC_FROM : stop])
        if google_crc32c.value(body) != header[4]:
            raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, "a record batch does not match its checksum")
        count = header[12]
        if count <= 0 or header[6] != count - 1 or header[5] & _RARE:
            _check_rules(header, client)
        if client:
            if header[0] or stop - position > settings.max_message_bytes or header[9] >= 0:
                _check_client(header, settings, stop - position)
            if not stamping:
                _check_times(header, settings, now_ms)
        admitted.append(_stamped(header, body, now_ms) if stamping else (header, body))
        position = stop
    if not admitted:
        raise AppendRefused(ErrorCode.INVALID_RECORD, "there is no record batch to append")
    return admitted


def _too_short(left: int) -> AppendRefused:
    return AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"{left} bytes at the end are too few for a record batch")


def _malformed(header: Header, left: int) -> AppendRefused:
    if header[3] != MAGIC:
        return AppendRefused(ErrorCode.INVALID_RECORD, f"record batch magic {header[3]}: only {MAGIC} can be appended")
    return AppendRefused(
        ErrorCode.CORRUPT_MESSAGE, f"a record batch of {header[1] + LENGTH_FROM} bytes in the {left} that came"
    )


def _check_rules(header: Header, client: bool) -> None:
    attributes, count = header[5], header[12]
    if count <= 0 or header[6] != count - 1:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD, f"a record batch says it has {count} records, and offsets for {header[6] + 1}"
        )
    if attributes & COMPRESSION_MASK >= len(CODECS):
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"unknown compression {attributes & COMPRESSION_MASK}")
    if client and attributes & CONTROL:
        raise AppendRefused(ErrorCode.INVALID_RECORD, "clients cannot write control batches")
    if client and attributes & TRANSACTIONAL and header[9] < 0:
        raise AppendRefused(ErrorCode.INVALID_RECORD, "a transactional record batch without a producer id")


def _check_client(header: Header, settings: LogSettings, size: int) -> None:
    if size > settings.max_message_bytes:
        raise AppendRefused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a record batch of {size} bytes is larger than max.message.bytes, {settings.max_message_bytes}",
        )
    if header[0] != 0:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD, f"the base offset of a record batch to append must be 0, not {header[0]}"
        )
    if header[9] >= 0 and (header[10] < 0 or header[11] < 0):
        raise AppendRefused(
            ErrorCode.INVALID_RECORD, f"producer {header[9]} sends epoch {header[10]}, sequence {header[11]}"
        )


def _check_times(header: Header, settings: LogSettings, now_ms: int) -> None:
    if header[5] & LOG_APPEND_TIME:
        raise AppendRefused(ErrorCode.INVALID_TIMESTAMP, "the topic takes the producer's timestamps, not append times")
    after, before = settings.message_timestamp_after_max_ms, settings.message_timestamp_before_max_ms
    if header[8] - now_ms > after:
        raise AppendRefused(ErrorCode.INVALID_TIMESTAMP, f"timestamp {header[8]} is more than {after} ms ahead")
    if before != FOREVER_MS and 0 <= header[7] < now_ms - before:
        raise AppendRefused(ErrorCode.INVALID_TIMESTAMP, f"timestamp {header[7]} is more than {before} ms old")


def _stamped(header: Header, body: bytes, now_ms: int) -> Admitted:
    """With the log append time for all its records, as attribute and greatest timestamp; the records stay."""
    fields = list(header)
    fields[5] |= LOG_APPEND_TIME
    fields[8] = now_ms
    body = HEADER.pack(*fields)[CRC_FROM:] + body[HEADER_SIZE - CRC_FROM :]
    fields[4] = google_crc32c.value(body)
    return tuple(fields), body  # type: ignore[return-value]
