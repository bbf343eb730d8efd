"""Exact aggregates that need every value: distinct values, percentiles, extremes of values that come and go.

The accumulator is a multiset: the distinct values in order, and how often each came. So equal values cost once,
boundaries and interleavings leave no trace, and rows with negative weights can be taken out again. It grows with the
number of distinct values in a group and is written as a whole whenever a batch changes it: for groups of many
thousands take a sketch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.aggregates.aggregate import Accumulators, Aggregate, Grouped
from headwater.pipeline.aggregates.lists import Elements, check_element, ranked
from headwater.pipeline.errors import BadOption, WrongType
from headwater.pipeline.stateful.schema import Column

__all__ = ["collect_set", "count_distinct", "extreme", "median", "percentile"]

Numbers = npt.NDArray[np.int64]


def count_distinct(column: str) -> Aggregate:
    """How many different values there are."""
    return _CountDistinct(column)


def collect_set(column: str) -> Aggregate:
    """The different values, in order."""
    return _CollectSet(column)


def percentile(column: str, share: float | Sequence[float]) -> Aggregate:
    """The value below which `share` (0 to 1) of the values are, between two values by straight line, as Spark's
    `percentile`; for several shares a list."""
    shares = (share,) if isinstance(share, (int, float)) else tuple(share)
    if not shares or not all(0 <= one <= 1 for one in shares):
        raise BadOption(f"percentile({column!r}): the share is {share!r}; say 0 to 1, 0.95 for example")
    return _Percentile(column, tuple(map(float, shares)), isinstance(share, (int, float)))


def median(column: str) -> Aggregate:
    """The value in the middle."""
    return percentile(column, 0.5)


def extreme(column: str, which: str) -> Aggregate:
    """The least ("min") or greatest ("max") of values that may be taken back."""
    return _Extreme(column, which)


@dataclass(frozen=True)
class _Multiset(Aggregate):
    column: str
    retracts: ClassVar[bool] = True

    @property
    def columns(self) -> Sequence[str]:
        return (self.column,)

    def accumulators(self, schema: pa.Schema) -> Sequence[Column]:
        kind = check_element(schema, self.column, type(self).__name__.strip("_").lower())
        return (Column("values", pa.list_(kind)), Column("times", pa.list_(pa.int64())))

    def partial(self, rows: Grouped) -> Accumulators:
        rows = rows.present(self.column)
        times = pa.array(rows.signs())
        return _counted(Elements({"values": rows.column(self.column), "times": times}, rows.index)).lists(rows.count)

    def merge(self, left: Accumulators, right: Accumulators) -> Accumulators:
        both = _elements(left).and_also(_elements(right))
        return _counted(both).lists(len(left["values"]))


def _elements(accumulators: Accumulators) -> Elements:
    return Elements.of({name: accumulators[name] for name in ("values", "times")})


def _counted(elements: Elements) -> Elements:
    """Each value of a group once, in order, with how often it came; not those that came as often as they went."""
    values, place = ranked(elements.columns["values"])
    code = elements.group * (len(values) + 1) + place
    codes, index = np.unique(code, return_inverse=True)
    times = np.zeros(len(codes), dtype=np.int64)
    np.add.at(times, index, np.asarray(elements.columns["times"].to_numpy(zero_copy_only=False), dtype=np.int64))
    some = times != 0
    group, place = np.divmod(codes[some], len(values) + 1)
    return Elements({"values": values.take(pa.array(place)), "times": pa.array(times[some])}, group)


def _there(accumulators: Accumulators) -> Elements:
    """The values that came more often than they went."""
    elements = _elements(accumulators)
    return elements.take(np.flatnonzero(np.asarray(pc.greater(elements.columns["times"], 0))))


@dataclass(frozen=True)
class _CountDistinct(_Multiset):
    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.int64()

    def value(self, accumulators: Accumulators) -> pa.Array:
        return pa.array(np.bincount(_there(accumulators).group, minlength=len(accumulators["values"])))


@dataclass(frozen=True)
class _CollectSet(_Multiset):
    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.list_(schema.field(self.column).type)

    def value(self, accumulators: Accumulators) -> pa.Array:
        return _there(accumulators).lists(len(accumulators["values"]))["values"]


@dataclass(frozen=True)
class _Extreme(_Multiset):
    which: str

    def type(self, schema: pa.Schema) -> pa.DataType:
        return schema.field(self.column).type

    def value(self, accumulators: Accumulators) -> pa.Array:
        there = _there(accumulators)
        count = len(accumulators["values"])
        first, after = (np.searchsorted(there.group, np.arange(count), side=side) for side in ("left", "right"))
        places = first if self.which == "min" else after - 1
        return there.columns["values"].take(pa.array(places, mask=first == after))


@dataclass(frozen=True)
class _Percentile(_Multiset):
    shares: tuple[float, ...]
    single: bool

    def type(self, schema: pa.Schema) -> pa.DataType:
        kind = schema.field(self.column).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise WrongType(self.column, str(kind), "a number", "percentile")
        return pa.float64() if self.single else pa.list_(pa.float64())

    def value(self, accumulators: Accumulators) -> pa.Array:
        there, count = _there(accumulators), len(accumulators["values"])
        times = np.asarray(there.columns["times"].to_numpy(zero_copy_only=False), dtype=np.int64)
        values = np.asarray(there.columns["values"].to_numpy(zero_copy_only=False), dtype=np.float64)
        each = np.bincount(there.group, weights=times, minlength=count).astype(np.int64)
        found = [_at_share(share, values, np.cumsum(times), each) for share in self.shares]
        if self.single:
            return pa.array(found[0], mask=each == 0)
        flat = pa.array(np.stack(found, axis=1).ravel())
        offsets = pa.array(np.arange(count + 1) * len(self.shares), pa.int32())
        return pa.ListArray.from_arrays(offsets, flat, mask=pa.array(each == 0))


def _at_share(share: float, values: npt.NDArray[np.float64], upto: Numbers, each: Numbers) -> npt.NDArray[np.float64]:
    """For each group (of `each` values) the value at `share` of the way through it; `upto` counts the values."""
    if not len(values):
        return np.zeros(len(each))
    before = np.cumsum(each) - each
    position = np.maximum(each - 1, 0) * share
    lower, upper = np.floor(position), np.ceil(position)
    last = len(values) - 1
    below = values[np.minimum(np.searchsorted(upto, before + lower.astype(np.int64), side="right"), last)]
    above = values[np.minimum(np.searchsorted(upto, before + upper.astype(np.int64), side="right"), last)]
    between = (upper - position) * below + (position - lower) * above
    return np.where((lower == upper) | (below == above), below, between)
