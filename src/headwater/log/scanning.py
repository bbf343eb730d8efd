"""Walking over the batches of a segment file, by headers only or checking every byte.

A walk trusts nothing: each step checks that the header is one, that the batch fits in the file and that offsets ascend
(without gaps, unless compaction may have made some). The first thing that does not fit ends the walk with `BadBatch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c

from headwater.errors import Corrupted
from headwater.log.files import LogFile
from headwater.log.layout import CRC_FROM, HEADER, HEADER_SIZE, LENGTH_FROM, MAGIC, Header

__all__ = ["BadBatch", "Found", "find_batch_after", "headers", "whole_batches"]

HEADER_CHUNK = 4096  # bytes read at once when only headers are wanted: many tiny batches, or one header
SCAN_CHUNK = 1 << 20  # bytes read at once when every byte is


class BadBatch(Exception):
    """Here the bytes stop being batches. `whole`: a batch is all there, but wrong; otherwise it is cut off."""

    def __init__(self, position: int, reason: str, *, whole: bool = False) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason
        self.whole = whole


class Found(NamedTuple):
    position: int
    size: int
    header: Header
    content: bytes  # the whole batch; empty when only headers were read

    @property
    def next_offset(self) -> int:
        return self.header[0] + self.header[6] + 1


def headers(file: LogFile, start: int, stop: int) -> Iterator[Found]:
    """The batches in [start, stop), by header; BadBatch where they end early."""
    chunk, chunk_from = b"", start
    position = start
    while position < stop:
        at = position - chunk_from
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_from, at = file.read(min(HEADER_CHUNK, stop - position), position), position, 0
        header, size = parse(chunk, at, position, stop)
        yield Found(position, size, header, b"")
        position += size


def parse(chunk: bytes, at: int, position: int, stop: int) -> tuple[Header, int]:
    """The header at `at` in the chunk, which is `position` in the file, whose batches end at `stop`; and the batch's
    size.
    """
    if len(chunk) - at < HEADER_SIZE:
        raise BadBatch(position, f"{stop - position} bytes are too few for a batch")
    header: Header = HEADER.unpack_from(chunk, at)
    size = header[1] + LENGTH_FROM
    if header[3] != MAGIC or size < HEADER_SIZE or header[6] < 0 or header[0] < 0:
        raise BadBatch(position, "no record batch begins here")
    if position + size > stop:
        raise BadBatch(position, f"a batch of {size} bytes does not fit in the {stop - position} that are left")
    return header, size


def whole_batches(
    file: LogFile, start: int, stop: int, expected: int | None, *, gaps: bool, chunk_bytes: int = SCAN_CHUNK
) -> Iterator[Found]:
    """The batches in [start, stop), each with its checksum and order verified.

    `expected` is the first one's base offset, None when it is not known. `gaps`: offsets may be missing (compacted).
    """
    chunk, chunk_from = b"", start
    position = start
    while position < stop:
        at = position - chunk_from
        available = len(chunk) - at
        if available < HEADER_SIZE or available < HEADER.unpack_from(chunk, at)[1] + LENGTH_FROM:
            wanted = min(stop - position, max(chunk_bytes, _size_at(file, position, stop)))
            chunk, chunk_from, at = file.read(wanted, position), position, 0
        header, size = parse(chunk, at, position, stop)
        content = chunk[at : at + size]
        if google_crc32c.value(content[CRC_FROM:]) != header[4]:
            raise BadBatch(position, f"the batch at offset {header[0]} does not match its checksum", whole=True)
        if expected is not None and (header[0] < expected or (header[0] > expected and not gaps)):
            raise BadBatch(position, f"a batch has offset {header[0]} where {expected} is next", whole=True)
        found = Found(position, size, header, content)
        yield found
        expected = found.next_offset
        position += size


def _size_at(file: LogFile, position: int, stop: int) -> int:
    start = file.read(LENGTH_FROM, position)
    size = int.from_bytes(start[8:12], "big", signed=True) + LENGTH_FROM
    return size if HEADER_SIZE <= size <= stop - position else 0


def find_batch_after(file: LogFile, start: int, stop: int, offsets: range) -> Found | None:
    """The first whole, correct batch at any byte from `start` on whose base offset is one of `offsets`.

    Tells a torn tail (there is none) from damage in the middle. Only looked for when a scan has failed.
    """
    overlap = HEADER_SIZE - 1
    position = start
    while position < stop:
        chunk = file.read(min(SCAN_CHUNK + overlap, stop - position), position)
        at = chunk.find(MAGIC, LENGTH_FROM + 4)
        while at >= 0 and at - 16 < SCAN_CHUNK:
            found = _batch_at(file, position + at - 16, stop, offsets)
            if found is not None:
                return found
            at = chunk.find(MAGIC, at + 1)
        position += SCAN_CHUNK
    return None


def _batch_at(file: LogFile, position: int, stop: int, offsets: range) -> Found | None:
    try:
        header, size = parse(file.read(HEADER_SIZE, position), 0, position, stop)
    except BadBatch:
        return None
    if header[0] not in offsets or header[12] <= 0:
        return None
    content = file.read(size, position)
    if google_crc32c.value(content[CRC_FROM:]) != header[4]:
        return None
    return Found(position, size, header, content)


def corrupted(file: LogFile, bad: BadBatch) -> Corrupted:
    return Corrupted(file.path, bad.position, bad.reason)
