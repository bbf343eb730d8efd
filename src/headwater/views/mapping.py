"""From the rows of a changelog to the rows of a view.

In this order, each step optional:

    flatten    nested objects become columns: {"a": {"b": 1}} is a_b = 1
    filter     an expression; a row for which it is false is not in the view (and leaves it, if it was)
    compute    new columns by expressions, each seeing those before it
    rename     old name → new name
    select     the columns that are kept
    function   a plain function on a batch: list of rows in, a list as long out, None for a row that is not in the view
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast

from headwater.views.errors import BadView, RecordRefused
from headwater.views.expressions import compile_expression
from headwater.views.rows import Row

__all__ = ["BatchFunction", "RowMapping", "load_function"]

BatchFunction = Callable[[list[Row]], Sequence["Row | None"]]
Step = Callable[[list["Row | None"]], list["Row | None"]]

FLATTEN_LEVELS_MAX = 32  # of nesting; deeper rows are refused


@dataclass(frozen=True, slots=True)
class RowMapping:
    """What a definition says about rows; `apply` does it."""

    flatten: bool = False
    filter: str = ""
    compute: Mapping[str, str] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    select: Sequence[str] = ()
    function: str | BatchFunction = ""  # "module:name", or the function itself

    @property
    def identity(self) -> bool:
        """Whether rows stay as they come."""
        return not (self.flatten or self.filter or self.compute or self.rename or self.select or self.function)

    def compile(self, view: str) -> Callable[[list[Row]], list[Row | None]]:
        """A function from rows to rows of the view, None where there is none; raises RecordRefused for the batch."""
        steps = list(self._steps(view))

        def apply(rows: list[Row]) -> list[Row | None]:
            mapped: list[Row | None] = list(rows)
            for step in steps:
                mapped = step(mapped)
            return mapped

        return apply

    def _steps(self, view: str) -> Sequence[Step]:
        steps: list[Step] = []
        if self.flatten:
            steps.append(_each(_flat))
        if self.filter:
            steps.append(_filtering(compile_expression(self.filter, f"view {view}: filter")))
        for name, text in self.compute.items():
            steps.append(_computing(name, compile_expression(text, f"view {view}: compute {name}")))
        if self.rename:
            steps.append(_each(self.renamed))
        if self.select:
            steps.append(_each(self._selected))
        if self.function:
            steps.append(_by_function(load_function(self.function, view), view))
        return steps

    def renamed(self, row: Row) -> Row:
        names = self.rename
        return {names.get(name, name): value for name, value in row.items()}

    def _selected(self, row: Row) -> Row:
        return {name: row.get(name) for name in self.select}


def load_function(given: str | BatchFunction, view: str) -> BatchFunction:
    """The function itself, or the one that "module:name" names."""
    if not isinstance(given, str):
        return given
    module, separator, name = given.partition(":")
    if not separator:
        raise BadView(f"view {view}: function is {given!r}; write it as module:name")
    try:
        return cast("BatchFunction", getattr(import_module(module), name))
    except (ImportError, AttributeError) as error:
        raise BadView(f"view {view}: cannot load function {given!r}: {error}; is it on PYTHONPATH?") from error


def _each(change: Callable[[Row], Row]) -> Step:
    return lambda rows: [None if row is None else change(row) for row in rows]


def _filtering(keep: Callable[[Row], Any]) -> Step:
    return lambda rows: [row if row is not None and keep(row) else None for row in rows]


def _computing(name: str, value: Callable[[Row], Any]) -> Step:
    return lambda rows: [None if row is None else {**row, name: value(row)} for row in rows]


def _by_function(function: BatchFunction, view: str) -> Step:
    def step(rows: list[Row | None]) -> list[Row | None]:
        present = [row for row in rows if row is not None]
        if not present:
            return rows
        try:
            answers = list(function(present))
        except Exception as error:
            raise RecordRefused(f"view {view}: the function failed: {type(error).__name__}: {error}") from error
        if len(answers) != len(present):
            raise RecordRefused(
                f"view {view}: the function made {len(answers)} rows of {len(present)}; a row that is not in the view "
                "is None in its place"
            )
        left = iter(answers)
        return [None if row is None else next(left) for row in rows]

    return step


def _flat(row: Row) -> Row:
    flat: Row = {}
    _flatten_into(flat, row, "", 0)
    return flat


def _flatten_into(flat: Row, row: Mapping[str, Any], prefix: str, level: int) -> None:
    if level > FLATTEN_LEVELS_MAX:
        raise RecordRefused(f"the row is nested deeper than {FLATTEN_LEVELS_MAX} levels")
    for name, value in row.items():
        if isinstance(value, Mapping):
            _flatten_into(flat, value, f"{prefix}{name}_", level + 1)
        else:
            flat[prefix + name] = value
