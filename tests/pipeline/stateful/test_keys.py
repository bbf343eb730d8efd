"""Keys as bytes: they come back as they were, and sort as their columns do."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.pipeline.stateful.keys import KeyCodec
from headwater.pipeline.stateful.schema import Column

IN_ORDER: dict[Any, list[Any]] = {
    pa.float64(): [None, float("-inf"), -2.25, -1e-300, 0.0, 1e-300, 1.5, float("inf")],
    pa.float32(): [None, -2.25, 0.0, 1.5],
    pa.int64(): [None, -(1 << 63), -1, 0, 1, (1 << 63) - 1],
    pa.uint64(): [None, 0, 1, (1 << 64) - 1],
    pa.bool_(): [None, False, True],
    pa.string(): [None, "", "a", "a\x00", "a\x00b", "b"],
}


@pytest.mark.parametrize("beside", [None, pa.int32(), pa.string()])
@pytest.mark.parametrize("kind", IN_ORDER, ids=str)
def test_keys_come_back_as_they_were_and_sort_as_their_columns(kind: Any, beside: Any) -> None:
    values = pa.array(IN_ORDER[kind], kind)
    columns = {"x": values}
    if beside is not None:
        columns["y"] = pa.nulls(len(values), beside)
    codec = KeyCodec([Column(name, column.type) for name, column in columns.items()])
    encoded = codec.encode(columns)
    assert encoded == sorted(encoded)
    assert codec.decode(encoded)["x"].to_pylist() == IN_ORDER[kind]
