"""Aggregates over many overlapping ranges of rows, without going through any range row by row.

The rows are added up in blocks of 1, 2, 4, 8 ... consecutive rows, each level from the one before. A range of n rows
is the blocks of n's binary digits, one behind the other. So r ranges over n rows take about (n + r) log2(longest)
merges, all of them on whole columns.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.aggregates.aggregate import Aggregates, Grouped
from headwater.pipeline.stateful.keys import as_array

__all__ = ["over_ranges"]

Numbers = npt.NDArray[np.int64]


def over_ranges(aggregates: Aggregates, rows: pa.Table, low: Numbers, high: Numbers) -> Mapping[str, pa.Array]:
    """The accumulators of rows low[i] to high[i] - 1, for each i; an empty range has the empty accumulator."""
    blocks = aggregates.partial(Grouped(rows, np.arange(rows.num_rows), rows.num_rows))
    total = aggregates.partial(Grouped(rows.slice(0, 0), np.zeros(0, dtype=np.int64), len(low)))
    at, length, size = low.copy(), high - low, 1
    while True:
        digit = np.flatnonzero(length & size)
        if len(digit):
            total = _add(aggregates, total, digit, _take(blocks, at[digit]))
            at[digit] += size
        if size * 2 > int(length.max(initial=0)):
            return total
        count = max(rows.num_rows - 2 * size + 1, 0)
        ahead = np.arange(count)
        blocks = aggregates.merge(_take(blocks, ahead), _take(blocks, ahead + size))
        size *= 2


def _take(columns: Mapping[str, pa.Array], rows: Numbers) -> dict[str, pa.Array]:
    return {name: as_array(column).take(pa.array(rows)) for name, column in columns.items()}


def _add(
    aggregates: Aggregates, total: Mapping[str, pa.Array], rows: Numbers, more: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    """`total` with `more` merged into these rows of it."""
    merged = aggregates.merge(_take(total, rows), more)
    places = np.arange(len(next(iter(total.values()))))
    places[rows] = len(places) + np.arange(len(rows))
    return {
        name: pa.concat_arrays([as_array(column), as_array(merged[name], column.type)]).take(pa.array(places))
        for name, column in total.items()
    }
