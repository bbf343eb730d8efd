"""The compression codecs of record batches, in the framings that Kafka's clients use and accept.

gzip and zstd are their usual formats. Snappy is written in snappy-java's framing and read in that or bare. LZ4 is
written as frames of independent blocks of 64 KiB, for Kafka's own reader refuses dependent ones, and read in any frame.

Decompression is bounded: a few hostile bytes cannot become more than `MAX_DECOMPRESSED_BYTES`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import cramjam

from headwater.wire.errors import CorruptBatch, ErrorCode

__all__ = ["MAX_DECOMPRESSED_BYTES", "Codec", "compress", "decompress"]

MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024
"""One batch's records, decompressed. Kafka limits only the compressed size (1 MiB by default, rarely above 16 MiB);
this is room for a ratio of 128 at the default."""

_FIRST_GUESS_BYTES: Final = 64 * 1024
_GROWTH: Final = 8  # an output that does not fit is tried again in one so many times larger
_OUTPUT_FULL: Final = "failed to write whole buffer"  # how cramjam says so; every other message is about the data

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest version that can read it
_XERIAL_BLOCK_BYTES: Final = 32 * 1024

# Magic number; version 1, independent blocks, no checksums; blocks of 64 KiB; checksum of the two bytes before.
_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_STORED: Final = 0x80000000  # set in a block's size if the block is not compressed
_LZ4_END: Final = bytes(4)


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: bytes) -> bytes:
    """`data` as the body of a batch whose attributes name `codec`."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data))
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data))


def decompress(codec: Codec, data: bytes | memoryview, limit: int = MAX_DECOMPRESSED_BYTES) -> memoryview:
    """What `compress` was given. Raises `CorruptBatch` if the data is damaged or would exceed `limit` bytes."""
    match codec:
        case Codec.NONE:
            return memoryview(data)
        case Codec.GZIP:
            return _grow(cramjam.gzip.decompress_into, data, limit)
        case Codec.SNAPPY:
            return memoryview(_decompress_snappy(memoryview(data), limit))
        case Codec.LZ4:
            return _grow(cramjam.lz4.decompress_into, data, limit)
        case Codec.ZSTD:
            return _grow(cramjam.zstd.decompress_into, data, limit)


def _damaged(codec: str, reason: object) -> CorruptBatch:
    return CorruptBatch(ErrorCode.CORRUPT_MESSAGE, f"{codec} records cannot be decompressed: {reason}")


def _grow(into: Callable[[memoryview, bytearray], int], data: bytes | memoryview, limit: int) -> memoryview:
    """Decompress into buffers of growing size, so that memory depends on what comes out, not on what `data` claims.

    Only an output that is full is tried again: damaged data costs no more than what came out of it.
    """
    size = max(_FIRST_GUESS_BYTES, _GROWTH * len(data))
    while True:
        size = min(size, limit)
        out = bytearray(size)
        try:
            return memoryview(out)[: into(memoryview(data), out)]
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise _damaged("compressed", error) from None
            if size == limit:
                raise _damaged("compressed", f"more than {limit} bytes come out") from None
        size *= _GROWTH


def _compress_snappy(data: bytes) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += struct.pack(">i", len(block))
        out += block
    return bytes(out)


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, limit)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if len(data) - position < 4:
            raise _damaged("snappy", "a block ends early")
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if not 0 <= size <= len(data) - position:
            raise _damaged("snappy", f"a block of {size} bytes with {len(data) - position} left")
        out += _decompress_snappy_block(data[position : position + size], limit - len(out))
        position += size
    return bytes(out)


def _decompress_snappy_block(block: memoryview, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > limit:
            raise _damaged("snappy", f"{size} bytes or more, the limit is {limit}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _damaged("snappy", error) from None


def _compress_lz4(data: bytes) -> bytes:
    out = bytearray(_LZ4_HEADER)
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            out += struct.pack("<I", len(packed)) + packed
        else:
            out += struct.pack("<I", len(block) | _LZ4_STORED) + block
    return bytes(out + _LZ4_END)
