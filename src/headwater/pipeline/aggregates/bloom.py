"""A Bloom filter in Spark's own format: which values certainly did not come, and which probably did.

    filter := version(i32 = 1) hashes(i32) words(i32) word(i64)...     big-endian, as org.apache.spark.util.sketch

Spark's `BloomFilter.readFrom` reads it, `might_contain` here does the same in Python. Merging is OR: the same bits
whatever the batch boundaries. Whole numbers are hashed as Spark's `putLong`, strings as its `putString`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.aggregates.aggregate import Accumulators, Aggregate, Grouped
from headwater.pipeline.aggregates.lists import ranked
from headwater.pipeline.errors import BadOption, WrongType
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.schema import Column

__all__ = ["bloom_filter", "might_contain"]

_HEAD = struct.Struct(">iii")
_VERSION = 1
BITS_MAX = 1 << 26  # 8 MB a filter: it is in the state once for each group

Hashes = npt.NDArray[np.uint32]


def bloom_filter(column: str, expected: int = 10_000, wrong: float = 0.03) -> Aggregate:
    """A Bloom filter of the values, for about `expected` different ones; beyond them more than a share of `wrong` of
    the values that never came are taken for ones that did."""
    if expected < 1 or not 0 < wrong < 1:
        raise BadOption(f"bloom_filter({column!r}): expected={expected}, wrong={wrong}; say 1 or more, and a share")
    bits = math.ceil(-expected * math.log(wrong) / math.log(2) ** 2)
    if bits > BITS_MAX:
        raise BadOption(f"bloom_filter({column!r}) would take {bits // 8} bytes a group, at most {BITS_MAX // 8}")
    words = -(-bits // 64)
    return _Bloom(column, max(1, round(words * 64 / expected * math.log(2))), words)


def might_contain(filter_bytes: bytes, values: Sequence[int | str]) -> list[bool]:
    """For each value whether it may have come; False is certain."""
    _, hashes, words = _HEAD.unpack_from(filter_bytes)
    bits = np.frombuffer(filter_bytes, ">u8", offset=_HEAD.size).astype(np.uint64)
    places = _places(pa.array(values), hashes, words)
    there = (bits[places // 64] >> (places % 64).astype(np.uint64)) & np.uint64(1)
    return list(map(bool, np.atleast_1d(there.all(axis=0))))


@dataclass(frozen=True)
class _Bloom(Aggregate):
    column: str
    hashes: int
    words: int

    @property
    def columns(self) -> Sequence[str]:
        return (self.column,)

    def accumulators(self, schema: pa.Schema) -> Sequence[Column]:
        kind = schema.field(self.column).type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
            raise WrongType(self.column, str(kind), "a whole number or a string", "bloom_filter")
        return (Column("bits", pa.binary(), ""),)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.binary()

    def partial(self, rows: Grouped) -> Accumulators:
        rows = rows.present(self.column)
        values, place = ranked(rows.column(self.column))
        codes = np.unique(rows.index * (len(values) + 1) + place)
        group, place = np.divmod(codes, len(values) + 1)
        bits = _places(values, self.hashes, self.words)[:, place]
        starts = np.searchsorted(group, np.arange(rows.count + 1))
        found = [b""] * rows.count
        for number in np.unique(group).tolist():
            found[number] = self._set(bits[:, starts[number] : starts[number + 1]].ravel())
        return {"bits": pa.array(found, pa.binary())}

    def _set(self, places: npt.NDArray[np.int64]) -> bytes:
        bits = np.zeros(self.words, dtype=np.uint64)
        np.bitwise_or.at(bits, places // 64, np.uint64(1) << (places % 64).astype(np.uint64))
        return bits.astype(">u8").tobytes()

    def merge(self, left: Accumulators, right: Accumulators) -> Accumulators:
        pairs = zip(as_array(left["bits"]).to_pylist(), as_array(right["bits"]).to_pylist(), strict=True)
        return {"bits": pa.array([_either(a, b) if a and b else a or b for a, b in pairs], pa.binary())}

    def value(self, accumulators: Accumulators) -> pa.Array:
        head = _HEAD.pack(_VERSION, self.hashes, self.words)
        return pa.array([head + one if one else None for one in as_array(accumulators["bits"]).to_pylist()])


def _either(left: bytes, right: bytes) -> bytes:
    both: npt.NDArray[Any] = np.frombuffer(left, np.uint64) | np.frombuffer(right, np.uint64)
    return both.tobytes()


def _places(values: pa.Array, hashes: int, words: int) -> npt.NDArray[np.int64]:
    """The bits of each value: one row for each of the hashes, after Kirsch and Mitzenmacher."""
    first = _hashed(values, np.zeros(len(values), dtype=np.uint32))
    second = _hashed(values, first)
    steps = np.arange(1, hashes + 1, dtype=np.uint32)[:, None]
    combined = (first[None, :] + steps * second[None, :]).view(np.int32)
    positive = np.where(combined < 0, ~combined, combined).astype(np.int64)
    return np.asarray(positive % (words * 64))


def _hashed(values: pa.Array, seed: Hashes) -> Hashes:
    """Murmur3, 32 bits, as Spark: of a whole number's 8 bytes, or of a string's UTF-8."""
    if pa.types.is_integer(values.type):
        whole = np.asarray(values.cast(pa.int64()).to_numpy(zero_copy_only=False)).view(np.uint64)
        low, high = (whole & np.uint64(0xFFFFFFFF)).astype(np.uint32), (whole >> np.uint64(32)).astype(np.uint32)
        return _finished(_mixed(_mixed(seed, low), high), np.full(len(whole), 8, dtype=np.uint32))
    texts = values.cast(pa.binary()).to_pylist()
    hashes = [_of_text(text, seed[i : i + 1]) for i, text in enumerate(texts)]
    return np.concatenate(hashes) if hashes else np.zeros(0, dtype=np.uint32)


def _of_text(text: bytes, seed: Hashes) -> Hashes:
    """Four bytes at a time, the rest one by one with their signs: Spark's variant of Murmur3."""
    aligned = len(text) - len(text) % 4
    for word in np.frombuffer(text[:aligned], "<u4"):
        seed = _mixed(seed, np.array([word], dtype=np.uint32))
    for byte in np.frombuffer(text[aligned:], np.int8).astype(np.int32).view(np.uint32):
        seed = _mixed(seed, np.array([byte], dtype=np.uint32))
    return _finished(seed, np.array([len(text)], dtype=np.uint32))


def _mixed(seed: Hashes, word: Hashes) -> Hashes:
    word = _turned(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return np.asarray(_turned(seed ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64))


def _turned(word: Hashes, bits: int) -> Hashes:
    return np.asarray((word << np.uint32(bits)) | (word >> np.uint32(32 - bits)))


def _finished(seed: Hashes, length: Hashes) -> Hashes:
    mixed = seed ^ length
    mixed = (mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return np.asarray(mixed ^ (mixed >> np.uint32(16)))
