"""A declared structure as it is in one version: which fields travel, in which order, which of them tagged."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from headwater.wire.fields import Field, Struct

__all__ = ["FIXED", "Layout", "Slot", "carries_records", "element", "includes", "layout", "smallest"]

FIXED: Final = {
    "boolean": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Kinds of fixed size: their code for `struct` and their bytes."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A field that travels in the version at hand."""

    name: str
    kind: str
    nullable: bool
    tag: int | None
    default: Any  # what its absence means, if it travels tagged
    of: Any


@dataclass(frozen=True, slots=True)
class Layout:
    """A structure in one version."""

    of: type[Struct]
    flexible: bool
    plain: tuple[Slot, ...]  # in the order of the wire
    tagged: tuple[Slot, ...]  # by rising tag
    version: int


@cache
def includes(versions: str, version: int) -> bool:
    """Whether a range such as "3+", "0-12" or "7" (or "", none) includes a version."""
    if not versions:
        return False
    low, dash, high = versions.partition("-")
    if low.endswith("+"):
        return version >= int(low[:-1])
    return int(low) <= version <= int(high if dash else low)


def layout(of: type[Struct], version: int, flexible: bool) -> Layout:
    """The fields of `of` that travel in `version`."""
    slots = [_slot(name, field, version) for name, field in of.wire_fields if includes(field.versions, version)]
    plain = tuple(slot for slot in slots if slot.tag is None)
    tagged = tuple(sorted((slot for slot in slots if slot.tag is not None), key=lambda slot: slot.tag or 0))
    return Layout(of, flexible, plain, tagged, version)


def _slot(name: str, field: Field, version: int) -> Slot:
    nullable = includes(field.nullable, version)
    default = field.default
    if field.kind == "struct" and field.tag is not None and nullable:
        default = field.of()  # Kafka takes the absence of such a field for an empty structure, and sends null
    return Slot(name, field.kind, nullable, field.tag, default, field.of)


def element(array: Slot) -> Slot:
    """An array's element as a slot of its own."""
    if isinstance(array.of, type):
        return Slot("", "struct", False, None, None, array.of)
    field: Field = array.of()
    return Slot("", field.kind, False, None, field.default, None)


def smallest(slot: Slot, version: int, flexible: bool) -> int:
    """The fewest bytes a field can take, to refuse counts that its message cannot hold."""
    if slot.kind in FIXED:
        return FIXED[slot.kind][1]
    if slot.kind == "struct":
        if slot.nullable:
            return 1
        inner = layout(slot.of, version, flexible)
        return sum(smallest(each, version, flexible) for each in inner.plain) + flexible
    if flexible:
        return 1
    return 2 if slot.kind == "string" else 4


@cache
def carries_records(of: type[Struct]) -> bool:
    """Whether record batches travel somewhere in this structure, which must not be copied."""
    return any(
        field.kind == "records" or (isinstance(field.of, type) and carries_records(field.of))
        for _, field in of.wire_fields
    )
