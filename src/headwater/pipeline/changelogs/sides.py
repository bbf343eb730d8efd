"""The two inputs of what brings rows of both together, and the columns by which they meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.pipeline.errors import DefinitionError

__all__ = ["LEFT", "RIGHT", "On", "key_pairs"]

LEFT, RIGHT = "left", "right"

On = Sequence[str] | Mapping[str, str]
"""The key's columns: their names, or left name -> right name."""


def key_pairs(on: On, where: str) -> dict[str, str]:
    """The key's columns, left name to right name."""
    if isinstance(on, str):
        raise DefinitionError(
            f"{where}: on is {on!r}; give a list of columns, or a mapping of left names to right ones"
        )
    found = dict(on) if isinstance(on, Mapping) else {name: name for name in on}
    if not found:
        raise DefinitionError(f"{where}: on names no column; rows meet by at least one")
    return found
