"""An aggregate of the user's own, in Python: once per group and batch, never per row.

    spread = custom(["amount"], partial=lambda rows: [pc.min(rows["amount"]).as_py(), pc.max(rows["amount"]).as_py()],
                    merge=lambda a, b: [min(a[0], b[0]), max(a[1], b[1])],
                    finish=lambda state: state[1] - state[0],
                    state=pa.list_(pa.float64()), result=pa.float64())

`merge` must not depend on the order: merge(a, b) == merge(b, a), and merge(a, merge(b, c)) == merge(merge(a, b), c).
An aggregate that works on whole columns is a subclass of `Aggregate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.pipeline.aggregates.aggregate import Accumulators, Aggregate, Grouped
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.schema import Column

__all__ = ["custom"]


def custom(
    columns: Sequence[str],
    *,
    partial: Callable[[pa.Table], Any],
    merge: Callable[[Any, Any], Any],
    finish: Callable[[Any], Any] = lambda state: state,
    state: pa.DataType,
    result: pa.DataType,
) -> Aggregate:
    """`partial` makes a state of a group's rows (the `columns` of them), `merge` one of two, `finish` the result.

    `state` and `result`: their Arrow types. A state is never None; a group without rows has the result null.
    """
    return _Custom(tuple(columns), partial, merge, finish, state, result)


@dataclass(frozen=True)
class _Custom(Aggregate):
    of: tuple[str, ...]
    of_rows: Callable[[pa.Table], Any]
    of_two: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any]
    state: pa.DataType
    result: pa.DataType

    @property
    def columns(self) -> Sequence[str]:
        return self.of

    def accumulators(self, schema: pa.Schema) -> Sequence[Column]:
        return (Column("state", self.state),)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return self.result

    def partial(self, rows: Grouped) -> Accumulators:
        order = np.argsort(rows.index, kind="stable")
        ordered = rows.table.select(list(self.of)).take(pa.array(order))
        starts = np.searchsorted(rows.index[order], np.arange(rows.count + 1)).tolist()
        states = [self.of_rows(ordered.slice(a, b - a)) if b > a else None for a, b in pairwise(starts)]
        return {"state": pa.array(states, self.state)}

    def merge(self, left: Accumulators, right: Accumulators) -> Accumulators:
        pairs = zip(as_array(left["state"]).to_pylist(), as_array(right["state"]).to_pylist(), strict=True)
        merged = [b if a is None else a if b is None else self.of_two(a, b) for a, b in pairs]
        return {"state": pa.array(merged, self.state)}

    def value(self, accumulators: Accumulators) -> pa.Array:
        states = as_array(accumulators["state"]).to_pylist()
        return pa.array([None if one is None else self.finish(one) for one in states], self.result)
