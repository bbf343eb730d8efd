"""Declarations: what programs see agrees with what travels."""

from __future__ import annotations

import pkgutil
import types
import typing
from importlib import import_module
from typing import Any
from uuid import UUID

import msgspec
import pytest

from headwater.wire import messages, records
from headwater.wire.codec import decode, encode
from headwater.wire.fields import Field, Struct, array, blob, boolean, int32, string, struct
from headwater.wire.layout import includes

PYTHON_TYPES = {
    "boolean": {bool},
    "int8": {int},
    "int16": {int},
    "uint16": {int},
    "int32": {int},
    "int64": {int},
    "float64": {float},
    "uuid": {UUID},
    "string": {str},
    "blob": {bytes},
}


def every_struct() -> list[type[Struct]]:
    found = []
    for package in (messages, records):
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            declared = vars(import_module(module.name)).values()
            found += [
                each for each in declared if isinstance(each, type) and issubclass(each, Struct) and each is not Struct
            ]
    return found


def seen_types(annotation: Any) -> set[Any]:
    if isinstance(annotation, types.UnionType):
        return {part for each in annotation.__args__ for part in seen_types(each)}
    return {annotation}


def check_field(annotation: Any, field: Field) -> None:
    seen = seen_types(annotation)
    assert (type(None) in seen) == bool(field.nullable)
    seen.discard(type(None))
    if field.kind == "struct":
        assert seen == {field.of}
    elif field.kind == "array":
        (only,) = seen
        origin, (of, rest) = typing.get_origin(only), typing.get_args(only)
        assert (origin, rest) == (tuple, ...)
        assert {of} == ({field.of} if isinstance(field.of, type) else PYTHON_TYPES[field.of().kind])
    elif field.kind != "records":
        assert seen == PYTHON_TYPES[field.kind]


@pytest.mark.parametrize("of", every_struct(), ids=lambda of: f"{of.__module__.split('.')[-1]}.{of.__name__}")
def test_annotations_agree_with_the_table(of: type[Struct]) -> None:
    annotations = typing.get_type_hints(of)
    annotations.pop("wire_fields", None)
    assert list(annotations) == [name for name, _ in of.wire_fields]
    for name, field in of.wire_fields:
        check_field(annotations[name], field)
    tags = [field.tag for _, field in of.wire_fields if field.tag is not None]
    assert len(tags) == len(set(tags))
    assert of() == of()


class Part(Struct):
    number: int = int32(default=-1)


class Example(Struct):
    old: str = string("0-2", default="none")
    new: str | None = string("2+", nullable="3+", default=None)
    flag: bool = boolean("3")
    part: Part = struct(Part, "1+")
    maybe: Part | None = struct(Part, "1+", nullable="1+")
    parts: tuple[Part, ...] | None = array(Part, "1+", nullable="2+", default=None)
    data: bytes = blob("4+", tag=3)


def test_fields_outside_a_version_do_not_travel_and_have_their_defaults() -> None:
    message = Example(old="o", new="n", flag=True, part=Part(number=3), parts=(Part(number=4),), data=b"d")
    assert encode(message, version=0, flexible=False) == b"\0\1o"
    assert decode(Example, b"\0\1o", version=0, flexible=False) == (Example(old="o"), 3)
    for version in range(5):
        flexible = version >= 4
        read, _ = decode(
            Example, encode(message, version=version, flexible=flexible), version=version, flexible=flexible
        )
        for name, field in Example.wire_fields:
            expected = message if includes(field.versions, version) else Example()
            assert getattr(read, name) == getattr(expected, name)


def test_null_travels_in_the_versions_that_have_it() -> None:
    message = Example()
    assert decode(Example, encode(message, version=3, flexible=False), version=3, flexible=False)[0] == message
    with pytest.raises((AttributeError, TypeError)):
        encode(message, version=2, flexible=False)


def test_a_tagged_field_with_its_default_does_not_travel() -> None:
    assert encode(Example(), version=4, flexible=True).hex() == "00" + "ffffffff00" + "ff" + "00" + "00"
    assert encode(Example(data=b"x"), version=4, flexible=True).endswith(bytes.fromhex("010302" + "0278"))


def test_messages_are_immutable_and_need_names() -> None:
    part = Part(number=1)
    with pytest.raises(AttributeError):
        part.number = 2  # type: ignore[misc]
    assert msgspec.structs.replace(part, number=2) == Part(number=2)


@pytest.mark.parametrize(
    ("versions", "included"), [("0+", [0, 1, 2, 3]), ("1-2", [1, 2]), ("2", [2]), ("3+", [3]), ("", [])]
)
def test_version_ranges(versions: str, included: list[int]) -> None:
    assert [version for version in range(4) if includes(versions, version)] == included
