"""Accumulators that keep elements: list columns, taken apart and put together as flat columns.

An element belongs to a group (its list's row). `Elements` has all elements of all groups in flat columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.errors import WrongType
from headwater.pipeline.stateful.keys import as_array

__all__ = ["Elements", "check_element", "ranked"]

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Elements:
    """Flat columns, and the group of each row."""

    columns: Mapping[str, pa.Array]
    group: Numbers

    @classmethod
    def of(cls, lists: Mapping[str, pa.Array]) -> Elements:
        """From list columns of the same lengths, row by row."""
        arrays = {name: as_array(column) for name, column in lists.items()}
        group = np.asarray(next(iter(arrays.values())).value_parent_indices().to_numpy(), dtype=np.int64)
        return cls({name: array.flatten() for name, array in arrays.items()}, group)

    def and_also(self, others: Elements) -> Elements:
        columns = {name: pa.concat_arrays([one, others.columns[name]]) for name, one in self.columns.items()}
        return Elements(columns, np.concatenate([self.group, others.group]))

    def take(self, rows: Numbers) -> Elements:
        chosen = pa.array(rows)
        return Elements({name: column.take(chosen) for name, column in self.columns.items()}, self.group[rows])

    def lists(self, count: int) -> dict[str, pa.Array]:
        """List columns with one row for each of `count` groups; the elements are ordered by group."""
        offsets = pa.array(np.searchsorted(self.group, np.arange(count + 1)), pa.int32())
        return {name: pa.ListArray.from_arrays(offsets, column) for name, column in self.columns.items()}

    def first(self, most: int) -> Elements:
        """The first `most` elements of each group; they are ordered by group."""
        within = np.arange(len(self.group)) - np.searchsorted(self.group, self.group)
        return self.take(np.flatnonzero(within < most))


def ranked(values: pa.Array) -> tuple[pa.Array, Numbers]:
    """The distinct values in order, and each value's place among them; -0.0 is 0.0, all NaN are one and the last."""
    if pa.types.is_floating(values.type):
        values = pc.if_else(
            pc.is_nan(values), pa.scalar(np.nan, values.type), pc.add(values, pa.scalar(0, values.type))
        )
    encoded = values.dictionary_encode()
    order = np.asarray(pc.sort_indices(encoded.dictionary), dtype=np.int64)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    places = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
    return encoded.dictionary.take(pa.array(order)), rank[places]


def sorted_by(elements: Elements, order: Sequence[tuple[str, str]]) -> Elements:
    """By group, then by columns, each "ascending" or "descending"; null last."""
    table = pa.table({"g": elements.group, **elements.columns})
    return elements.take(np.asarray(pc.sort_indices(table, sort_keys=[("g", "ascending"), *order]), dtype=np.int64))


def check_element(schema: pa.Schema, column: str, where: str) -> pa.DataType:
    """The type of a column whose values are kept in lists; WrongType if they cannot be."""
    kind = schema.field(column).type
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if not (plain or text or pa.types.is_timestamp(kind)):
        raise WrongType(column, str(kind), "a number, a string, bytes, a boolean or a timestamp", where)
    return kind
