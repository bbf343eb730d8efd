"""The tables of an operator's state: typed key columns, typed value columns, and how they may change.

A table's key columns are ordered: the state is sorted by them, and ranges are read by a prefix of them. Value columns
may be added later, with a default; the rows written before keep their old layout until they are written again.
Invariant: the layout number in front of a stored value is an index into `TableHistory.layouts`, which only grows.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.pipeline.errors import DefinitionError
from headwater.pipeline.stateful.errors import StateMismatch

__all__ = ["Column", "TableHistory", "TableSpec"]

LAYOUTS_MAX = 127  # one byte in front of every value; the high bit is reserved for values that carry their key


@dataclass(frozen=True, slots=True)
class Column:
    """A typed column. With a default it is never null; without, null stands for "not yet"."""

    name: str
    type: pa.DataType
    default: Any = None

    def as_field(self) -> pa.Field:
        metadata = None if self.default is None else {b"default": json.dumps(self.default).encode()}
        return pa.field(self.name, self.type, nullable=self.default is None, metadata=metadata)

    @classmethod
    def from_field(cls, source: pa.Field) -> Column:
        default = (source.metadata or {}).get(b"default")
        return cls(source.name, source.type, None if default is None else json.loads(default))


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One ordered table of an operator's state."""

    name: str
    key: tuple[Column, ...]
    values: tuple[Column, ...]

    @classmethod
    def of(
        cls, name: str, key: Sequence[Column | tuple[str, pa.DataType]], values: Sequence[Column | tuple[str, Any]]
    ) -> TableSpec:
        """The spec from columns or (name, type) pairs."""
        return cls(name, _columns(key), _columns(values))

    def __post_init__(self) -> None:
        names = [column.name for column in (*self.key, *self.values)]
        if not self.key:
            raise DefinitionError(f"state table {self.name!r} has no key columns")
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise DefinitionError(f"state table {self.name!r} names {', '.join(doubled)} twice")

    def schema(self) -> pa.Schema:
        return pa.schema([column.as_field() for column in (*self.key, *self.values)])


def _columns(given: Sequence[Column | tuple[str, Any]]) -> tuple[Column, ...]:
    return tuple(item if isinstance(item, Column) else Column(*item) for item in given)


@dataclass(frozen=True, slots=True)
class TableHistory:
    """A table as it stands on disk: its key and every layout its values were ever written in."""

    name: str
    key: tuple[Column, ...]
    layouts: tuple[tuple[Column, ...], ...] = field(default=())

    @classmethod
    def new(cls, spec: TableSpec) -> TableHistory:
        return cls(spec.name, spec.key, (spec.values,))

    @property
    def current(self) -> TableSpec:
        return TableSpec(self.name, self.key, self.layouts[-1])

    def evolve(self, spec: TableSpec) -> TableHistory:
        """This history with `spec` as its current layout; StateMismatch when old rows could not be read as it."""
        if [(c.name, c.type) for c in spec.key] != [(c.name, c.type) for c in self.key]:
            raise StateMismatch(
                f"state table {self.name!r} is keyed by {_shown(self.key)} on disk and by {_shown(spec.key)} in the "
                "operator: a key cannot change; give the operator another name to start afresh"
            )
        if spec.values == self.layouts[-1]:
            return self
        self._check_values(spec)
        if len(self.layouts) >= LAYOUTS_MAX:
            raise StateMismatch(f"state table {self.name!r} has had {LAYOUTS_MAX} layouts: rewrite it offline")
        return TableHistory(self.name, self.key, (*self.layouts, spec.values))

    def _check_values(self, spec: TableSpec) -> None:
        wanted = {column.name: column for column in spec.values}
        for old in self.layouts[-1]:
            new = wanted.get(old.name)
            if new is None or new.type != old.type or (old.default is None) != (new.default is None):
                raise StateMismatch(
                    f"state table {self.name!r} holds {_shown((old,))} on disk, the operator wants "
                    f"{_shown((new,)) if new else 'no such column'}: columns can be added, not changed or removed"
                )

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "key": _pack(self.key), "layouts": [_pack(layout) for layout in self.layouts]}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> TableHistory:
        return cls(body["name"], _unpack(body["key"]), tuple(_unpack(layout) for layout in body["layouts"]))


def _shown(columns: Sequence[Column]) -> str:
    return ", ".join(f"{c.name} {c.type}{'' if c.default is None else f' default {c.default!r}'}" for c in columns)


def _pack(columns: Sequence[Column]) -> str:
    return base64.b64encode(pa.schema([column.as_field() for column in columns]).serialize().to_pybytes()).decode()


def _unpack(text: str) -> tuple[Column, ...]:
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    return tuple(Column.from_field(one) for one in schema)
