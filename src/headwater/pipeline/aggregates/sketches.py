"""Approximate aggregates: sketches of a fixed size instead of all values, by Apache DataSketches.

    what                         sketch          error                        Spark's own functions for it
    approx_count_distinct        HyperLogLog     1.04 / sqrt(2**lg_k), 1.6 %  hll_sketch_estimate, hll_union
    hll_sketch, theta_sketch     HLL, theta      the same; 1 / sqrt(2**lg_k)  theta_sketch_estimate, theta_union, ...
    approx_percentile            t-digest        about 1 % of rank, less at the ends
    kll_sketch                   KLL             1.65 % of rank at k=200      kll_sketch_get_quantile_double, ...
    approx_top_k                 frequent items  3.5 / 2**lg_size of the rows
    count_min                    count-min       `error` of the rows

Distinct counts and their sketches are the same whatever the batch boundaries. The others depend on them, within
their errors: a quantile sketch compacts when it is full, and KLL does so with random choices, so that a batch that is
run again may publish another, equally good, sketch. Where results must repeat to the last bit, use the exact
aggregates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import datasketches as ds
import numpy as np
import pyarrow as pa

from headwater.pipeline.aggregates.aggregate import Accumulators, Aggregate, Grouped
from headwater.pipeline.aggregates.lists import ranked
from headwater.pipeline.errors import BadOption, WrongType
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.schema import Column

__all__ = [
    "approx_count_distinct",
    "approx_percentile",
    "approx_top_k",
    "count_min",
    "hll_sketch",
    "kll_sketch",
    "theta_sketch",
]

_HLL = ds.tgt_hll_type.HLL_8  # what Spark writes
_HLL_COUPONS = {2: 8, 3: 12}  # by the first byte: where the coupons of a small HLL sketch begin, unordered
_HLL_FLAGS, _OUT_OF_ORDER = 5, 16  # of a larger one: the estimate is by its registers alone,
_HLL_HISTORY = slice(8, 16)  # not by this running estimate, which depends on the order of updates


def approx_count_distinct(column: str, lg_k: int = 12) -> Aggregate:
    """About how many different values there are, by HyperLogLog with 2**lg_k registers of a byte."""
    return _Hll(column, _within(lg_k, 7, 21, "lg_k"), estimate=True)


def hll_sketch(column: str, lg_k: int = 12) -> Aggregate:
    """A HyperLogLog sketch of the values, as bytes: what Spark's `hll_sketch_agg` gives."""
    return _Hll(column, _within(lg_k, 7, 21, "lg_k"), estimate=False)


def theta_sketch(column: str, lg_k: int = 12) -> Aggregate:
    """A theta sketch of the values, as bytes: what Spark's `theta_sketch_agg` gives. Sketches can be intersected."""
    return _Theta(column, _within(lg_k, 5, 26, "lg_k"))


def kll_sketch(column: str, k: int = 200) -> Aggregate:
    """A KLL sketch of the values as doubles, as bytes: what Spark's `kll_sketch_agg_double` gives."""
    return _Kll(column, _within(k, 8, 65535, "k"))


def approx_percentile(column: str, share: float, k: int = 200) -> Aggregate:
    """About the value below which `share` (0 to 1) of the values are, by t-digest."""
    if not 0 <= share <= 1:
        raise BadOption(f"approx_percentile({column!r}): the share is {share!r}; say 0 to 1, 0.95 for example")
    return _Digest(column, _within(k, 10, 65535, "k"), share)


def approx_top_k(column: str, k: int, lg_size: int = 10) -> Aggregate:
    """About the `k` most frequent values (as text) and how often each came: a list of (item, count)."""
    return _Frequent(column, _within(lg_size, 3, 26, "lg_size"), _within(k, 1, 1 << 20, "k"))


def count_min(column: str, error: float = 0.001, confidence: float = 0.99) -> Aggregate:
    """A count-min sketch of the values, as DataSketches' bytes: how often a value came, too high by at most `error` of
    the rows with this `confidence`."""
    if not (0 < error < 1 and 0 < confidence < 1):
        raise BadOption(f"count_min({column!r}): error and confidence are shares, more than 0 and less than 1")
    return _CountMin(column, error, confidence)


def _within(value: int, low: int, high: int, name: str) -> int:
    if not low <= value <= high:
        raise BadOption(f"{name} is {value}; it must be {low} to {high}")
    return value


@dataclass(frozen=True)
class _Sketch(Aggregate):
    """The accumulator is a sketch's bytes; no bytes are no values."""

    column: str
    texts: ClassVar[bool] = True  # whether it takes strings

    @property
    def columns(self) -> Sequence[str]:
        return (self.column,)

    def accumulators(self, schema: pa.Schema) -> Sequence[Column]:
        kind = schema.field(self.column).type
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if not (number or (self.texts and pa.types.is_string(kind))):
            wanted = "a number or a string" if self.texts else "a number"
            raise WrongType(self.column, str(kind), wanted, type(self).__name__.strip("_").lower())
        return (Column("sketch", pa.binary(), ""),)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.binary()

    def partial(self, rows: Grouped) -> Accumulators:
        rows = rows.present(self.column)
        values, place = ranked(rows.column(self.column))
        codes, times = np.unique(rows.index * (len(values) + 1) + place, return_counts=True)
        group, place = np.divmod(codes, len(values) + 1)
        starts = np.searchsorted(group, np.arange(rows.count + 1))
        found, known = [b""] * rows.count, values.to_pylist()
        for number in np.unique(group).tolist():
            one = slice(starts[number], starts[number + 1])
            found[number] = self._made([known[i] for i in place[one].tolist()], times[one].tolist())
        return {"sketch": pa.array(found, pa.binary())}

    def merge(self, left: Accumulators, right: Accumulators) -> Accumulators:
        pairs = zip(as_array(left["sketch"]).to_pylist(), as_array(right["sketch"]).to_pylist(), strict=True)
        return {"sketch": pa.array([self._merged(a, b) if a and b else a or b for a, b in pairs], pa.binary())}

    def value(self, accumulators: Accumulators) -> pa.Array:
        return pa.array([one or None for one in as_array(accumulators["sketch"]).to_pylist()], pa.binary())

    def _each(self, accumulators: Accumulators, read: Callable[[bytes], Any], kind: pa.DataType) -> pa.Array:
        return pa.array([read(one) if one else None for one in accumulators["sketch"].to_pylist()], kind)

    @abstractmethod
    def _made(self, values: list[Any], times: list[int]) -> bytes:
        """The sketch of distinct values that came so many times each."""

    @abstractmethod
    def _merged(self, left: bytes, right: bytes) -> bytes:
        """The sketch of both."""


@dataclass(frozen=True)
class _Hll(_Sketch):
    lg_k: int
    estimate: bool

    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.int64() if self.estimate else pa.binary()

    def _made(self, values: list[Any], times: list[int]) -> bytes:
        sketch = ds.hll_sketch(self.lg_k, _HLL)
        for value in values:
            sketch.update(value)
        return self._union(sketch, sketch)

    def _merged(self, left: bytes, right: bytes) -> bytes:
        return self._union(ds.hll_sketch.deserialize(left), ds.hll_sketch.deserialize(right))

    def _union(self, left: Any, right: Any) -> bytes:
        """As one, in a form that tells nothing of how it came about: coupons in order, registers without history."""
        union = ds.hll_union(self.lg_k)
        union.update(left)
        union.update(right)
        raw: bytes = union.get_result(_HLL).serialize_compact()
        start = _HLL_COUPONS.get(raw[0])
        if start is not None:
            return raw[:start] + np.sort(np.frombuffer(raw[start:], "<u4")).tobytes()
        plain = bytearray(raw)
        plain[_HLL_FLAGS] |= _OUT_OF_ORDER
        plain[_HLL_HISTORY] = bytes(8)
        return bytes(plain)

    def value(self, accumulators: Accumulators) -> pa.Array:
        if not self.estimate:
            return super().value(accumulators)
        known = as_array(accumulators["sketch"]).to_pylist()
        return pa.array([round(ds.hll_sketch.deserialize(one).get_estimate()) if one else 0 for one in known])


@dataclass(frozen=True)
class _Theta(_Sketch):
    lg_k: int

    def _made(self, values: list[Any], times: list[int]) -> bytes:
        sketch = ds.update_theta_sketch(self.lg_k)
        for value in values:
            sketch.update(value)
        return self._union(sketch.compact())

    def _merged(self, left: bytes, right: bytes) -> bytes:
        return self._union(ds.compact_theta_sketch.deserialize(left), ds.compact_theta_sketch.deserialize(right))

    def _union(self, *sketches: Any) -> bytes:
        union = ds.theta_union(self.lg_k)
        for sketch in sketches:
            union.update(sketch)
        raw: bytes = union.get_result().serialize()
        return raw


@dataclass(frozen=True)
class _Quantiles(_Sketch):
    """Sketches of numbers, updated with all values of a group at once."""

    k: int
    texts: ClassVar[bool] = False

    def _made(self, values: list[Any], times: list[int]) -> bytes:
        sketch = self._kind()(self.k)
        sketch.update(np.repeat(np.array(values, dtype=np.float64), times))
        raw: bytes = sketch.serialize()
        return raw

    def _merged(self, left: bytes, right: bytes) -> bytes:
        sketch = self._kind().deserialize(left)
        sketch.merge(self._kind().deserialize(right))
        raw: bytes = sketch.serialize()
        return raw

    @abstractmethod
    def _kind(self) -> Any:
        """DataSketches' class."""


@dataclass(frozen=True)
class _Kll(_Quantiles):
    def _kind(self) -> Any:
        return ds.kll_doubles_sketch


@dataclass(frozen=True)
class _Digest(_Quantiles):
    share: float

    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.float64()

    def _kind(self) -> Any:
        return ds.tdigest_double

    def value(self, accumulators: Accumulators) -> pa.Array:
        return self._each(
            accumulators, lambda raw: ds.tdigest_double.deserialize(raw).get_quantile(self.share), pa.float64()
        )


@dataclass(frozen=True)
class _Frequent(_Sketch):
    lg_size: int
    k: int

    def type(self, schema: pa.Schema) -> pa.DataType:
        return pa.list_(pa.struct([("item", pa.string()), ("count", pa.int64())]))

    def _made(self, values: list[Any], times: list[int]) -> bytes:
        sketch = ds.frequent_strings_sketch(self.lg_size)
        for value, often in zip(values, times, strict=True):
            sketch.update(str(value), often)
        raw: bytes = sketch.serialize()
        return raw

    def _merged(self, left: bytes, right: bytes) -> bytes:
        sketch = ds.frequent_strings_sketch.deserialize(left)
        sketch.merge(ds.frequent_strings_sketch.deserialize(right))
        raw: bytes = sketch.serialize()
        return raw

    def value(self, accumulators: Accumulators) -> pa.Array:
        return self._each(accumulators, self._most_frequent, self.type(pa.schema([])))

    def _most_frequent(self, raw: bytes) -> list[dict[str, Any]]:
        sketch = ds.frequent_strings_sketch.deserialize(raw)
        found = sketch.get_frequent_items(ds.frequent_items_error_type.NO_FALSE_NEGATIVES)
        ordered = sorted(found, key=lambda one: (-one[1], one[0]))[: self.k]
        return [{"item": item, "count": count} for item, count, _, _ in ordered]


@dataclass(frozen=True)
class _CountMin(_Sketch):
    error: float
    confidence: float

    def _made(self, values: list[Any], times: list[int]) -> bytes:
        hashes = ds.count_min_sketch.suggest_num_hashes(self.confidence)
        sketch = ds.count_min_sketch(hashes, ds.count_min_sketch.suggest_num_buckets(self.error))
        for value, often in zip(values, times, strict=True):
            sketch.update(value, often)
        raw: bytes = sketch.serialize()
        return raw

    def _merged(self, left: bytes, right: bytes) -> bytes:
        sketch = ds.count_min_sketch.deserialize(left)
        sketch.merge(ds.count_min_sketch.deserialize(right))
        raw: bytes = sketch.serialize()
        return raw
