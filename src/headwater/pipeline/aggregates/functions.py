"""The aggregates to begin with: count, sum, mean, variance, stddev, min, max, first, last.

Null values are left out, as in SQL; over nothing but nulls the result is null, and count is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.aggregates import exact
from headwater.pipeline.aggregates.aggregate import Accumulators, Aggregate, Grouped, numbers
from headwater.pipeline.aggregates.ranges import sums_between
from headwater.pipeline.errors import DefinitionError, WrongType
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.schema import Column
from headwater.pipeline.time.settings import microseconds

__all__ = ["count", "first", "last", "max", "mean", "min", "rate", "stddev", "sum", "variance"]

_INT, _FLOAT, _BYTES = pa.int64(), pa.float64(), pa.binary()
_NOT_FINITE = ("nan", "up", "down")  # how many values are NaN, +infinity, -infinity: they are counted, not added


def count(column: str | None = None) -> Aggregate:
    """The number of rows, or of those in which a column is not null."""
    return _Count(column)


def rate(per: str = "1 second", column: str | None = None) -> Aggregate:
    """How many rows come `per` second, minute ...; or rows in which a column is not null. Only in windows of a fixed
    size: the count divided by the size."""
    return _Rate(column, microseconds(per, "rate: per", zero=False))


def sum(column: str) -> Aggregate:
    """The sum: whole numbers as a 64-bit integer, others as the double nearest to the exact sum."""
    return _Sum(column)


def mean(column: str) -> Aggregate:
    """The arithmetic mean: the double nearest to the exact one."""
    return _Mean(column)


def variance(column: str) -> Aggregate:
    """The sample variance (divided by n - 1), from exact sums; null for fewer than two values."""
    return _Variance(column)


def stddev(column: str) -> Aggregate:
    """The sample standard deviation: the root of the variance."""
    return _Stddev(column)


def min(column: str) -> Aggregate:
    """The least value, of any type that has an order."""
    return _Extreme(column, "min")


def max(column: str) -> Aggregate:
    """The greatest value, of any type that has an order."""
    return _Extreme(column, "max")


def first(column: str) -> Aggregate:
    """The value of the earliest row by event time; ties go by producer, topic, partition and offset."""
    return _Edge(column, latest=False)


def last(column: str) -> Aggregate:
    """The value of the latest row by event time; ties go by producer, topic, partition and offset."""
    return _Edge(column, latest=True)


class _Summing(Aggregate):
    """An aggregate whose accumulators are sums: whole numbers, or exact ones in binary columns."""

    retracts: ClassVar[bool] = True

    def over(self, rows: Grouped, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]) -> Accumulators:
        each = self.partial(rows.one_each())
        return {name: _between(as_array(column), low, high) for name, column in each.items()}


def _between(column: pa.Array, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]) -> pa.Array:
    if pa.types.is_binary(column.type):
        return pa.array(exact.encode(sums_between(_decoded(column), low, high)), _BYTES)
    return pa.array(sums_between(np.asarray(column.to_numpy(zero_copy_only=False)), low, high))


@dataclass(frozen=True)
class _Count(_Summing):
    column: str | None

    @property
    def columns(self) -> Sequence[str]:
        return () if self.column is None else (self.column,)

    def accumulators(self, schema: pa.Schema) -> Sequence[Column]:
        return (Column("n", _INT, 0),)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return _INT

    def partial(self, rows: Grouped) -> Accumulators:
        return {"n": pa.array(_count(rows if self.column is None else rows.present(self.column)))}

    def merge(self, left: Accumulators, right: Accumulators) -> Accumulators:
        return _added(left, right, ("n",))

    def value(self, accumulators: Accumulators) -> pa.Array:
        return accumulators["n"]


@dataclass(frozen=True)
class _Rate(_Count):
    per: int
    size: int = 0

    def within(self, size: int) -> Aggregate:
        return replace(self, size=size)

    def type(self, schema: pa.Schema) -> pa.DataType:
        if not self.size:
            raise DefinitionError("rate() needs a window of a fixed size: tumbling, hopping or sliding")
        return _FLOAT

    def value(self, accumulators: Accumulators) -> pa.Array:
        return pa.array(numbers(accumulators, "n") * (self.per / self.size))


@dataclass(frozen=True)
class _Numeric(_Summing):
    """Exact sums of a numeric column: `n` values, their sum, and for floats the ones that are not finite."""

    column: str
    floats: ClassVar[tuple[str, ...]] = ("sum",)
    whole_sum: ClassVar[bool] = False

    @property
    def columns(self) -> Sequence[str]:
        return (self.column,)

    def accumulators(self, schema: pa.Schema) -> Sequence[Column]:
        if self._adds_integers(schema):
            return (Column("n", _INT, 0), Column("whole", _INT, 0))
        return (
            Column("n", _INT, 0),
            *(Column(name, _BYTES, "") for name in self.floats),
            *(Column(name, pa.int32(), 0) for name in _NOT_FINITE),
        )

    def _adds_integers(self, schema: pa.Schema) -> bool:
        kind = schema.field(self.column).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise WrongType(self.column, str(kind), "a number", type(self).__name__.strip("_").lower())
        return self.whole_sum and bool(pa.types.is_integer(kind))

    def partial(self, rows: Grouped) -> Accumulators:
        rows = rows.present(self.column)
        values = rows.column(self.column)
        if self.whole_sum and pa.types.is_integer(values.type):
            return {"n": pa.array(_count(rows)), "whole": pa.array(_whole_sums(values, rows))}
        return self._exact(np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64), rows)

    def _exact(self, values: npt.NDArray[np.float64], rows: Grouped) -> Accumulators:
        finite = np.isfinite(values)
        kept = values[finite]
        index = rows.index[finite]
        weights = None if rows.weights is None else rows.weights[finite]
        columns: dict[str, Any] = {"n": pa.array(_count(rows))}
        columns["sum"] = pa.array(exact.encode(exact.sum_by_group(kept, index, rows.count, weights)), _BYTES)
        if "squares" in self.floats:
            parts = [exact.sum_by_group(term, index, rows.count, weights) for term in exact.square_terms(kept)]
            columns["squares"] = pa.array(exact.encode(exact.add(*parts)), _BYTES)
        odd = (np.isnan(values), np.isposinf(values), np.isneginf(values))
        for name, mask in zip(_NOT_FINITE, odd, strict=True):
            counts = np.zeros(rows.count, dtype=np.int64)
            np.add.at(counts, rows.index[mask], rows.signs()[mask])
            columns[name] = counts
        return columns

    def merge(self, left: Accumulators, right: Accumulators) -> Accumulators:
        if "whole" in left:
            return _added(left, right, ("n", "whole"))
        merged = dict(_added(left, right, ("n", *_NOT_FINITE)))
        for name in self.floats:
            merged[name] = pa.array(exact.encode(exact.add(_decoded(left[name]), _decoded(right[name]))), _BYTES)
        return merged

    def _finished(self, results: npt.NDArray[np.float64], accumulators: Accumulators) -> pa.Array:
        """Results with NaN and infinities put in, and null where there were no values."""
        nan, up, down = (numbers(accumulators, name) for name in _NOT_FINITE)
        results = np.where(up > 0, np.inf, np.where(down > 0, -np.inf, results))
        results = np.where((nan > 0) | ((up > 0) & (down > 0)), np.nan, results)
        return pa.array(results, mask=numbers(accumulators, "n") <= 0)


@dataclass(frozen=True)
class _Sum(_Numeric):
    whole_sum: ClassVar[bool] = True

    def type(self, schema: pa.Schema) -> pa.DataType:
        return _INT if self._adds_integers(schema) else _FLOAT

    def value(self, accumulators: Accumulators) -> pa.Array:
        if "whole" in accumulators:
            return pc.if_else(pc.greater(accumulators["n"], 0), accumulators["whole"], pa.scalar(None, _INT))
        return self._finished(exact.to_floats(_decoded(accumulators["sum"])), accumulators)


@dataclass(frozen=True)
class _Mean(_Numeric):
    def type(self, schema: pa.Schema) -> pa.DataType:
        self._adds_integers(schema)
        return _FLOAT

    def value(self, accumulators: Accumulators) -> pa.Array:
        counts = numbers(accumulators, "n").tolist()
        return self._finished(exact.to_floats(_decoded(accumulators["sum"]), counts), accumulators)


@dataclass(frozen=True)
class _Variance(_Numeric):
    floats: ClassVar[tuple[str, ...]] = ("sum", "squares")

    def type(self, schema: pa.Schema) -> pa.DataType:
        self._adds_integers(schema)
        return _FLOAT

    def value(self, accumulators: Accumulators) -> pa.Array:
        n = numbers(accumulators, "n")
        sums, squares = _decoded(accumulators["sum"]).tolist(), _decoded(accumulators["squares"]).tolist()
        values = [_variance(*one) for one in zip(n.tolist(), sums, squares, strict=True)]
        odd = np.any([numbers(accumulators, name) > 0 for name in _NOT_FINITE], axis=0)
        return pa.array(np.where(odd, np.nan, np.array(values, dtype=np.float64)), mask=n < 2)


@dataclass(frozen=True)
class _Stddev(_Variance):
    def value(self, accumulators: Accumulators) -> pa.Array:
        return pc.sqrt(super().value(accumulators))


def _variance(n: int, total: int, squares: int) -> float:
    if n < 2:
        return 0.0
    unit = 1 << exact.SCALE
    return float(Fraction(n * squares * unit - total * total, unit * unit * n * (n - 1)))


@dataclass(frozen=True)
class _Extreme(Aggregate):
    column: str
    which: str

    @property
    def columns(self) -> Sequence[str]:
        return (self.column,)

    def accumulators(self, schema: pa.Schema) -> Sequence[Column]:
        kind = schema.field(self.column).type
        if pa.types.is_nested(kind):
            raise WrongType(self.column, str(kind), "of a type that has an order", self.which)
        return (Column("value", kind),)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return schema.field(self.column).type

    def partial(self, rows: Grouped) -> Accumulators:
        values = rows.column(self.column)
        found = pa.table({"g": pa.array(rows.index), "v": values}).group_by("g", use_threads=False)
        found = found.aggregate([("v", self.which)])
        places = np.full(rows.count, len(found))
        places[found["g"].to_numpy()] = np.arange(len(found))
        column = as_array(found[f"v_{self.which}"], values.type)
        return {"value": pa.concat_arrays([column, pa.nulls(1, values.type)]).take(pa.array(places))}

    def merge(self, left: Accumulators, right: Accumulators) -> Accumulators:
        choose = pc.min_element_wise if self.which == "min" else pc.max_element_wise
        return {"value": choose(left["value"], right["value"])}

    def value(self, accumulators: Accumulators) -> pa.Array:
        return accumulators["value"]

    def retracting(self) -> Aggregate:
        from headwater.pipeline.aggregates.multiset import extreme

        return extreme(self.column, self.which)


ORDER = (
    ("_time", pa.timestamp("us", tz="UTC")),
    ("_producer", pa.string()),
    ("_topic", pa.string()),
    ("_partition", pa.int32()),
    ("_offset", pa.int64()),
)


@dataclass(frozen=True)
class _Edge(Aggregate):
    """The value of the first or last row in the order of `ORDER`, as far as the input has those columns."""

    column: str
    latest: bool

    @property
    def columns(self) -> Sequence[str]:
        return (self.column,)

    def accumulators(self, schema: pa.Schema) -> Sequence[Column]:
        order = [Column(name, kind) for name, kind in ORDER if name in schema.names]
        if not {"_time", "_offset"} & {column.name for column in order}:
            raise DefinitionError(
                f"{'last' if self.latest else 'first'}({self.column!r}): the rows have no order; say event_time() first"
            )
        return (*order, Column("value", schema.field(self.column).type), Column("some", pa.bool_(), False))

    def type(self, schema: pa.Schema) -> pa.DataType:
        return schema.field(self.column).type

    def partial(self, rows: Grouped) -> Accumulators:
        order = [name for name, _ in ORDER if name in rows.table.column_names]
        table = pa.table({"g": pa.array(rows.index), "value": rows.column(self.column)})
        for name, kind in ORDER:
            if name in order:
                table = table.append_column(name, as_array(rows.table[name], kind))
        found = _edges(table.append_column("some", pa.repeat(True, len(table))), order, self.latest)
        places = np.full(rows.count, len(found))
        places[found["g"].to_numpy()] = np.arange(len(found))
        empty = pa.table({f.name: pa.nulls(1, f.type) for f in found.schema})
        empty = empty.set_column(empty.schema.get_field_index("some"), "some", pa.array([False]))
        taken = pa.concat_tables([found, empty]).take(pa.array(places))
        return {name: as_array(taken[name]) for name in taken.column_names if name != "g"}

    def merge(self, left: Accumulators, right: Accumulators) -> Accumulators:
        order = [name for name, _ in ORDER if name in left]
        count = len(left["some"])
        both = pa.concat_tables([pa.table(dict(left)), pa.table(dict(right)).select(list(left))])
        both = both.append_column("g", pa.array(np.tile(np.arange(count), 2)))
        kept = _edges(both.filter(both["some"]), order, self.latest)
        places = np.full(count, len(kept))
        places[kept["g"].to_numpy()] = np.arange(len(kept))
        empty = pa.table({f.name: pa.nulls(1, f.type) for f in kept.schema})
        empty = empty.set_column(empty.schema.get_field_index("some"), "some", pa.array([False]))
        taken = pa.concat_tables([kept, empty]).take(pa.array(places))
        return {name: as_array(taken[name]) for name in left}

    def value(self, accumulators: Accumulators) -> pa.Array:
        return accumulators["value"]


def _edges(table: pa.Table, order: Sequence[str], latest: bool) -> pa.Table:
    """One row for each value of `g`: the first or last in the order."""
    direction = "descending" if latest else "ascending"
    keys = [("g", "ascending"), *((name, direction) for name in order)]
    ordered = table.take(pc.sort_indices(table, sort_keys=keys))
    groups = ordered["g"].to_numpy()
    return ordered.filter(pa.array(np.concatenate([[True], groups[1:] != groups[:-1]])[: len(groups)]))


def _count(rows: Grouped) -> npt.NDArray[np.int64]:
    if rows.weights is None:
        return np.bincount(rows.index, minlength=rows.count)
    counts = np.zeros(rows.count, dtype=np.int64)
    np.add.at(counts, rows.index, rows.weights)
    return counts


def _whole_sums(values: pa.Array, rows: Grouped) -> npt.NDArray[np.int64]:
    sums = np.zeros(rows.count, dtype=np.int64)
    terms = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.int64)
    np.add.at(sums, rows.index, terms if rows.weights is None else terms * rows.weights)
    return sums


def _added(left: Accumulators, right: Accumulators, names: Sequence[str]) -> Mapping[str, pa.Array]:
    return {name: pc.add(left[name], right[name]) for name in names}


def _decoded(column: pa.Array) -> npt.NDArray[np.object_]:
    return exact.decode(column.to_pylist())
