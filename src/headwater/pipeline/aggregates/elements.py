"""Aggregates that keep some rows in an order: the top k, and all values as they happened."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.pipeline.aggregates.aggregate import Accumulators, Aggregate, Grouped
from headwater.pipeline.aggregates.functions import ORDER
from headwater.pipeline.aggregates.lists import Elements, check_element, sorted_by
from headwater.pipeline.errors import BadOption, DefinitionError
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.schema import Column

__all__ = ["collect", "top"]


def collect(column: str, most: int | None = None) -> Aggregate:
    """The values as a list, by event time; ties go by producer, topic, partition and offset. Null values are left out.

    `most`: only the earliest so many. Without it the list grows with the group.
    """
    _check_most(most, f"collect({column!r})")
    return _Collect(column, most)


def top(column: str, k: int, by: str | None = None) -> Aggregate:
    """The `k` greatest values as a list; or those of the rows with the greatest `by`, ties by the lesser value."""
    _check_most(k, f"top({column!r})")
    return _Top(column, k, column if by is None else by)


def _check_most(most: int | None, where: str) -> None:
    if most is not None and most < 1:
        raise BadOption(f"{where}: {most} values are none; say 1 or more")


class _Ordered(Aggregate):
    """Elements by group in an order, at most so many of each group; the columns of `order` are kept with them."""

    def partial(self, rows: Grouped) -> Accumulators:
        for name in self.columns:
            rows = rows.present(name)
        columns = {name: as_array(rows.table[source], kind) for name, source, kind in self._sources(rows.table.schema)}
        return self._kept(Elements(columns, rows.index)).lists(rows.count)

    def merge(self, left: Accumulators, right: Accumulators) -> Accumulators:
        names = list(left)
        both = Elements.of(left).and_also(Elements.of({name: right[name] for name in names}))
        return self._kept(both).lists(len(left[names[0]]))

    def value(self, accumulators: Accumulators) -> pa.Array:
        return accumulators["value"]

    def accumulators(self, schema: pa.Schema) -> Sequence[Column]:
        return tuple(Column(name, pa.list_(kind)) for name, _, kind in self._sources(schema))

    def _kept(self, elements: Elements) -> Elements:
        ordered = sorted_by(elements, self._order(list(elements.columns)))
        return ordered if self._most() is None else ordered.first(self._most() or 0)

    @abstractmethod
    def _sources(self, schema: pa.Schema) -> list[tuple[str, str, pa.DataType]]:
        """(accumulator, the input's column, type) of what is kept of an element."""

    @abstractmethod
    def _order(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """The accumulators that elements are ordered by."""

    @abstractmethod
    def _most(self) -> int | None:
        """How many of a group are kept; None for all."""


@dataclass(frozen=True)
class _Collect(_Ordered):
    column: str
    most: int | None

    @property
    def columns(self) -> Sequence[str]:
        return (self.column,)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.list_(schema.field(self.column).type)

    def _sources(self, schema: pa.Schema) -> list[tuple[str, str, pa.DataType]]:
        order = [(name, name, kind) for name, kind in ORDER if name in schema.names]
        if not {"_time", "_offset"} & {name for name, _, _ in order}:
            raise DefinitionError(f"collect({self.column!r}): the rows have no order; say event_time() first")
        return [*order, ("value", self.column, check_element(schema, self.column, "collect"))]

    def _order(self, names: Sequence[str]) -> list[tuple[str, str]]:
        return [(name, "ascending") for name in names]

    def _most(self) -> int | None:
        return self.most


@dataclass(frozen=True)
class _Top(_Ordered):
    column: str
    k: int
    by: str

    @property
    def columns(self) -> Sequence[str]:
        return tuple(dict.fromkeys((self.column, self.by)))

    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.list_(schema.field(self.column).type)

    def _sources(self, schema: pa.Schema) -> list[tuple[str, str, pa.DataType]]:
        return [
            ("by", self.by, check_element(schema, self.by, "top: by")),
            ("value", self.column, check_element(schema, self.column, "top")),
        ]

    def _order(self, names: Sequence[str]) -> list[tuple[str, str]]:
        return [("by", "descending"), ("value", "ascending")]

    def _most(self) -> int | None:
        return self.k
