"""Rows by (whole number, key): how windows, panes and sessions find their rows without touching each one in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.aggregates.aggregate import Grouped
from headwater.pipeline.columns import WEIGHT
from headwater.pipeline.stateful.operator import group
from headwater.pipeline.stateful.state import Rows, StateTable

__all__ = ["Keyed", "distinct", "each_between", "grouped", "keyed", "scanned"]

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Keyed:
    """The distinct keys of some rows, sorted, and each row's key number. Without key columns all rows have key 0."""

    keys: pa.Table
    index: Numbers
    count: int

    def take(self, chosen: Numbers) -> dict[str, pa.Array]:
        """The key columns of the keys with these numbers."""
        rows = pa.array(chosen)
        return {name: self.keys[name].combine_chunks().take(rows) for name in self.keys.column_names}


def keyed(table: pa.Table, key: Sequence[str]) -> Keyed:
    if not key:
        return Keyed(pa.table({}), np.zeros(table.num_rows, dtype=np.int64), min(table.num_rows, 1))
    found = group(table.select(list(key)))
    return Keyed(found.keys.columns, found.index, len(found))


def scanned(table: StateTable, keys: Keyed, low: Numbers, high: Numbers | None = None) -> Rows:
    """The state rows of each key whose next column is at least `low` (one for each key) and less than `high`."""
    if not len(low):
        return table.range(limit=0)
    return table.scan(keys.keys, keys.keys.column_names, low=low, high=high)


def distinct(*columns: Numbers) -> tuple[tuple[Numbers, ...], Numbers]:
    """The distinct rows of some columns of whole numbers, sorted, and which of them each row is."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
        if int(code.max(initial=0)) >= (1 << 62) // (high - low + 1):
            code = np.unique(code, return_inverse=True)[1].astype(np.int64)
        code = code * (high - low + 1) + (column - low)
    firsts, index = np.unique(code, return_index=True, return_inverse=True)[1:]
    return tuple(column[firsts] for column in columns), index.astype(np.int64)


def each_between(first: Numbers, last: Numbers) -> tuple[Numbers, Numbers]:
    """Every whole number from `first` to `last` of each row: (row, number) as two columns."""
    count = np.maximum(last - first + 1, 0)
    row = np.repeat(np.arange(len(first)), count)
    within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    return row, first[row] + within


def grouped(table: pa.Table, index: Numbers, count: int) -> Grouped:
    """The rows for aggregates: with their weights if the input is a changelog."""
    weights = None
    if WEIGHT in table.column_names:
        weights = np.asarray(table[WEIGHT].to_numpy(), dtype=np.int64)
    return Grouped(table, index, count, weights)


def row_counts(rows: Grouped) -> Numbers:
    """How many rows each group has, those taken back not counted."""
    if rows.weights is None:
        return np.bincount(rows.index, minlength=rows.count)
    counts = np.zeros(rows.count, dtype=np.int64)
    np.add.at(counts, rows.index, rows.weights)
    return counts
