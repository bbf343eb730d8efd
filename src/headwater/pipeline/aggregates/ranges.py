"""An aggregate over many overlapping ranges of rows, without going through any range row by row.

The rows are added up in blocks of 1, 2, 4, 8 ... consecutive rows, each level from the one before. A range of n rows
is the blocks of n's binary digits, one behind the other. So r ranges over n rows take about (n + r) log2(longest)
merges, all of them on whole columns. Aggregates that are sums need less: the sum up to the end less that up to the
start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.stateful.keys import as_array

if TYPE_CHECKING:
    from headwater.pipeline.aggregates.aggregate import Aggregate

__all__ = ["in_blocks", "scatter", "sums_between"]

Numbers = npt.NDArray[np.int64]
Columns = Mapping[str, pa.Array]


def in_blocks(aggregate: Aggregate, each: Columns, none: Columns, low: Numbers, high: Numbers) -> Columns:
    """The accumulators of rows low[i] to high[i] - 1 from those of `each` row; `none` has an empty one for each i."""
    total, blocks, count = none, each, len(next(iter(each.values())))
    at, length, size = low.copy(), high - low, 1
    while True:
        digit = np.flatnonzero(length & size)
        if len(digit):
            merged = aggregate.merge(_take(total, digit), _take(blocks, at[digit]))
            total = {name: scatter(as_array(column), digit, as_array(merged[name])) for name, column in total.items()}
            at[digit] += size
        if size * 2 > int(length.max(initial=0)):
            return total
        ahead = np.arange(count - 2 * size + 1)
        blocks = aggregate.merge(_take(blocks, ahead), _take(blocks, ahead + size))
        size *= 2


def sums_between(values: npt.NDArray[Any], low: Numbers, high: Numbers) -> npt.NDArray[Any]:
    """For each i the sum of values[low[i]:high[i]]; whole numbers, of any size in an object array."""
    upto = np.concatenate([np.zeros(1, dtype=values.dtype), np.cumsum(values)])
    return np.asarray(upto[high] - upto[low])


def scatter(column: pa.Array, where: Numbers, values: pa.Array) -> pa.Array:
    """`column` with `values` in the places `where`."""
    places = np.arange(len(column))
    places[where] = len(column) + np.arange(len(where))
    return pa.concat_arrays([column, values.cast(column.type)]).take(pa.array(places))


def _take(columns: Columns, rows: Numbers) -> dict[str, pa.Array]:
    return {name: as_array(column).take(pa.array(rows)) for name, column in columns.items()}
