"""Values as bytes: whatever a column may hold comes back as it was."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.pipeline.stateful.schema import Column
from headwater.pipeline.stateful.values import ValueCodec

CASES: list[tuple[Any, list[Any]]] = [
    (pa.int64(), [1, None, -(1 << 63)]),
    (pa.float64(), [1.5, None, float("inf")]),
    (pa.bool_(), [True, None, False]),
    (pa.string(), ["", None, "a\x00b"]),
    (pa.binary(), [b"", None, b"\xff"]),
    (pa.date32(), [date(2026, 1, 1), None, date(1969, 1, 1)]),
    (pa.timestamp("us", tz="UTC"), [datetime(2026, 1, 1, tzinfo=UTC), None, datetime(1969, 1, 1, tzinfo=UTC)]),
    (pa.decimal128(10, 2), [Decimal("1.50"), None, Decimal("-3.00")]),
    (pa.list_(pa.int64()), [[1, 2], None, []]),
    (pa.list_(pa.decimal128(10, 2)), [[Decimal("1.50"), None], None, []]),
    (pa.map_(pa.string(), pa.decimal128(10, 2)), [[("a", Decimal("1.00"))], None, []]),
    (
        pa.struct([("a", pa.int64()), ("b", pa.map_(pa.string(), pa.int64())), ("c", pa.date32())]),
        [{"a": 1, "b": [("x", 2)], "c": date(2026, 1, 1)}, None, {"a": None, "b": None, "c": None}],
    ),
]


@pytest.mark.parametrize(("kind", "values"), CASES, ids=[str(kind) for kind, _ in CASES])
def test_values_come_back_as_they_were(kind: Any, values: list[Any]) -> None:
    codec = ValueCodec(0, [Column("x", kind), Column("y", pa.string())])
    column, beside = pa.array(values, kind), pa.array(["p", "q", None])
    found = codec.unpack(codec.pack({"x": column, "y": beside}, len(values)))
    assert found["x"].to_pylist() == values
    assert found["x"].type == kind
    assert found["y"].equals(beside)
