"""Expressions over a row's columns, for filters and computed columns: `amount > 10 and country in ("CH", "DE")`.

Python's own syntax, of which only this is allowed: columns by name, constants, arithmetic, comparisons, `and`, `or`,
`not`, `x if c else y`, subscripts of nested values, f-strings and the functions in `FUNCTIONS`. No attributes and no
other calls, so an expression can neither reach outside the row nor run for long. A column that a row does not have
is None.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType
from typing import Any

from headwater.views.errors import BadView, RecordRefused
from headwater.views.rows import Row

__all__ = ["FUNCTIONS", "compile_expression"]

EXPRESSION_CHARACTERS_MAX = 4_000

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "bool": bool,
    "float": float,
    "int": int,
    "len": len,
    "max": max,
    "min": min,
    "round": round,
    "str": str,
    "lower": lambda text: None if text is None else str(text).lower(),
    "upper": lambda text: None if text is None else str(text).upper(),
    "trim": lambda text: None if text is None else str(text).strip(),
    "coalesce": lambda *values: next((value for value in values if value is not None), None),
    "contains": lambda text, part: text is not None and part in text,
    "starts_with": lambda text, part: text is not None and str(text).startswith(part),
    "split": lambda text, by: [] if text is None else str(text).split(by),
}

_ALLOWED = (
    *(ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Set),
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.IfExp, ast.Call),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot),
    *(ast.JoinedStr, ast.FormattedValue),
)


def compile_expression(text: str, where: str) -> Callable[[Row], Any]:
    """A function of a row; `BadView` when the text is not such an expression."""
    code = _checked(text, where)
    names = _Columns()

    def evaluate(row: Row) -> Any:
        names.row = row
        try:
            return eval(code, {"__builtins__": {}}, names)  # every node was checked above
        except Exception as error:
            raise RecordRefused(f"{where}: {text!r}: {type(error).__name__}: {error}") from error

    return evaluate


class _Columns(dict[str, Any]):
    """The names an expression sees: the row's columns, then the functions, else None."""

    def __init__(self) -> None:
        super().__init__()
        self.row: Row = {}

    def __getitem__(self, name: str) -> Any:
        row = self.row
        return row[name] if name in row else FUNCTIONS.get(name)


def _checked(text: str, where: str) -> CodeType:
    if len(text) > EXPRESSION_CHARACTERS_MAX:
        raise BadView(f"{where}: an expression has at most {EXPRESSION_CHARACTERS_MAX} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError) as error:
        raise BadView(f"{where}: {text!r} is not an expression: {error}") from error
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise BadView(f"{where}: {text!r}: {type(node).__name__} is not allowed in an expression")
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS):
            raise BadView(f"{where}: {text!r}: the functions are {', '.join(sorted(FUNCTIONS))}")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Mod) and _repeats(node):
            raise BadView(f"{where}: {text!r}: text and lists cannot be multiplied or formatted by %")
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            raise BadView(f"{where}: {text!r}: f-strings take no format; round() the number first")
    return compile(tree, where, "eval")


def _repeats(node: ast.BinOp) -> bool:
    """`"x" * n` and `[x] * n` would let a short expression build a long value."""
    built = (ast.List, ast.Tuple, ast.JoinedStr)
    sides = (node.left, node.right)
    return any(
        isinstance(s, built) or (isinstance(s, ast.Constant) and isinstance(s.value, str | bytes)) for s in sides
    )
