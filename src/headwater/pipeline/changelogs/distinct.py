"""The distinct rows of a changelog: each once, for as long as it is there at all.

State: `rows`, identity -> how many. A row comes out when its count rises above 0, and is taken back when it is 0 again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, Unpack

import numpy as np
import pyarrow as pa

from headwater.pipeline.changelogs.rows import (
    COUNT,
    IDENTITY,
    WEIGHTED,
    check_weight,
    delta,
    own_fields,
    routable,
    weighted,
)
from headwater.pipeline.engine import engine_of
from headwater.pipeline.stateful.apply import stateful
from headwater.pipeline.stateful.operator import Batch, Operator, Time, require
from headwater.pipeline.stateful.plan import StatefulKeywords
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import EncodedKeys, State

__all__ = ["Distinct", "distinct"]

S = TypeVar("S")


def distinct(df: S, columns: Sequence[str] | None = None, **where: Unpack[StatefulKeywords]) -> S:
    """Each row once: SELECT DISTINCT; `columns`: of these columns only."""
    schema = engine_of(df).schema(df)
    require(schema, columns or (), "distinct")
    key = routable(pa.schema([schema.field(name) for name in columns]) if columns else schema)
    return stateful(df, Distinct(columns), key=key, **where)


class Distinct(Operator):
    """See the module."""

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self._columns = None if columns is None else list(columns)

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        (schema,) = inputs.values()
        check_weight(schema, "distinct")
        fields = own_fields(schema) if self._columns is None else [schema.field(name) for name in self._columns]
        self._names = [f.name for f in fields]
        ids = [Column(name, pa.uint64()) for name in IDENTITY]
        self.state = (TableSpec.of("rows", ids, [Column(COUNT, pa.int64(), 0)]),)
        return pa.schema([*(pa.field(f.name, f.type) for f in fields), WEIGHTED])

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        changes = delta(batch.table, self._names)
        keys = EncodedKeys(pa.table({name: changes.ids[:, i] for i, name in enumerate(IDENTITY)}))
        before = state["rows"].get(keys).numpy(COUNT)
        after = before + changes.weights
        state["rows"].put(keys, {COUNT: after})
        empty = pa.array(after == 0)
        state["rows"].delete({name: keys[name].filter(empty) for name in IDENTITY})
        said = (after > 0).astype(np.int64) - (before > 0)
        kept = changes.select(said != 0)
        return weighted(kept.table, said[said != 0])
