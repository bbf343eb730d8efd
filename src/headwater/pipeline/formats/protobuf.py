"""Protobuf: a message class, a descriptor set (`protoc --include_imports --descriptor_set_out`), or a registry.

Fields written under other versions are found by their numbers, as Protobuf does. A field with presence that is not
set is null; enums are their names; `google.protobuf.Timestamp` is a timestamp; uint64 is decimal(20,0).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.pipeline.errors import BadOption
from headwater.pipeline.formats.base import Format
from headwater.pipeline.formats.python import BadRecord, Decoder, decoded_in_python
from headwater.pipeline.formats.registry import Registry, unframed

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from pyspark.sql import DataFrame

__all__ = ["Protobuf"]

_TIMESTAMP = "google.protobuf.Timestamp"
_UINT64 = DecimalType(20, 0)


@dataclass(frozen=True, slots=True)
class Protobuf(Format):
    """`Protobuf(Order)`, `Protobuf("shop.Order", descriptors=bytes)`, or `Protobuf(registry=Registry(...))`."""

    message: Any = None  # a message class, or a full name
    descriptors: bytes | None = None
    registry: Registry | None = None
    subject: str | None = None

    def __post_init__(self) -> None:
        if self.message is None and self.registry is None:
            raise BadOption("Protobuf: give a message class, a name and descriptors, or registry=Registry(...)")
        if isinstance(self.message, str) and self.descriptors is None and self.registry is None:
            raise BadOption(f"Protobuf: the name {self.message!r} needs descriptors=... or registry=...")

    def schema(self, topics: Sequence[str], part: str) -> DataType:
        files, name = self._files(topics, part)
        return _struct(_descriptor(files, name), ())

    def decoded(self, df: DataFrame, column: str, topics: Sequence[str]) -> DataFrame:
        files, name = self._files(topics, column)
        framed = self.registry is not None

        def open_decoder() -> Decoder:
            return _decoder(_descriptor(files, name), framed)

        return decoded_in_python(df, column, _struct(_descriptor(files, name), ()), open_decoder)

    def _files(self, topics: Sequence[str], part: str) -> tuple[list[bytes], str]:
        """Serialised file descriptors, those that are needed first, and the message's name."""
        if self.registry is not None:
            return _registered_files(self.registry, self.subject, topics, part, self.message)
        if isinstance(self.message, str):
            return _files_of_set(self.descriptors or b""), self.message
        descriptor = self.message.DESCRIPTOR
        return _files_of(descriptor.file), descriptor.full_name


def _files_of_set(raw: bytes) -> list[bytes]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        return [file.SerializeToString() for file in FileDescriptorSet.FromString(raw).file]
    except DecodeError as error:
        raise BadOption(f"Protobuf: descriptors are not what protoc --descriptor_set_out writes: {error}") from error


def _files_of(file: Any) -> list[bytes]:
    needed: dict[str, bytes] = {}

    def add(one: Any) -> None:
        for dependency in one.dependencies:
            add(dependency)
        needed[one.name] = one.serialized_pb

    add(file)
    return list(needed.values())


def _registered_files(
    registry: Registry, subject: str | None, topics: Sequence[str], part: str, message: str | None
) -> tuple[list[bytes], str]:
    found = registry.of_topics(topics, part, subject)
    if found.kind != "PROTOBUF":
        raise BadOption(f"Protobuf: schema {found.number} of {', '.join(topics)} is {found.kind}")
    files: dict[str, bytes] = {}
    main = _load(registry, subject or f"{topics[0]}-{part}", "latest", "main.proto", files)
    package = f"{main.package}." if main.package else ""
    return list(files.values()), message or package + main.message_type[0].name


def _load(
    registry: Registry, subject: str, version: int | str, name: str, files: dict[str, bytes]
) -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    found = registry.version(subject, version, form="?format=serialized")
    for reference, other, number in found.references:
        if reference not in files:
            _load(registry, other, number, reference, files)
    file = FileDescriptorProto.FromString(base64.b64decode(found.text))
    file.name = name
    files[name] = file.SerializeToString()
    return file


def _descriptor(files: Sequence[bytes], name: str) -> Descriptor:
    from google.protobuf import descriptor_pool, timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in files:
        try:
            pool.AddSerializedFile(file)
        except TypeError as error:
            raise BadOption(f"Protobuf: a descriptor cannot be used: {error}") from error
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError as error:
        raise BadOption(f"Protobuf: there is no message {name!r} in the descriptors") from error


def _struct(message: Descriptor, inside: tuple[str, ...]) -> DataType:
    if message.full_name == _TIMESTAMP:
        return TimestampType()
    if message.full_name in inside:
        raise BadOption(f"Protobuf: {message.full_name} contains itself, which columns cannot; read it as binary")
    within = (*inside, message.full_name)
    return StructType([StructField(f.name, _column(f, within)) for f in message.fields])


def _column(field: FieldDescriptor, inside: tuple[str, ...]) -> DataType:
    if _is_map(field):
        entry = _message(field).fields_by_name
        return MapType(_one(entry["key"], inside), _one(entry["value"], inside))
    return ArrayType(_one(field, inside)) if field.is_repeated else _one(field, inside)


def _one(field: FieldDescriptor, inside: tuple[str, ...]) -> DataType:
    scalars: dict[int, DataType] = {
        field.CPPTYPE_INT32: IntegerType(),
        field.CPPTYPE_INT64: LongType(),
        field.CPPTYPE_UINT32: LongType(),
        field.CPPTYPE_UINT64: _UINT64,
        field.CPPTYPE_DOUBLE: DoubleType(),
        field.CPPTYPE_FLOAT: FloatType(),
        field.CPPTYPE_BOOL: BooleanType(),
        field.CPPTYPE_ENUM: StringType(),
    }
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        return _struct(_message(field), inside)
    if field.cpp_type == field.CPPTYPE_STRING:
        return BinaryType() if field.type == field.TYPE_BYTES else StringType()
    return scalars[field.cpp_type]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _message(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None
    return field.message_type


def _decoder(message: Descriptor, framed: bool) -> Decoder:
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    made, to_value = GetMessageClass(message), _reader(message)
    path = _path(message)

    def decode(raw: bytes) -> Any:
        body = _without_path(unframed(raw)[1], path) if framed else raw
        try:
            return to_value(made.FromString(body))
        except DecodeError as error:
            raise BadRecord(f"not a {message.full_name}: {error}") from error

    return decode


def _reader(message: Descriptor) -> Callable[[Any], Any]:
    if message.full_name == _TIMESTAMP:
        return lambda found: found.seconds * 1_000_000 + found.nanos // 1_000
    parts = [(field.name, field.has_presence, _field_reader(field)) for field in message.fields]

    def to_value(found: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not found.HasField(name) else read(getattr(found, name))
            for name, has_presence, read in parts
        }

    return to_value


def _field_reader(field: FieldDescriptor) -> Callable[[Any], Any]:
    if _is_map(field):
        of_value = _one_reader(_message(field).fields_by_name["value"])
        return lambda pairs: [(key, of_value(pairs[key])) for key in pairs]
    read = _one_reader(field)
    return (lambda many: [read(one) for one in many]) if field.is_repeated else read


def _one_reader(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        return _reader(_message(field))
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    return lambda value: value


def _path(message: Descriptor) -> list[int]:
    """Where the message is in its file: its index, after those of the messages around it."""
    around = message.containing_type
    siblings = message.file.message_types_by_name.values() if around is None else around.nested_types
    index = next(i for i, one in enumerate(siblings) if one.full_name == message.full_name)
    return [index] if around is None else [*_path(around), index]


def _without_path(body: bytes, wanted: list[int]) -> bytes:
    """After the schema's number comes the message's path in its file: a count and indexes as zigzag varints."""
    count, at = _zigzag(body, 0)
    found = [0] if count == 0 else []
    for _ in range(count):
        index, at = _zigzag(body, at)
        found.append(index)
    if found != wanted:
        raise BadRecord(f"holds message {found} of its file, not {wanted}")
    return body[at:]


def _zigzag(body: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(body) and shift < 35:
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise BadRecord("ends within its message indexes")
