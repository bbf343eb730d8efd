"""The operator protocol: a pure, deterministic step over (state, batch, time).

An operator is twenty lines: what its input must have, what its output looks like, what it keeps, and the step.

    class Count(Operator):
        key = ("user",)
        state = (TableSpec.of("counts", key=[("user", pa.string())], values=[Column("n", pa.int64(), 0)]),)

        def output(self, inputs):
            return pa.schema([("user", pa.string()), ("n", pa.int64())])

        def step(self, state, batch, time):
            groups = batch.groups("user")
            n = state["counts"].get(groups.keys).numpy("n") + groups.count()
            state["counts"].put(groups.keys, {"n": n})
            return groups.table(n=n)

Invariants a step keeps: it looks at nothing but its arguments (no clock, no randomness, no global), works on columns,
and gives the same rows in the same order for the same arguments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.columns import LOW, SIDE
from headwater.pipeline.errors import UnknownColumn
from headwater.pipeline.stateful.keys import KeyCodec, as_array
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import EncodedKeys, State

__all__ = ["LOW", "MAX_TIME", "MIN_TIME", "ONLY", "SIDE", "Batch", "Groups", "Operator", "Time"]

MIN_TIME = -(1 << 62)  # microseconds: before every event; the low watermark until a producer has spoken
MAX_TIME = 1 << 62  # microseconds: after every event
ONLY = "rows"  # the name of the input of an operator that has one


@dataclass(frozen=True, slots=True)
class Time:
    """How far time has got at the end of this step; microseconds since 1970.

    `low`: no row earlier than this is expected any more; never goes back. `previous`: what it was before this step.
    `now`: processing time as the input's ticks tell it (MIN_TIME without ticks); steps never look at a clock.
    """

    low: int = MIN_TIME
    previous: int = MIN_TIME
    now: int = MIN_TIME


@dataclass(frozen=True)
class Groups:
    """The rows of a batch by key: `keys` has each key once, sorted; `index[i]` is row i's key number."""

    keys: EncodedKeys
    index: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)

    def count(self) -> npt.NDArray[np.int64]:
        return np.bincount(self.index, minlength=len(self))

    def table(self, **columns: Any) -> pa.Table:
        """The key columns with computed ones behind them."""
        names = [*self.keys.columns.column_names, *columns]
        return pa.table([*(as_array(c) for c in self.keys.columns.columns), *map(as_array, columns.values())], names)


@dataclass(frozen=True)
class Batch:
    """The rows of one step, by input."""

    inputs: Mapping[str, pa.Table] = field(default_factory=dict)

    @property
    def table(self) -> pa.Table:
        """The rows of the only input."""
        return self.inputs[ONLY]

    def __getitem__(self, name: str) -> pa.Table:
        return self.inputs[name]

    def column(self, name: str, side: str = ONLY) -> pa.Array:
        return as_array(self.inputs[side][name])

    def groups(self, *columns: str, side: str = ONLY) -> Groups:
        return group(self.inputs[side].select(list(columns)))


def group(table: pa.Table) -> Groups:
    """The distinct rows of `table`, sorted as the state sorts them, and which of them each row is."""
    codes, firsts = _codes(table)
    keys = EncodedKeys(pa.table([as_array(c).take(firsts) for c in table.columns], table.column_names))
    codec = KeyCodec([Column(f.name, f.type) for f in keys.columns.schema])
    encoded = keys.encoded(codec)
    order = np.array(sorted(range(len(encoded)), key=encoded.__getitem__), dtype=np.int64)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    in_order = EncodedKeys(keys.columns.take(pa.array(order)))
    in_order._codec, in_order._encoded = codec, [encoded[i] for i in order.tolist()]
    return Groups(in_order, rank[codes])


def _codes(table: pa.Table) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """A number for each row, equal for equal rows and dense, and the first row of each number."""
    codes: npt.NDArray[np.int64] | None = None
    for column in table.columns:
        found = _dictionary_codes(as_array(column))
        codes = found if codes is None else _dictionary_codes(pa.array(codes * (int(found.max(initial=0)) + 1) + found))
    codes = np.zeros(table.num_rows, dtype=np.int64) if codes is None else codes
    return codes, pa.array(_first_rows(codes))


def _dictionary_codes(array: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_floating(array.type):
        numbers = array.to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        array = pa.array(numbers, mask=array.is_null().to_numpy(zero_copy_only=False))
    encoded = array.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def _first_rows(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    count = int(codes.max(initial=-1)) + 1
    firsts = np.zeros(count, dtype=np.int64)
    firsts[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return firsts


class Operator(ABC):
    """Base of every operator. Instances are values: they are sent to the workers and hold settings only."""

    key: Sequence[str] | Mapping[str, Sequence[str]] = ()
    """The columns that rows are routed by: all rows of a key meet in one partition. By input, where names differ."""

    keyless: bool = False
    """Whether it may have no key: all rows then meet in partition 0."""

    state: Sequence[TableSpec] = ()
    """The tables it keeps. May be set by `output`, when types depend on the input's."""

    needs_time: bool = False
    """Whether the input must carry event time (see `headwater.pipeline.time`)."""

    @abstractmethod
    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        """Check the inputs (raise DefinitionError leaves), set `state` if it depends on them; the output's schema."""

    @abstractmethod
    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        """The rows that follow from this batch; changes to `state` are kept."""

    def reads(self, side: str = ONLY) -> Sequence[str] | None:
        """The columns of an input that `step` looks at beside its key and the time; None is all. Asked after `output`.

        Only these travel to the step: an operator that reads two columns of fifty is an operator on two columns.
        """
        return None

    def keys_of(self, side: str = ONLY) -> tuple[str, ...]:
        return tuple(self.key[side]) if isinstance(self.key, Mapping) else tuple(self.key)


def require(schema: pa.Schema, columns: Sequence[str], where: str) -> None:
    """UnknownColumn for the first of `columns` that `schema` does not have."""
    for column in columns:
        if column not in schema.names:
            raise UnknownColumn(column, list(schema.names), where)
