"""What an aggregate is: accumulators as columns, made from rows, merged, and turned into a value; all vectorised.

An aggregate never sees one row or one key at a time. `partial` makes one accumulator per group from a batch's rows,
`merge` combines two columns of accumulators, `value` gives results. Every operator that aggregates (running,
windows, changelogs) takes any of them.

Invariant: merging is associative and commutative to the last bit, so that batch boundaries and interleavings leave no
trace in a result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.aggregates.ranges import in_blocks, scatter
from headwater.pipeline.columns import WEIGHT
from headwater.pipeline.errors import DefinitionError, UnknownColumn
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.schema import Column
from headwater.pipeline.stateful.state import Rows

__all__ = ["Accumulators", "Aggregate", "Aggregates", "Grouped"]

Accumulators = Mapping[str, pa.Array]
"""The aggregate's accumulator columns, one row for each group."""


@dataclass(frozen=True)
class Grouped:
    """Rows to aggregate: their columns, the group each belongs to, the number of groups, and weights (None: all 1)."""

    table: pa.Table
    index: npt.NDArray[np.int64]
    count: int
    weights: npt.NDArray[np.int64] | None = None

    def column(self, name: str) -> pa.Array:
        return as_array(self.table[name])

    def signs(self) -> npt.NDArray[np.int64]:
        return np.ones(len(self.index), dtype=np.int64) if self.weights is None else self.weights

    def one_each(self) -> Grouped:
        """The same rows, each a group of its own."""
        count = self.table.num_rows
        return Grouped(self.table, np.arange(count), count, self.weights)

    def present(self, name: str) -> Grouped:
        """Only the rows in which a column is not null."""
        column = self.column(name)
        if not column.null_count:
            return self
        kept = column.is_valid()
        mask = np.asarray(kept.to_numpy(zero_copy_only=False))
        weights = None if self.weights is None else self.weights[mask]
        return Grouped(self.table.filter(kept), self.index[mask], self.count, weights)


class Aggregate(ABC):
    """One aggregate over one column (or none). Subclasses are frozen dataclasses: settings only."""

    retracts: ClassVar[bool] = False
    """Whether rows with negative weights can be taken out again."""

    @property
    @abstractmethod
    def columns(self) -> Sequence[str]:
        """The input columns it reads."""

    @abstractmethod
    def accumulators(self, schema: pa.Schema) -> Sequence[Column]:
        """Its accumulator columns; checks the input's types (raises WrongType)."""

    @abstractmethod
    def type(self, schema: pa.Schema) -> pa.DataType:
        """The type of its result."""

    @abstractmethod
    def partial(self, rows: Grouped) -> Accumulators:
        """One accumulator for each group from these rows; a group without rows has the empty accumulator."""

    @abstractmethod
    def merge(self, left: Accumulators, right: Accumulators) -> Accumulators:
        """Accumulators of the rows of both sides, group by group."""

    @abstractmethod
    def value(self, accumulators: Accumulators) -> pa.Array:
        """The results."""

    def retracting(self) -> Aggregate:
        """This aggregate where rows may be taken back: the same result, at the cost of keeping more."""
        return self

    def within(self, size: int) -> Aggregate:
        """This aggregate in a window of `size` microseconds; only rates are another one there."""
        return self

    def over(self, rows: Grouped, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]) -> Accumulators:
        """For each i the accumulator of the rows low[i] to high[i] - 1; their groups do not matter."""
        nothing = Grouped(rows.table.slice(0, 0), np.zeros(0, dtype=np.int64), len(low))
        return in_blocks(self, self.partial(rows.one_each()), self.partial(nothing), low, high)


class Aggregates:
    """Named aggregates over one input, as columns of one state table: `<result>.<accumulator>`."""

    def __init__(self, named: Mapping[str, Aggregate], schema: pa.Schema, where: str) -> None:
        if not named:
            raise DefinitionError(f"{where}: no aggregates; say for example aggregates={{'n': count()}}")
        for name, one in named.items():
            if not isinstance(one, Aggregate):
                raise DefinitionError(f"{where}: {name!r} is {one!r}, not an aggregate such as count() or sum('x')")
            for column in one.columns:
                if column not in schema.names:
                    raise UnknownColumn(column, list(schema.names), f"{where}: aggregate {name!r}")
        weighted = WEIGHT in schema.names
        self.named = {name: one.retracting() if weighted else one for name, one in named.items()}
        named = self.named
        self._own = {name: tuple(one.accumulators(schema)) for name, one in named.items()}
        self._types = {name: one.type(schema) for name, one in named.items()}

    @property
    def state(self) -> tuple[Column, ...]:
        """The columns of the state table."""
        return tuple(Column(f"{n}.{c.name}", c.type, c.default) for n, own in self._own.items() for c in own)

    @property
    def fields(self) -> list[pa.Field]:
        """The columns of the results."""
        return [pa.field(name, kind) for name, kind in self._types.items()]

    @property
    def retracts(self) -> bool:
        return all(one.retracts for one in self.named.values())

    def partial(self, rows: Grouped) -> dict[str, pa.Array]:
        return self._flat({name: one.partial(rows) for name, one in self.named.items()})

    def over(self, rows: Grouped, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
        """One row of state columns for each range of rows."""
        return self._flat({name: one.over(rows, low, high) for name, one in self.named.items()})

    def merge(self, left: Any, right: Any) -> dict[str, pa.Array]:
        """State columns with others merged in; `Rows`, tables or mappings."""
        pairs = {n: (self._nested(left, n), self._nested(right, n)) for n in self.named}
        return self._flat({name: self.named[name].merge(a, b) for name, (a, b) in pairs.items()})

    def values(self, state: Any) -> dict[str, pa.Array]:
        return {
            name: as_array(one.value(self._nested(state, name)), self._types[name]) for name, one in self.named.items()
        }

    def reduce(self, state: Any, index: npt.NDArray[np.int64], count: int) -> dict[str, pa.Array]:
        """State columns merged by group: `index` says which of `count` groups each row goes to (panes, sessions)."""
        order = np.argsort(index, kind="stable")
        starts = np.searchsorted(index[order], np.arange(count))
        rank = np.arange(len(index)) - starts[index[order]]
        taken = {c.name: as_array(state[c.name], c.type).take(pa.array(order)) for c in self.state}
        first = {name: column.filter(pa.array(rank == 0)) for name, column in taken.items()}
        total = first
        for step in range(1, int(rank.max(initial=0)) + 1):
            rows = np.flatnonzero(rank == step)
            where = index[order][rows]
            part = {name: column.take(pa.array(rows)) for name, column in taken.items()}
            merged = self.merge({n: c.take(pa.array(where)) for n, c in total.items()}, part)
            total = {name: scatter(total[name], where, merged[name]) for name in total}
        return total

    def _nested(self, state: Any, name: str) -> dict[str, pa.Array]:
        return {c.name: as_array(state[f"{name}.{c.name}"], c.type) for c in self._own[name]}

    def _flat(self, nested: Mapping[str, Accumulators]) -> dict[str, pa.Array]:
        return {f"{n}.{c.name}": as_array(nested[n][c.name], c.type) for n, own in self._own.items() for c in own}


def numbers(rows: Rows | Accumulators, name: str) -> npt.NDArray[Any]:
    """An accumulator column as NumPy."""
    return np.asarray(as_array(rows[name]).to_numpy(zero_copy_only=False))
