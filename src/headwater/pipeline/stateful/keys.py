"""Key columns to bytes whose order is the columns' order, a column at a time.

    key        := component...                       one per key column
    component  := 0x00 zeros | 0x01 big-endian       fixed width (null sorts first); signs flipped so that bytes sort
                | 0x00 | 0x01 escaped 0x00 0x00      strings and bytes; 0x00 inside is escaped as 0x00 0xff

Invariant: no encoded key is a prefix of another, so a prefix of the columns selects a contiguous range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.errors import WrongType
from headwater.pipeline.stateful.errors import KeyTooLong
from headwater.pipeline.stateful.schema import Column

__all__ = ["KEY_BYTES_MAX", "KeyCodec", "as_array", "successor"]

KEY_BYTES_MAX = 511  # LMDB's bound for a key

_ESCAPED, _PLAIN, _END = b"\x00\xff", b"\x00", b"\x00\x00"

type_is = pa.types


def as_array(values: Any, wanted: pa.DataType | None = None) -> pa.Array:
    """Whatever a step hands over (Arrow, NumPy, list, scalar column) as one contiguous Arrow array of the type."""
    array = values
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        array = array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
    if not isinstance(array, pa.Array):
        return _from_python(array, wanted)
    if type_is.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array if wanted is None or array.type == wanted else _cast(array, wanted)


def _from_python(values: Any, wanted: pa.DataType | None) -> pa.Array:
    if isinstance(values, np.ndarray) and values.dtype.kind == "i" and wanted is not None and _is_time(wanted):
        return _cast(pa.array(values.astype(np.int64, copy=False)), wanted)
    return pa.array(values, type=wanted)


def _is_time(kind: pa.DataType) -> bool:
    return bool(type_is.is_timestamp(kind) or type_is.is_duration(kind))


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if _is_time(wanted) and type_is.is_int64(array.type):
        return array.view(wanted)
    return array.cast(wanted)


class KeyCodec:
    """Encodes and decodes the key columns of one table."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self._parts = [_part(column) for column in self.columns]
        self.fixed_width = sum(p.width for p in self._parts) if all(p.width for p in self._parts) else 0

    def encode(self, columns: Mapping[str, Any], count: int | None = None) -> list[bytes]:
        """The keys of the rows; fewer columns than the table has (the first `count`) give prefixes."""
        parts = self._parts[:count]
        arrays = [as_array(columns[p.name], p.type) for p in parts]
        if not parts:
            return [b""]
        if all(p.width for p in parts):
            return _void_rows(_records(parts, arrays))
        lists = [p.encode(array) for p, array in zip(parts, arrays, strict=True)]
        keys = lists[0] if len(lists) == 1 else list(map(b"".join, zip(*lists, strict=True)))
        self._check_lengths(keys)
        return keys

    def encode_one(self, *values: Any) -> bytes:
        """One key, or a prefix of one, from Python values."""
        columns = {c.name: pa.array([v], c.type) for c, v in zip(self.columns, values, strict=False)}
        return self.encode(columns, len(values))[0]

    def decode(self, keys: Sequence[bytes]) -> dict[str, pa.Array]:
        if self.fixed_width:
            records = np.frombuffer(b"".join(keys), dtype=_dtype(self._parts))
            fixed = [p for p in self._parts if isinstance(p, _Fixed)]
            return {p.name: p.from_record(records, i) for i, p in enumerate(fixed)}
        positions = [0] * len(keys)
        return {p.name: p.decode(keys, positions) for p in self._parts}

    def _check_lengths(self, keys: list[bytes]) -> None:
        longest = max(map(len, keys), default=0)
        if longest > KEY_BYTES_MAX:
            names = ", ".join(c.name for c in self.columns)
            raise KeyTooLong(
                f"a key of ({names}) takes {longest} bytes, the store {KEY_BYTES_MAX}: key by a hash of the long column"
            )


def successor(prefix: bytes) -> bytes:
    """The smallest bytes greater than everything that starts with `prefix`; empty when there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b""


class _Fixed:
    """A column of fixed width: a tag byte and the value's bits, big-endian, arranged so that they sort."""

    def __init__(self, name: str, kind: pa.DataType, dtype: str, flip: int) -> None:
        self.name, self.type, self.dtype, self._flip = name, kind, dtype, flip
        self.width = 1 + np.dtype(dtype).itemsize

    def bits(self, array: pa.Array) -> npt.NDArray[Any]:
        return np.asarray(_numbers(array, self.type).view(np.dtype(self.dtype).newbyteorder("=")) ^ self._flip_mask())

    def _flip_mask(self) -> Any:
        return np.dtype(self.dtype).newbyteorder("=").type(self._flip)

    def unbits(self, bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.asarray(bits.astype(bits.dtype.newbyteorder("=")) ^ self._flip_mask())

    def encode(self, array: pa.Array) -> list[bytes]:
        return _void_rows(_records([self], [array]))

    def from_record(self, records: npt.NDArray[Any], index: int) -> pa.Array:
        nulls = records[f"t{index}"] == 0
        return _numbers_to_arrow(self.unbits(records[f"v{index}"]), self.type, nulls)

    def decode(self, keys: Sequence[bytes], positions: list[int]) -> pa.Array:
        pieces = b"".join([key[at : at + self.width] for key, at in zip(keys, positions, strict=True)])
        for index in range(len(positions)):
            positions[index] += self.width
        return self.from_record(np.frombuffer(pieces, dtype=_dtype([self])), 0)


class _Float(_Fixed):
    """IEEE numbers sort as bytes once negative ones are inverted; -0.0 and 0.0 are one key, so are all NaNs."""

    def bits(self, array: pa.Array) -> npt.NDArray[Any]:
        numbers = _numbers(array, self.type) + 0.0
        numbers = np.where(np.isnan(numbers), np.array(np.nan, dtype=numbers.dtype), numbers)
        bits = numbers.view(np.dtype(self.dtype).newbyteorder("="))
        top = self._flip_mask()
        return np.where(bits & top, ~bits, bits | top)

    def unbits(self, bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
        native, top = bits.astype(bits.dtype.newbyteorder("=")), self._flip_mask()
        found = np.where(native & top, native ^ top, ~native)
        return np.asarray(found.view(np.float64 if found.dtype.itemsize == 8 else np.float32))


class _Text:
    """Strings and bytes: escaped and terminated, so that shorter ones sort first and none is another's prefix."""

    width = 0

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self.name, self.type = name, kind

    def encode(self, array: pa.Array) -> list[bytes]:
        texts = array.cast(pa.large_binary() if type_is.is_large_string(array.type) else pa.binary()).to_pylist()
        return [
            b"\x00" if text is None else b"\x01" + text.replace(_PLAIN, _ESCAPED) + _END
            for text in texts
        ]  # fmt: skip

    def decode(self, keys: Sequence[bytes], positions: list[int]) -> pa.Array:
        texts: list[bytes | None] = []
        for index, key in enumerate(keys):
            start = positions[index]
            if key[start] == 0:
                texts.append(None)
                positions[index] = start + 1
                continue
            end = _end_of_text(key, start + 1)
            texts.append(key[start + 1 : end].replace(_ESCAPED, _PLAIN))
            positions[index] = end + len(_END)
        return pa.array(texts, pa.binary()).cast(self.type)


def _end_of_text(key: bytes, start: int) -> int:
    end = key.index(_PLAIN, start)
    while key[end + 1] == 0xFF:
        end = key.index(_PLAIN, end + 2)
    return end


_INTEGERS = {
    "int8": (">u1", 1 << 7),
    "int16": (">u2", 1 << 15),
    "int32": (">u4", 1 << 31),
    "date32[day]": (">u4", 1 << 31),
    "int64": (">u8", 1 << 63),
    "uint8": (">u1", 0),
    "uint16": (">u2", 0),
    "uint32": (">u4", 0),
    "uint64": (">u8", 0),
    "bool": (">u1", 0),
}


def _part(column: Column) -> _Fixed | _Text:
    kind, name = column.type, column.name
    if str(kind) in _INTEGERS:
        return _Fixed(name, kind, *_INTEGERS[str(kind)])
    if _is_time(kind):
        return _Fixed(name, kind, ">u8", 1 << 63)
    if type_is.is_float64(kind) or type_is.is_float32(kind):
        return _Float(name, kind, ">u8" if type_is.is_float64(kind) else ">u4", 1 << (kind.bit_width - 1))
    if type_is.is_string(kind) or type_is.is_binary(kind) or type_is.is_large_string(kind):
        return _Text(name, kind)
    raise WrongType(name, str(kind), "a number, a time, a string or bytes to be a key", "state key")


def _numbers(array: pa.Array, kind: pa.DataType) -> npt.NDArray[Any]:
    """The array's numbers without nulls, as NumPy: zero-copy for what has no nulls."""
    if type_is.is_boolean(kind):
        array = array.cast(pa.uint8())
    elif _is_time(kind):
        array = array.view(pa.int64())
    elif type_is.is_date32(kind):
        array = array.view(pa.int32())
    if array.null_count:
        array = pc.fill_null(array, 0)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _numbers_to_arrow(numbers: npt.NDArray[Any], kind: pa.DataType, nulls: npt.NDArray[np.bool_] | None) -> pa.Array:
    plain = pa.int64() if _is_time(kind) else pa.int32() if type_is.is_date32(kind) else kind
    if type_is.is_boolean(kind):
        numbers = numbers.astype(np.bool_)
    elif not type_is.is_floating(kind):
        numbers = numbers.astype(plain.to_pandas_dtype(), copy=False)
    mask = nulls if nulls is not None and nulls.any() else None
    array = pa.array(np.ascontiguousarray(numbers), type=plain, mask=mask)
    return array if plain == kind else array.view(kind)


def _dtype(parts: Sequence[Any]) -> np.dtype[Any]:
    fields = []
    for index, part in enumerate(parts):
        fields += [(f"t{index}", "u1"), (f"v{index}", part.dtype)]
    return np.dtype(fields)


def _records(parts: Sequence[Any], arrays: Sequence[pa.Array]) -> npt.NDArray[Any]:
    records = np.zeros(len(arrays[0]), dtype=_dtype(parts))
    for index, (part, array) in enumerate(zip(parts, arrays, strict=True)):
        records[f"t{index}"] = 1
        records[f"v{index}"] = part.bits(array)
        if array.null_count:
            absent = array.is_null().to_numpy(zero_copy_only=False)
            records[f"t{index}"][absent] = 0
            records[f"v{index}"][absent] = 0
    return records


def _void_rows(records: npt.NDArray[Any]) -> list[bytes]:
    rows: list[bytes] = records.view(np.dtype((np.void, records.dtype.itemsize))).tolist()
    return rows
