"""What a join's result looks like: the key once, under its left name, then the other columns of the left, of the right.

Columns that both sides have would be told apart by nobody, so a join refuses them: rename one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headwater.pipeline.changelogs.rows import WEIGHTED, Ints, weighted
from headwater.pipeline.changelogs.sides import LEFT, RIGHT
from headwater.pipeline.errors import BadOption, DefinitionError, UnknownColumn
from headwater.pipeline.stateful.keys import as_array

__all__ = ["Shape"]

_KEPT = {"inner": (), "left": (LEFT,), "right": (RIGHT,), "full": (LEFT, RIGHT)}


@dataclass(frozen=True)
class Shape:
    """The columns of a join's result and which sides keep rows without a partner."""

    schema: pa.Schema
    left: tuple[str, ...]
    right: tuple[str, ...]
    on: Mapping[str, str]
    kept: tuple[str, ...]

    @classmethod
    def of(cls, left: list[pa.Field], right: list[pa.Field], on: Mapping[str, str], how: str, where: str) -> Shape:
        if how not in _KEPT:
            raise BadOption(f"{where}: how is {how!r}; say 'inner', 'left', 'right' or 'full'")
        types = ({f.name: f.type for f in left}, {f.name: f.type for f in right})
        for names, known, side in ((on, types[0], LEFT), (on.values(), types[1], RIGHT)):
            for name in names:
                if name not in known:
                    raise UnknownColumn(name, list(known), f"{where}: {side}")
        lefts = [name for name in types[0] if name not in on]
        rights = [name for name in types[1] if name not in on.values()]
        doubled = sorted({*on, *lefts} & set(rights))
        if doubled:
            raise DefinitionError(f"{where}: both sides have the column {doubled[0]!r}; rename it on one side first")
        fields = [pa.field(name, types[0][name]) for name in (*on, *lefts)]
        fields += [pa.field(name, types[1][name]) for name in rights]
        return cls(pa.schema(fields), tuple(lefts), tuple(rights), dict(on), _KEPT[how])

    @property
    def outer(self) -> bool:
        return bool(self.kept)

    def keeps(self, side: str) -> bool:
        """Whether rows of the side come out also when they have no partner."""
        return side in self.kept

    def weighted_schema(self) -> pa.Schema:
        return self.schema.append(WEIGHTED)

    def rows(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Rows of both sides side by side."""
        columns = [left[name] for name in (*self.on, *self.left)] + [right[name] for name in self.right]
        return pa.table([as_array(c) for c in columns], schema=self.schema)

    def single(self, side: str, table: pa.Table) -> pa.Table:
        """Rows of one side with nulls for the other."""
        names = {new: new for new in self.left} if side == LEFT else {new: new for new in self.right}
        names |= {new: (new if side == LEFT else old) for new, old in self.on.items()}
        columns = [
            as_array(table[names[f.name]], f.type) if f.name in names else pa.nulls(table.num_rows, f.type)
            for f in self.schema
        ]
        return pa.table(columns, schema=self.schema)

    def pairs(self, left: pa.Table, right: pa.Table, weights: Ints) -> pa.Table:
        return weighted(self.rows(left, right), weights)

    def alone(self, side: str, table: pa.Table, weights: Ints) -> pa.Table:
        """Rows of one side that have no partner; none when the join does not keep them."""
        if not self.keeps(side):
            table, weights = table.slice(0, 0), weights[:0]
        return weighted(self.single(side, table), weights)
