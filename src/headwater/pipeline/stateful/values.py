"""Value columns to bytes and back, whole columns at a time.

    value := layout(u8) nulls(u8 * ceil(nullable/8)) fixed... length(u32)... payload...

`layout` is the number of the table's layout the row was written in. `nulls` has one bit for each column without a
default, in order. Fixed-width columns are little-endian; strings and bytes have their length in the head and their
bytes behind it; nested columns are MessagePack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.stateful.keys import _is_time, _numbers, _numbers_to_arrow, _void_rows, as_array, type_is
from headwater.pipeline.stateful.schema import Column, TableHistory

__all__ = ["RowCodec", "ValueCodec"]

_FIXED = {
    "int8": "<i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint8": "<u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "float": "<f4",
    "double": "<f8",
    "bool": "<u1",
    "date32[day]": "<i4",
}


class ValueCodec:
    """Packs and unpacks values of one layout."""

    def __init__(self, layout: int, columns: Sequence[Column]) -> None:
        self.layout, self.columns = layout, tuple(columns)
        self._nullable = [c.name for c in columns if c.default is None]
        self._fixed = {c.name: _fixed_dtype(c.type) for c in columns if _fixed_dtype(c.type)}
        self._variable = [c for c in columns if c.name not in self._fixed]
        self._head = np.dtype(
            [("layout", "u1"), ("nulls", "u1", ((len(self._nullable) + 7) // 8,))]
            + [(f"f.{name}", dtype) for name, dtype in self._fixed.items()]
            + [(f"l.{c.name}", "<u4") for c in self._variable]
        )

    def pack(self, columns: Mapping[str, Any], count: int) -> list[bytes]:
        heads = np.zeros(count, dtype=self._head)
        heads["layout"] = self.layout
        payloads = []
        for column in self.columns:
            array = as_array(columns[column.name], column.type)
            self._mark_nulls(heads, column, array)
            if column.name in self._fixed:
                heads[f"f.{column.name}"] = _numbers(array, column.type)
            else:
                payload = _payload(array, column.type)
                heads[f"l.{column.name}"] = np.fromiter(map(len, payload), dtype=np.uint32, count=count)
                payloads.append(payload)
        rows = _void_rows(heads)
        return list(map(b"".join, zip(rows, *payloads, strict=True))) if payloads else rows

    def unpack(self, values: Sequence[bytes]) -> dict[str, pa.Array]:
        width = self._head.itemsize
        joined = b"".join([v[:width] for v in values] if self._variable else values)
        heads = np.frombuffer(joined, dtype=self._head)
        starts = [width] * len(values)
        return {c.name: self._unpack_column(c, heads, values, starts) for c in self.columns}

    def _unpack_column(
        self, column: Column, heads: npt.NDArray[Any], values: Sequence[bytes], starts: list[int]
    ) -> pa.Array:
        nulls = self._nulls(heads, column)
        if column.name in self._fixed:
            return _numbers_to_arrow(heads[f"f.{column.name}"], column.type, nulls)
        pieces: list[bytes | None] = []
        for index, length in enumerate(heads[f"l.{column.name}"].tolist()):
            start = starts[index]
            pieces.append(values[index][start : start + length])
            starts[index] = start + length
        if nulls is not None:
            pieces = [None if null else piece for piece, null in zip(pieces, nulls.tolist(), strict=True)]
        return _from_payload(pieces, column.type)

    def _mark_nulls(self, heads: npt.NDArray[Any], column: Column, array: pa.Array) -> None:
        if not array.null_count:
            return
        absent = array.is_null().to_numpy(zero_copy_only=False)
        if column.default is not None:
            raise ValueError(f"state column {column.name!r} has the default {column.default!r} and cannot be null")
        bit = self._nullable.index(column.name)
        heads["nulls"][:, bit // 8] |= absent.astype(np.uint8) << (bit % 8)

    def _nulls(self, heads: npt.NDArray[Any], column: Column) -> npt.NDArray[np.bool_] | None:
        if column.default is not None:
            return None
        bit = self._nullable.index(column.name)
        absent: npt.NDArray[np.bool_] = (heads["nulls"][:, bit // 8] >> (bit % 8)) & 1 == 1
        return absent if absent.any() else None


class RowCodec:
    """The values of a table whatever layout each was written in; writes the newest."""

    def __init__(self, history: TableHistory) -> None:
        self.columns = history.layouts[-1]
        self._layouts = [ValueCodec(number, columns) for number, columns in enumerate(history.layouts)]

    def pack(self, columns: Mapping[str, Any], count: int) -> list[bytes]:
        return self._layouts[-1].pack(columns, count)

    def unpack(self, values: Sequence[bytes | None]) -> dict[str, pa.Array]:
        """The columns of the values, in order; a missing value gives defaults (or nulls)."""
        newest = len(self._layouts) - 1
        if all(value is not None and value[0] == newest for value in values):
            return self._layouts[newest].unpack(values)  # type: ignore[arg-type]
        return self._unpack_mixed(values)

    def _unpack_mixed(self, values: Sequence[bytes | None]) -> dict[str, pa.Array]:
        numbers = np.fromiter((-1 if v is None else v[0] for v in values), dtype=np.int64, count=len(values))
        pieces: list[dict[str, pa.Array]] = []
        order: list[npt.NDArray[np.int64]] = []
        for number in np.unique(numbers).tolist():
            where = np.flatnonzero(numbers == number)
            chosen = [values[i] or b"" for i in where.tolist()]
            found = {} if number < 0 else self._layouts[number].unpack(chosen)
            pieces.append({c.name: found.get(c.name, None) or _repeat(c, len(chosen)) for c in self.columns})
            order.append(where)
        back = np.argsort(np.concatenate(order)) if order else np.zeros(0, dtype=np.int64)
        return {
            c.name: pa.concat_arrays([piece[c.name] for piece in pieces]).take(pa.array(back))
            if pieces
            else pa.array([], c.type)
            for c in self.columns
        }


def _repeat(column: Column, count: int) -> pa.Array:
    value = column.default
    if value is not None and _is_time(column.type):
        return pa.repeat(pa.scalar(int(value), pa.int64()), count).view(column.type)
    if value is not None and isinstance(value, str) and type_is.is_binary(column.type):
        value = value.encode()
    return pa.array([value] * count, column.type)


def _fixed_dtype(kind: pa.DataType) -> str:
    return "<i8" if _is_time(kind) else _FIXED.get(str(kind), "")


def _is_text(kind: pa.DataType) -> bool:
    return bool(type_is.is_string(kind) or type_is.is_binary(kind) or type_is.is_large_string(kind))


def _payload(array: pa.Array, kind: pa.DataType) -> list[bytes]:
    if not _is_text(kind):
        return [b"" if value is None else msgspec.msgpack.encode(value) for value in array.to_pylist()]
    if array.null_count:
        return [value or b"" for value in array.cast(pa.binary()).to_pylist()]
    payload: list[bytes] = array.cast(pa.binary()).to_pylist()
    return payload


def _from_payload(pieces: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    if _is_text(kind):
        return pa.array(pieces, pa.binary()).cast(kind)
    restore = _restorer(kind)
    values = (None if piece is None else msgspec.msgpack.decode(piece) for piece in pieces)
    return pa.array([restore(value) for value in values] if restore is not None else list(values), kind)


Restorer = Callable[[Any], Any]


def _restorer(kind: pa.DataType) -> Restorer | None:
    """What makes of a decoded value one that Arrow takes for the type; None where it is one already: in MessagePack
    decimals and dates are text, and a map's pairs are lists."""
    if type_is.is_decimal(kind):
        return _unless_null(Decimal)
    if type_is.is_date(kind):
        return _unless_null(date.fromisoformat)
    if type_is.is_map(kind):
        key, item = _restorer(kind.key_type) or _same, _restorer(kind.item_type) or _same
        return _unless_null(lambda pairs: [(key(k), item(v)) for k, v in pairs])
    if type_is.is_struct(kind):
        parts = {field.name: _restorer(field.type) for field in kind}
        known = {name: part for name, part in parts.items() if part is not None}
        return _unless_null(lambda row: {**row, **{n: part(row[n]) for n, part in known.items()}}) if known else None
    if type_is.is_list(kind) or type_is.is_large_list(kind) or type_is.is_fixed_size_list(kind):
        element = _restorer(kind.value_type)
        return None if element is None else _unless_null(lambda values: [element(value) for value in values])
    return None


def _unless_null(restore: Restorer) -> Restorer:
    return lambda value: None if value is None else restore(value)


def _same(value: Any) -> Any:
    return value
