"""Record batches (format 2): the 61 bytes before the records, and the records themselves for those who must look.

A batch on the wire and on disk, big-endian; sizes in bytes:

    0  base offset 8           21  attributes 2            43  producer id 8
    8  length from here on 4   23  last offset delta 4     51  producer epoch 2
    12 leader epoch 4          27  base timestamp 8        53  base sequence 4
    16 magic 1 (always 2)      35  max timestamp 8         57  record count 4
    17 CRC-32C of the rest 4                               61  records, perhaps compressed

Attributes: bits 0-2 codec, 3 log-append time, 4 transactional, 5 control, 6 the base timestamp is a delete horizon.
The base offset and the leader epoch are outside the checksum: a broker assigns them without touching the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import google_crc32c
import msgspec

from headwater.wire.compression import Codec, compress, decompress
from headwater.wire.errors import CorruptBatch, ErrorCode
from headwater.wire.primitives import read_varint, varint

__all__ = [
    "HEADER_BYTES",
    "NO_PRODUCER",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Buffer",
    "Marker",
    "Record",
    "assign",
    "check_crc",
    "check_produced",
    "decode_marker",
    "decode_records",
    "encode_batch",
    "encode_marker",
    "parse_header",
    "set_log_append_time",
    "split_batches",
]

Buffer = bytes | bytearray | memoryview

HEADER_BYTES: Final = 61
NO_TIMESTAMP: Final = -1
NO_PRODUCER: Final = -1

_MAGIC: Final = 2
_LENGTH_END: Final = 12  # a batch's length counts from here
_CRC_START: Final = 21  # the checksum covers the batch from here
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
_BEFORE_CRC: Final = struct.Struct(">qiib")
_SMALLEST_RECORD: Final = 7  # length, attributes, two deltas, two lengths, header count: a byte each

_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_DELETE_HORIZON: Final = 0x40


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """What a batch says about itself."""

    base_offset: int
    length: int  # as written: without the first 12 bytes
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + _LENGTH_END

    @property
    def last_offset(self) -> int:
        """The offset of the last record (or of the last one there was, in a compacted batch)."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number; it goes on at 0 after 2^31 - 1. -1 if there are no sequences."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> Codec:
        """How the records are compressed. Raises `CorruptBatch` for a codec that does not exist."""
        try:
            return Codec(self.attributes & _CODEC)
        except ValueError:
            raise CorruptBatch(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {self.attributes & _CODEC}"
            ) from None

    @property
    def log_append_time(self) -> bool:
        """Whether `max_timestamp` is the time of the append and of each record."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Whether the batch holds a marker and no data of applications."""
        return bool(self.attributes & _CONTROL)

    @property
    def delete_horizon(self) -> int | None:
        """When compaction may drop the batch's tombstones and markers; None until it has seen them once."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON else None


class Record(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One record. Offset -1 is "the one after the record before"."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = NO_TIMESTAMP  # milliseconds since 1970
    offset: int = -1


class Marker(msgspec.Struct, frozen=True, gc=False):
    """The end of a transaction in one partition."""

    commit: bool
    coordinator_epoch: int


def _corrupt(reason: str) -> CorruptBatch:
    return CorruptBatch(ErrorCode.CORRUPT_MESSAGE, reason)


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. Raises `CorruptBatch` if there is not one whole header of format 2."""
    if len(buffer) - position < HEADER_BYTES:
        raise _corrupt(f"{len(buffer) - position} bytes where a header of {HEADER_BYTES} should be")
    header = BatchHeader(*_HEADER.unpack_from(buffer, position))
    if header.magic != _MAGIC:
        raise CorruptBatch(ErrorCode.INVALID_RECORD, f"message format {header.magic}; only {_MAGIC} is supported")
    if header.length < HEADER_BYTES - _LENGTH_END:
        raise _corrupt(f"length {header.length} is shorter than the header")
    return header


def split_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each batch of several in a row, as a view. Raises `CorruptBatch` where no whole batch follows."""
    view = memoryview(buffer)
    position = 0
    while position < len(view):
        header = parse_header(view, position)
        stop = position + header.size
        if stop > len(view):
            raise _corrupt(f"a batch of {header.size} bytes with {len(view) - position} left")
        yield header, view[position:stop]
        position = stop


def check_crc(header: BatchHeader, batch: Buffer) -> None:
    """Raises `CorruptBatch` unless the checksum of `batch` is the one in its header."""
    # The checksum's library takes only `bytes`: the copy costs about as much as the sum, 50 µs a MiB each.
    found = google_crc32c.value(bytes(batch[_CRC_START:]))
    if found != header.crc:
        raise _corrupt(f"checksum {found:#010x}, the header says {header.crc:#010x}")


def check_produced(header: BatchHeader) -> None:
    """Raises `CorruptBatch` if a producer may not send a batch with this header."""
    invalid = ErrorCode.INVALID_RECORD
    if header.control:
        raise CorruptBatch(invalid, "clients must not write control records")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise CorruptBatch(
            invalid, f"{header.record_count} records cannot have a last offset delta of {header.last_offset_delta}"
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise CorruptBatch(
            invalid,
            f"producer {header.producer_id} sent epoch {header.producer_epoch}, sequence {header.base_sequence}",
        )
    if header.transactional and header.producer_id < 0:
        raise CorruptBatch(invalid, "a transactional batch needs a producer id")
    if header.attributes & (_LOG_APPEND_TIME | _DELETE_HORIZON):
        raise CorruptBatch(invalid, f"attributes {header.attributes:#x} are the broker's to set")
    _ = header.codec


def assign(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write the offset and the leader epoch into a (writable) batch; the checksum does not cover them."""
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, _LENGTH_END, leader_epoch)


def set_log_append_time(batch: bytearray | memoryview, timestamp: int) -> None:
    """Make the append's time (ms) the time of all records of a (writable) batch; computes the checksum anew."""
    (attributes,) = struct.unpack_from(">h", batch, _CRC_START)
    struct.pack_into(">h", batch, _CRC_START, attributes | _LOG_APPEND_TIME)
    struct.pack_into(">q", batch, 35, timestamp)
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[_CRC_START:])))


# Records


def decode_records(batch: Buffer) -> Iterator[Record]:
    """The records of one batch, one at a time. Raises `CorruptBatch` when it comes to damage."""
    header = parse_header(batch)
    data = decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size])
    if header.record_count < 0 or header.record_count * _SMALLEST_RECORD > len(data):
        raise _corrupt(f"claims {header.record_count} records in {len(data)} bytes")
    position = 0
    try:
        for _ in range(header.record_count):
            record, position = _decode_record(header, data, position)
            yield record
    except (ValueError, IndexError) as error:
        raise _corrupt(f"record at byte {position} of the records: {error}") from None
    if position != len(data):
        raise _corrupt(f"{len(data) - position} bytes after the last record")


def _decode_record(header: BatchHeader, data: memoryview, position: int) -> tuple[Record, int]:
    length, position = read_varint(data, position)
    stop = position + length
    if length < 0 or stop > len(data):
        raise ValueError(f"length {length} with {len(data) - position} bytes left")
    timestamp, position = read_varint(data, position + 1)  # the attributes of a record are unused
    offset, position = read_varint(data, position)
    key, position = _decode_bytes(data, position, stop)
    value, position = _decode_bytes(data, position, stop)
    count, position = read_varint(data, position)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if count:
        headers, position = _decode_headers(data, position, stop, count)
    if position != stop:
        raise ValueError("a record's fields do not fill its length")
    when = header.max_timestamp if header.log_append_time else header.base_timestamp + timestamp
    return Record(key=key, value=value, headers=headers, timestamp=when, offset=header.base_offset + offset), stop


def _decode_headers(
    data: memoryview, position: int, stop: int, count: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    if count < 0 or count * 2 > stop - position:
        raise ValueError(f"claims {count} headers in {stop - position} bytes")
    headers = []
    for _ in range(count):
        name, position = _decode_bytes(data, position, stop)
        if name is None:
            raise ValueError("a header without a name")
        value, position = _decode_bytes(data, position, stop)
        headers.append((name.decode(), value))
    return tuple(headers), position


def _decode_bytes(data: memoryview, position: int, stop: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    if end > stop:
        raise ValueError(f"needs {length} bytes but {stop - position} are left")
    return bytes(data[position:end]), end


def encode_batch(
    records: Iterable[Record],
    *,
    codec: Codec = Codec.NONE,
    base_offset: int | None = None,
    last_offset: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    delete_horizon: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """One batch. What compaction has to keep though records are gone (offsets at both ends, largest timestamp) can be
    given; it is otherwise taken from the records. A batch may be empty if its offsets are given."""
    records = list(records)
    first = base_offset if base_offset is not None else max(0, records[0].offset) if records else 0
    base_timestamp = delete_horizon
    if base_timestamp is None:
        base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    body, last = _encode_records(records, first, base_timestamp)
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    if not records:
        codec = Codec.NONE
    attributes = codec | transactional * _TRANSACTIONAL | control * _CONTROL
    if log_append_time is not None:
        attributes |= _LOG_APPEND_TIME
        max_timestamp = log_append_time
    if delete_horizon is not None:
        attributes |= _DELETE_HORIZON
    checked = _AFTER_CRC.pack(
        attributes,
        (last if last_offset is None else last_offset) - first,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    ) + compress(codec, body)
    head = _BEFORE_CRC.pack(first, len(checked) + _CRC_START - _LENGTH_END, leader_epoch, _MAGIC)
    return head + struct.pack(">I", google_crc32c.value(checked)) + checked


def _encode_records(records: list[Record], base_offset: int, base_timestamp: int) -> tuple[bytes, int]:
    """The records' bytes and the last offset."""
    out = bytearray()
    offset = base_offset - 1
    for record in records:
        offset = record.offset if record.offset >= 0 else offset + 1
        body = b"".join(
            (
                b"\0",
                varint(record.timestamp - base_timestamp),
                varint(offset - base_offset),
                _encode_bytes(record.key),
                _encode_bytes(record.value),
                varint(len(record.headers)),
                *(_encode_bytes(name.encode()) + _encode_bytes(value) for name, value in record.headers),
            )
        )
        out += varint(len(body))
        out += body
    return bytes(out), offset


def _encode_bytes(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


# Control batches


def encode_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    timestamp: int,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch that ends a producer's transaction in a partition."""
    record = Record(
        key=struct.pack(">hh", 0, commit),  # version, 0 abort or 1 commit
        value=struct.pack(">hi", 0, coordinator_epoch),  # version first
        timestamp=timestamp,
    )
    return encode_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )


def decode_marker(batch: Buffer) -> Marker | None:
    """The marker in a control batch; None if it is of another kind, or was emptied by compaction."""
    record = next(decode_records(batch), None)
    if record is None:
        return None
    if record.key is None or len(record.key) < 4:
        raise _corrupt("a control batch without a control record")
    kind = struct.unpack_from(">hh", record.key)[1]
    if kind not in (0, 1):
        return None
    if record.value is None or len(record.value) < 6:
        raise _corrupt("a transaction marker without a coordinator epoch")
    return Marker(bool(kind), struct.unpack_from(">hi", record.value)[1])
