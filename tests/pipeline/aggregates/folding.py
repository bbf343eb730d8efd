"""Aggregates driven directly: rows in parts, merged in any order, one value for each group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.pipeline.aggregates.aggregate import Aggregate, Aggregates, Grouped
from headwater.pipeline.stateful.schema import TableHistory, TableSpec
from headwater.pipeline.stateful.values import RowCodec


def folded(aggregate: Aggregate, table: pa.Table, groups: Sequence[int], parts: Sequence[Sequence[int]]) -> pa.Table:
    """The accumulators of groups 0 to max(groups) from the rows of each part, one merged into the other; each time
    through the bytes that the state would store."""
    count = max(groups, default=-1) + 1
    both = Aggregates({"x": aggregate}, table.schema, "test")
    spec = TableSpec.of("t", [("k", pa.int64())], both.state)
    codec = RowCodec(TableHistory.new(spec))
    empty = Grouped(table.slice(0, 0), np.zeros(0, dtype=np.int64), count)
    state: Any = both.partial(empty)
    for part in parts:
        chosen = np.array(part, dtype=np.int64)
        rows = Grouped(table.take(pa.array(chosen)), np.array(groups, dtype=np.int64)[chosen], count)
        state = both.merge(codec.unpack(codec.pack(state, count)), both.partial(rows))
    return pa.table({**state, "result": both.values(state)["x"]})


def result(aggregate: Aggregate, table: pa.Table, groups: Sequence[int] | None = None) -> list[Any]:
    """The value of each group over all rows at once; one group unless told."""
    groups = [0] * table.num_rows if groups is None else groups
    values: list[Any] = folded(aggregate, table, groups, [range(table.num_rows)])["result"].to_pylist()
    return values
