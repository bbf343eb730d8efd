"""Results on their way out: at close, at every change, or at intervals; as rows, upserts or a changelog.

Every operator with windows says of each result it touched what it was (`old`, where `had`) and what it is (`new`, where
`has`). With emit="close" and "change" that is said at once. At intervals it waits in the state, first old and newest
new, until the input's ticks have passed the next multiple of the interval:

    told   result's ids -> had, has, old values, new values       what changed since the last turn
    turn   -> the number of the last turn
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.emission import Emission, revisions, weighted_schema
from headwater.pipeline.stateful.keys import as_array
from headwater.pipeline.stateful.operator import MIN_TIME
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import State

__all__ = ["Publisher", "Results"]

_TURN = {"k": pa.array([0], pa.int8())}

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Results:
    """Results that were `old` (where `had`) and are `new` (where `has`): both with their ids, in the same order."""

    old: pa.Table
    had: Flags
    new: pa.Table
    has: Flags


class Publisher:
    """Says what became of results; `ids` name a result, `values` are the rest of it.

    A result has changed when one of the `compared` values has; all of them unless told.
    """

    def __init__(
        self,
        ids: Sequence[pa.Field],
        values: Sequence[pa.Field],
        emission: Emission,
        compared: Sequence[str] | None = None,
    ) -> None:
        self._ids, self._values, self._emission = list(ids), list(values), emission
        self._compared = [f.name for f in values] if compared is None else list(compared)
        self.results = pa.schema([*ids, *values])
        self.schema = weighted_schema(self.results, emission)

    @property
    def state(self) -> tuple[TableSpec, ...]:
        if not self._emission.interval:
            return ()
        pairs = [Column(f"{when}.{f.name}", f.type) for when in ("old", "new") for f in self._values]
        flags = [Column("had", pa.bool_(), False), Column("has", pa.bool_(), False)]
        told = TableSpec.of("told", [Column(f.name, f.type) for f in self._ids], [*flags, *pairs])
        return told, TableSpec.of("turn", [("k", pa.int8())], [Column("turn", pa.int64(), MIN_TIME)])

    def say(self, state: State, results: Results, now: int) -> pa.Table:
        """What goes out now about these results."""
        if not self._emission.interval:
            return self._revisions(results)
        self._remember(state, results)
        turn = now // self._emission.interval
        if turn <= int(state["turn"].get(_TURN).numpy("turn")[0]):
            return self.schema.empty_table()
        state["turn"].put(_TURN, {"turn": [turn]})
        told = state["told"].range()
        state["told"].delete(told.columns)
        before, after = (self._side(told.columns, when) for when in ("old", "new"))
        return self._revisions(Results(before, told.numpy("had"), after, told.numpy("has")))

    def _revisions(self, of: Results) -> pa.Table:
        return revisions(of.old, of.had, of.new, of.has, emission=self._emission, compared=self._compared)

    def _remember(self, state: State, of: Results) -> None:
        table = state["told"]
        known = table.get(of.new)
        found = pa.array(known.found)
        columns: dict[str, Any] = {"had": np.where(known.found, known.numpy("had"), of.had), "has": of.has}
        for f in self._values:
            first = pa.compute.if_else(found, known[f"old.{f.name}"], as_array(of.old[f.name], f.type))
            columns |= {f"old.{f.name}": first, f"new.{f.name}": as_array(of.new[f.name], f.type)}
        table.put(of.new, columns)

    def _side(self, columns: Mapping[str, pa.Array], when: str) -> pa.Table:
        ids = [columns[f.name] for f in self._ids]
        return pa.table([*ids, *(columns[f"{when}.{f.name}"] for f in self._values)], schema=self.results)
