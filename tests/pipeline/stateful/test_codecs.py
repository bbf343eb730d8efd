"""Keys whose bytes sort as they do, values of any layout, and files that are whole or refused."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import HeadwaterError
from headwater.pipeline.stateful.changelog import (
    Header,
    block,
    decode_changes,
    digest_of,
    encode_changes,
    end,
    read_changes,
    start,
)
from headwater.pipeline.stateful.errors import StateMismatch
from headwater.pipeline.stateful.keys import KeyCodec, successor
from headwater.pipeline.stateful.schema import Column, TableHistory, TableSpec
from headwater.pipeline.stateful.values import ValueCodec

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
KINDS: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), INT64),
    (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, (1 << 64) - 1)),
    (pa.bool_(), st.booleans()),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), st.text(max_size=8)),
    (pa.binary(), st.binary(max_size=8)),
    (pa.timestamp("us", tz="UTC"), TIMES),
]


@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_keys_sort_as_their_columns_do_and_come_back(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    codec = KeyCodec([Column(str(i), kind) for i, (kind, _) in enumerate(kinds)])
    rows = data.draw(st.lists(st.tuples(*(st.none() | values for _, values in kinds)), max_size=12))
    columns = {str(i): pa.array([row[i] for row in rows], kind) for i, (kind, _) in enumerate(kinds)}
    encoded = codec.encode(columns)
    by_bytes = sorted(range(len(rows)), key=encoded.__getitem__)
    by_value = sorted(range(len(rows)), key=lambda n: tuple((v is not None, _sortable(v)) for v in rows[n]))
    assert [encoded[n] for n in by_bytes] == [encoded[n] for n in by_value]
    back = codec.decode(encoded)
    assert [tuple(back[str(i)][n].as_py() for i in range(len(kinds))) for n in range(len(rows))] == [
        tuple(0.0 if value == 0 and isinstance(value, float) else value for value in row) for row in rows
    ]


def _sortable(value: Any) -> Any:
    return 0 if value is None else value.encode() if isinstance(value, str) else value


@given(texts=st.lists(st.text(max_size=6), min_size=2, max_size=2))
def test_no_key_is_the_beginning_of_another(texts: list[str]) -> None:
    codec = KeyCodec([Column("t", pa.string())])
    one, two = codec.encode({"t": texts})
    assert texts[0] == texts[1] or not two.startswith(one)


def test_zeros_and_nans_are_one_key_each() -> None:
    codec = KeyCodec([Column("f", pa.float64())])
    minus, plus, nan, other = codec.encode({"f": [-0.0, 0.0, math.nan, -math.nan]})
    assert (minus, nan) == (plus, other)


@given(prefix=st.binary(max_size=4), rest=st.binary(max_size=4))
def test_the_successor_is_greater_than_all_that_begins_with_it(prefix: bytes, rest: bytes) -> None:
    after = successor(prefix)
    assert not after or prefix + rest < after


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_values_of_any_types_come_back(data: st.DataObject) -> None:
    nested = (pa.list_(pa.int64()), st.lists(INT64, max_size=3))
    kinds = data.draw(st.lists(st.sampled_from([*KINDS, nested]), min_size=1, max_size=10))
    codec = ValueCodec(0, [Column(str(i), kind) for i, (kind, _) in enumerate(kinds)])
    rows = data.draw(st.lists(st.tuples(*(st.none() | values for _, values in kinds)), max_size=8))
    columns = {str(i): pa.array([row[i] for row in rows], kind) for i, (kind, _) in enumerate(kinds)}
    back = codec.unpack(codec.pack(columns, len(rows)))
    assert [tuple(back[str(i)][n].as_py() for i in range(len(kinds))) for n in range(len(rows))] == rows


BYTES = st.binary(max_size=6)
CHANGES = st.lists(st.tuples(BYTES, st.none() | BYTES, st.none() | BYTES), max_size=8)


@given(changes=CHANGES)
def test_changes_come_back(changes: list[Any]) -> None:
    assert decode_changes(encode_changes(3, changes)) == (3, changes)


def whole_file(changes: list[Any]) -> bytes:
    tables = (TableHistory.new(TableSpec.of("t", [("k", pa.string())], [])),)
    raw = encode_changes(0, changes)
    header = Header("changelog", "op", 1, 4, digest_of("0" * 32, [raw]), "0" * 32, tables, {"rows_in": 3})
    return start(header) + block(raw) + end()


@given(changes=CHANGES, data=st.data())
@settings(max_examples=120, deadline=None)
def test_a_file_that_is_cut_or_changed_anywhere_is_refused(changes: list[Any], data: st.DataObject) -> None:
    good = whole_file(changes)
    header, found = read_changes(good, "file")
    assert (header.version, found) == (4, {"t": changes} if changes else found)
    cut = data.draw(st.integers(0, len(good) - 1))
    with pytest.raises(HeadwaterError):
        read_changes(good[:cut], "file")
    changed = bytearray(good)
    changed[cut] ^= data.draw(st.integers(1, 255))
    with pytest.raises(HeadwaterError):
        read_changes(bytes(changed), "file")


def test_a_file_of_a_newer_format_asks_for_the_newer_program() -> None:
    raw = Header("changelog", "op", 1, 4, "0" * 32, "0" * 32, ()).to_bytes().replace(b'"format":1', b'"format":9')
    with pytest.raises(StateMismatch, match="state format 9, this headwater reads up to 1: use the newer one"):
        Header.from_bytes(raw, "file")
