"""A batch's records as the bytes they are: for compaction, which looks at keys and copies or drops whole records.

A record on the wire: its length (varint), attributes 1, timestamp delta and offset delta (varints, from the batch's
base timestamp and offset), key and value (length varint or -1, bytes), headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headwater.wire.batches import HEADER_BYTES, BatchHeader, Buffer
from headwater.wire.compression import decompress
from headwater.wire.errors import CorruptBatch, ErrorCode
from headwater.wire.primitives import read_varint, varint

__all__ = ["RawRecord", "raw_records", "with_base_timestamp"]


class RawRecord(NamedTuple):
    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool  # False: a tombstone
    content: memoryview  # the whole record, its length included


def raw_records(header: BatchHeader, batch: Buffer) -> Iterator[RawRecord]:
    """The records of one batch whose checksum is known to be right. CorruptBatch when they are not records."""
    data = decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size])
    position = 0
    try:
        for _ in range(header.record_count):
            record = _raw_record(data, position)
            yield record
            position += len(record.content)
    except (ValueError, IndexError) as error:
        raise CorruptBatch(ErrorCode.CORRUPT_MESSAGE, f"record at byte {position} of the records: {error}") from None
    if position != len(data):
        raise CorruptBatch(ErrorCode.CORRUPT_MESSAGE, f"{len(data) - position} bytes after the last record")


def _raw_record(data: memoryview, start: int) -> RawRecord:
    length, position = read_varint(data, start)
    stop = position + length
    if length <= 0 or stop > len(data):
        raise ValueError(f"length {length} with {len(data) - position} bytes left")
    timestamp_delta, position = read_varint(data, position + 1)
    offset_delta, position = read_varint(data, position)
    key_length, position = read_varint(data, position)
    key = None
    if key_length >= 0:
        key = bytes(data[position : position + key_length])
        position += key_length
    value_length, position = read_varint(data, position)
    if position + max(0, value_length) > stop:
        raise ValueError("a record's fields exceed its length")
    return RawRecord(offset_delta, timestamp_delta, key, value_length >= 0, data[start:stop])


def with_base_timestamp(record: RawRecord, shift: int) -> bytes:
    """The record for a batch whose base timestamp is `shift` ms smaller: the time it says stays the same."""
    content = record.content
    _, position = read_varint(content, 0)
    _, after = read_varint(content, position + 1)
    body = b"".join((content[position : position + 1], varint(record.timestamp_delta + shift), content[after:]))
    return varint(len(body)) + body
