"""The columns of a table, as the rows that come say: new ones are added, and kinds widened, never narrowed.

kind     JSON values                         widens to
bool     true, false                         int
int      integers of 64 bits                 float
float    numbers                             text
text     strings, longer integers            json
json     objects, arrays, anything at all    -
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Literal

from headwater.views.rows import Row

__all__ = ["Columns", "Kind", "from_stored", "to_stored"]

Kind = Literal["bool", "int", "float", "text", "json"]

INT_LIMIT = 2**63  # of an integer column, either way

_ORDER: tuple[Kind, ...] = ("bool", "int", "float", "text", "json")
_KINDS: dict[type, Kind] = {bool: "bool", int: "int", float: "float", str: "text", list: "json", dict: "json"}

# The Python types that a column of a kind takes as they are; json always needs to be written out
_AS_IT_IS: dict[Kind, frozenset[type]] = {
    "bool": frozenset({bool, type(None)}),
    "int": frozenset({int, type(None)}),
    "float": frozenset({float, type(None)}),
    "text": frozenset({str, type(None)}),
    "json": frozenset({type(None)}),
}


class Columns:
    """What a table has; `fit` says what it needs for some rows, `parameters` gives the rows in its columns' order."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self.kinds = dict(kinds)
        self._names = tuple(kinds)
        self._read = _reader(self._names)

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def parameters(self, rows: Sequence[Row]) -> tuple[list[tuple[Any, ...]], dict[str, Kind]]:
        """The rows as tuples; or the columns that must be added or widened first, with their new kinds."""
        shapes = set(map(tuple, rows))
        unknown = [name for shape in shapes for name in shape if name not in self.kinds]
        if unknown:
            return [], self._needed(rows, [*self._names, *dict.fromkeys(unknown)])
        if all(len(shape) == len(self._names) for shape in shapes):
            found = list(map(self._read, rows))
        else:
            found = [tuple(map(row.get, self._names)) for row in rows]
        if self._as_they_are(found):
            return found, {}
        needed = self._needed(rows, self._names)
        return ([] if needed else self._written_out(found)), needed

    def _as_they_are(self, rows: Sequence[tuple[Any, ...]]) -> bool:
        for kind, column in zip(self.kinds.values(), zip(*rows, strict=True), strict=True):
            if not set(map(type, column)) <= _AS_IT_IS[kind]:
                return False
            if kind == "int" and not _fits(column):
                return False
        return True

    def _written_out(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        kinds = tuple(self.kinds.values())
        return [tuple(to_stored(v, k) for v, k in zip(row, kinds, strict=True)) for row in rows]

    def _needed(self, rows: Sequence[Row], names: Sequence[str]) -> dict[str, Kind]:
        needed: dict[str, Kind] = {}
        for name in names:
            had, seen = self.kinds.get(name), _kind_of([row.get(name) for row in rows])
            wider = _widened(had, seen) or "text"  # a column that has only been null yet
            if wider != had:
                needed[name] = wider
        return needed


def to_stored(value: Any, kind: Kind) -> Any:
    """A value as a column of this kind holds it."""
    if value is None:
        return None
    if kind == "json" or (kind == "text" and not isinstance(value, str)):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return float(value) if kind == "float" else int(value) if kind == "int" else value


def from_stored(value: Any, kind: Kind) -> Any:
    """The inverse, for stores that know neither booleans nor JSON."""
    if value is None or kind in ("int", "float", "text"):
        return value
    return bool(value) if kind == "bool" else json.loads(value)


def _reader(names: Sequence[str]) -> Any:
    if len(names) == 1:
        return lambda row: (row[names[0]],)
    return itemgetter(*names) if names else lambda _: ()


def _fits(column: Sequence[int | None]) -> bool:
    present = [value for value in column if value is not None] if None in column else column
    return not present or (min(present) >= -INT_LIMIT and max(present) < INT_LIMIT)  # type: ignore[type-var, operator]


def _kind_of(values: Iterable[Any]) -> Kind | None:
    """The narrowest kind that holds all the values; None when all are null."""
    values = list(values)
    found: Kind | None = None
    for each in set(map(type, values)) - {type(None)}:
        found = _widened(found, _KINDS[each])
    if found == "int" and not _fits(values):
        return "text"
    return found


def _widened(old: Kind | None, new: Kind | None) -> Kind | None:
    if old is None or new is None:
        return old or new
    return _ORDER[max(_ORDER.index(old), _ORDER.index(new))]
