"""Protobuf as columns: from a class, a descriptor set or a registry."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2
from google.protobuf.message_factory import GetMessageClass
from tests.pipeline.formats.registries import framed, serving

from headwater.pipeline.errors import BadOption
from headwater.pipeline.formats import Format, Protobuf
from headwater.pipeline.formats.base import DECODED, REASON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

F = descriptor_pb2.FieldDescriptorProto


def order_file(name: str = "shop.proto") -> descriptor_pb2.FileDescriptorProto:
    """What protoc makes of a message Order with one field of each kind."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    item = order.nested_type.add(name="Item")
    item.field.add(name="sku", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)
    for number, (field, type_, type_name, label) in enumerate(
        [
            ("id", F.TYPE_INT64, "", F.LABEL_OPTIONAL),
            ("big", F.TYPE_UINT64, "", F.LABEL_OPTIONAL),
            ("kind", F.TYPE_ENUM, ".shop.Kind", F.LABEL_OPTIONAL),
            ("raw", F.TYPE_BYTES, "", F.LABEL_OPTIONAL),
            ("items", F.TYPE_MESSAGE, ".shop.Order.Item", F.LABEL_REPEATED),
            ("counts", F.TYPE_MESSAGE, ".shop.Order.CountsEntry", F.LABEL_REPEATED),
            ("at", F.TYPE_MESSAGE, ".google.protobuf.Timestamp", F.LABEL_OPTIONAL),
            ("first", F.TYPE_MESSAGE, ".shop.Order.Item", F.LABEL_OPTIONAL),
        ],
        start=1,
    ):
        order.field.add(name=field, number=number, type=type_, type_name=type_name or None, label=label)
    return file


def order_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(order_file())  # type: ignore[no-untyped-call]
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


MOMENT = datetime(2026, 1, 1, 0, 0, 0, 123456, UTC)


def order() -> Any:
    made = order_class()(id=7, big=2**64 - 1, kind=1, raw=b"\x00", counts={"a": 1})
    made.items.add(sku="x")
    made.at.FromDatetime(MOMENT)
    return made


def decode(spark: SparkSession, format_: Format, *raw: bytes | None) -> list[tuple[Any, str | None]]:
    df = spark.createDataFrame([(None if r is None else bytearray(r),) for r in raw], "value binary").coalesce(1)
    rows = format_.decoded(df, "value", ["orders"]).collect()
    return [(row["value" + DECODED], row["value" + REASON]) for row in rows]


def test_every_type_has_its_column(spark: SparkSession) -> None:
    [(row, reason)] = decode(spark, Protobuf(order_class()), order().SerializeToString())
    assert reason is None
    found = row.asDict(recursive=True)
    assert found.pop("at").astimezone(UTC) == MOMENT
    assert found == {
        "id": 7,
        "big": Decimal(2**64 - 1),
        "kind": "PAID",
        "raw": bytearray(b"\x00"),
        "items": [{"sku": "x"}],
        "counts": {"a": 1},
        "first": None,
    }


def test_a_descriptor_set_and_a_name_do_as_well(spark: SparkSession) -> None:
    files = descriptor_pb2.FileDescriptorSet(file=[order_file()])
    format_ = Protobuf("shop.Order", descriptors=files.SerializeToString())
    found = decode(spark, format_, order().SerializeToString(), b"\xff\xff", None)
    assert found[0][0].id == 7
    assert str(found[1][1]).startswith("not a shop.Order: ")
    assert found[2] == (None, None)


def test_a_registry_frames_values_with_the_messages_place_in_its_file(spark: SparkSession) -> None:
    with serving() as schemas:
        number = schemas.add("orders-value", order_file().SerializeToString(), "PROTOBUF")
        body = order().SerializeToString()
        found = decode(
            spark,
            Protobuf(registry=schemas.registry),
            framed(number, b"\x00" + body),  # the short form of the path [0]
            framed(number, b"\x02\x00" + body),
            framed(number, b"\x02\x02" + body),
            framed(number, b"\x80"),
        )
    assert [row and row.id for row, _ in found] == [7, 7, None, None]
    assert [reason for _, reason in found[2:]] == [
        "holds message [1] of its file, not [0]",
        "ends within its message indexes",
    ]


def test_a_message_that_cannot_be_columns_is_refused_at_once() -> None:
    shop = descriptor_pb2.FileDescriptorSet(file=[order_file()]).SerializeToString()
    with pytest.raises(BadOption, match=r"there is no message 'shop\.Nothing'"):
        Protobuf("shop.Nothing", descriptors=shop).schema(["t"], "value")
    with pytest.raises(BadOption, match="give a message class"):
        Protobuf()
    with pytest.raises(BadOption, match="the name 'x' needs descriptors"):
        Protobuf("x")
    file = descriptor_pb2.FileDescriptorProto(name="tree.proto", package="t", syntax="proto3")
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=F.TYPE_MESSAGE, type_name=".t.Node", label=F.LABEL_OPTIONAL)
    tree = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    with pytest.raises(BadOption, match=r"t\.Node contains itself"):
        Protobuf("t.Node", descriptors=tree).schema(["t"], "value")
