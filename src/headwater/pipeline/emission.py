"""The words for when an operator speaks, in which form, and what it does about stragglers: the same for all operators.

`emit`     when results come out
    "close"          once, when the low watermark says that nothing is missing
    "change"         after every batch, for what changed in it
    "10 seconds"     for what changed, whenever so much time has passed by the input's ticks

`output`   what form they have
    "append"         rows that are never revised, without `_weight`; only where nothing can be revised
    "upsert"         the newest row of a key; `_weight` is 1, or -1 when the key has no row any more
    "changelog"      every change: the row as it was with `_weight` -1, as it is now with +1; their sum is the table

`late`     rows behind their producer's low watermark
    "drop"           counted by producer and window, and left out
    "side"           given out in the rows with `_late` true, as they came
    "correct"        taken in: what was published is retracted and replaced, for as long as `keep_closed` says
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.columns import WEIGHT
from headwater.pipeline.errors import BadOption
from headwater.pipeline.time.settings import microseconds

__all__ = ["LATE", "Emission", "check_late", "revisions", "weighted_schema"]

LATE = "_late"  # the column that marks side output: true for rows that came too late

CLOSE, CHANGE = "close", "change"
APPEND, UPSERT, CHANGELOG = "append", "upsert", "changelog"
DROP, SIDE, CORRECT = "drop", "side", "correct"


@dataclass(frozen=True, slots=True)
class Emission:
    """When and in which form results come out; `interval` in microseconds, 0 unless `emit` is one."""

    emit: str
    output: str
    interval: int = 0

    @classmethod
    def of(cls, emit: str, output: str, where: str, *, revises: bool) -> Emission:
        """Parsed; BadOption where the words do not go together. `revises`: results may change after they came out."""
        if output not in (APPEND, UPSERT, CHANGELOG):
            raise BadOption(f"{where}: output is {output!r}; say 'append', 'upsert' or 'changelog'")
        interval = 0 if emit in (CLOSE, CHANGE) else microseconds(emit, f"{where}: emit", zero=False)
        if output == APPEND and (emit != CLOSE or revises):
            raise BadOption(
                f"{where}: output 'append' never revises a row, but emit={emit!r}"
                f"{' with corrections' if revises else ''} does: say 'upsert' or 'changelog'"
            )
        return cls(emit, output, interval)

    @property
    def weighted(self) -> bool:
        return self.output != APPEND


def check_late(late: str, where: str) -> str:
    if late not in (DROP, SIDE, CORRECT):
        raise BadOption(f"{where}: late is {late!r}; say 'drop', 'side' or 'correct'")
    return late


def weighted_schema(schema: pa.Schema, emission: Emission) -> pa.Schema:
    """The output's schema: with `_weight` unless rows are never revised."""
    return schema.append(pa.field(WEIGHT, pa.int32(), nullable=False)) if emission.weighted else schema


def revisions(
    old: pa.Table,
    had: npt.NDArray[np.bool_],
    new: pa.Table,
    has: npt.NDArray[np.bool_],
    *,
    emission: Emission,
    compared: Sequence[str],
) -> pa.Table:
    """What to say about rows that were `old` (where `had`) and are `new` (where `has`), row by row in their order.

    Rows of which none of the `compared` columns differs say nothing.
    """
    same = had & has
    for name in compared:
        same &= _equal(old[name], new[name])
    retract = had & ~same if emission.output == CHANGELOG else had & ~has
    insert = has & ~same
    if emission.output == APPEND:
        return new.filter(pa.array(insert))
    before, after = np.flatnonzero(retract), np.flatnonzero(insert)
    order = np.lexsort((np.repeat([0, 1], [len(before), len(after)]), np.concatenate([before, after])))
    both = pa.concat_tables([old.take(pa.array(before)), new.take(pa.array(after))])
    weights = np.repeat(np.array([-1, 1], dtype=np.int32), [len(before), len(after)])
    return both.append_column(pa.field(WEIGHT, pa.int32(), nullable=False), pa.array(weights)).take(pa.array(order))


def _equal(left: Any, right: Any) -> npt.NDArray[np.bool_]:
    """Where two columns hold the same, null being equal to null and NaN to NaN."""
    left, right = _flat(left), _flat(right)
    if pa.types.is_nested(left.type):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.fromiter((a == b for a, b in pairs), dtype=np.bool_, count=len(left))
    equal = pc.fill_null(pc.equal(left, right), False)
    both_null = pc.and_(left.is_null(nan_is_null=True), right.is_null(nan_is_null=True))
    return np.asarray(pc.or_(equal, both_null).to_numpy(zero_copy_only=False))


def _flat(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
