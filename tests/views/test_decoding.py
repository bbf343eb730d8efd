"""Records to changes of rows, and what cannot be decoded."""

from __future__ import annotations

import json
from typing import Any

from headwater.views.decoding import Decoded, Decoder, Format
from headwater.views.keys import KeyRule
from headwater.views.mapping import RowMapping


def decoder(form: Format = "flat", key: tuple[str, ...] = (), **mapping: Any) -> Decoder:
    rows = RowMapping(**mapping)
    return Decoder("v", form, rows, KeyRule("v", key, rows.rename))


def decode(given: Decoder, *records: tuple[Any, Any]) -> Decoded:
    return given.decode([_bytes(k) for k, _ in records], [_bytes(v) for _, v in records])


def _bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


def changes(decoded: Decoded) -> list[tuple[Any, Any]]:
    return list(zip(decoded.keys, decoded.rows, strict=True))


def envelope(op: str, after: Any = None, before: Any = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"lsn": 1}, "ts_ms": 1}


def test_flat_rows_take_their_key_from_the_record_and_null_deletes() -> None:
    found = decode(decoder(), ({"id": 1}, {"id": 1, "n": 2}), ({"id": 1}, None), ({"id": 2}, {"n": 3}))
    assert changes(found) == [(1, {"id": 1, "n": 2}), (1, None), (2, {"n": 3, "id": 2})]


def test_a_key_that_is_no_object_is_text_in_a_column_of_its_own() -> None:
    found = decode(decoder(), (b"42", {"n": 1}), (b'"a b"', {"n": 2}), (b"plain", None))
    assert changes(found) == [("42", {"n": 1, "_key": "42"}), ("a b", {"n": 2, "_key": "a b"}), ("plain", None)]


def test_rows_that_the_mapping_leaves_alone_keep_their_text() -> None:
    assert decode(decoder(), ({"id": 1}, {"id": 1})).raw
    assert not decode(decoder(), (b"1", {"id": 1})).raw  # the column _key is not in the text
    assert not decode(decoder(select=["id"]), ({"id": 1}, {"id": 1})).raw
    assert not decode(decoder("weighted"), ({"id": 1}, {"id": 1, "_weight": 1})).raw


def test_debezium_envelopes_bare_and_with_schema() -> None:
    records = [
        ({"id": 1}, envelope("r", {"id": 1, "n": "a"})),
        ({"id": 1}, envelope("u", {"id": 1, "n": "b"}, {"id": 1, "n": "a"})),
        ({"id": 2}, envelope("c", {"id": 2, "n": "c"})),
        ({"id": 2}, envelope("d", None, {"id": 2, "n": None})),
        ({"id": 2}, None),
        (None, envelope("m")),
    ]
    expected = [(1, {"id": 1, "n": "a"}), (1, {"id": 1, "n": "b"}), (2, {"id": 2, "n": "c"}), (2, None), (2, None)]
    assert changes(decode(decoder("auto"), *records)) == expected
    wrapped = [
        (k if k is None else {"schema": {}, "payload": k}, v and {"schema": {}, "payload": v}) for k, v in records
    ]
    assert changes(decode(decoder("auto"), *wrapped)) == expected


def test_weighted_rows_come_and_go() -> None:
    found = decode(
        decoder("auto"),
        ({"id": 1}, {"id": 1, "n": 1, "_weight": 1}),
        ({"id": 1}, {"id": 1, "n": 1, "_weight": -1}),
        ({"id": 1}, {"id": 1, "n": 2, "_weight": 1}),
        ({"id": 3}, {"id": 3, "_weight": 2}),
    )
    assert changes(found) == [(1, {"id": 1, "n": 1}), (1, None), (1, {"id": 1, "n": 2})]
    assert found.refused == [(3, "_weight is 2, but a keyed view has each row once: 1 or -1")]


def test_a_bad_record_is_refused_alone_wherever_it_stands() -> None:
    records: list[tuple[Any, Any]] = [({"id": i}, {"id": i}) for i in range(100)]
    for i, bad in ((0, b"{"), (37, b"[1]"), (38, b'{"a":1}\n{"b":2}'), (99, b"\xff")):
        records[i] = ({"id": i}, bad)
    records[50] = (None, {"id": 50})
    found = decode(decoder(), *records)
    assert [i for i, _ in found.refused] == [0, 37, 38, 50, 99]
    assert found.keys == [i for i in range(100) if i not in (0, 37, 38, 50, 99)]
    assert found.index == found.keys


def test_two_values_that_would_be_one_together_are_two_refusals() -> None:
    found = decode(decoder(), (b"a", b'{"a":1'), (b"b", b'"b":2}'), (b"c", b"{},{}"), (b"d", b'{"ok":1}'))
    assert ([i for i, _ in found.refused], found.keys) == ([0, 1, 2], ["d"])


def test_a_row_that_no_longer_passes_the_filter_leaves_the_view() -> None:
    kept = decoder(filter="n > 1")
    found = decode(
        kept, ({"id": 1}, {"id": 1, "n": 2}), ({"id": 1}, {"id": 1, "n": 0}), ({"id": 2}, {"id": 2, "n": None})
    )
    assert changes(found) == [(1, {"id": 1, "n": 2}), (1, None)]
    assert "TypeError" in found.refused[0][1]


def test_a_rekeyed_view_takes_the_old_row_away() -> None:
    moved = decoder("debezium", key=("mail",))
    found = decode(
        moved,
        ({"id": 1}, envelope("c", {"id": 1, "mail": "a@x"})),
        ({"id": 1}, envelope("u", {"id": 1, "mail": "b@x"}, {"id": 1, "mail": "a@x"})),
        ({"id": 1}, envelope("d", None, {"id": 1, "mail": "b@x"})),
    )
    assert [(key, row is not None) for key, row in changes(found)] == [
        ("a@x", True),
        ("a@x", False),
        ("b@x", True),
        ("b@x", False),
    ]


def test_a_rekeyed_view_refuses_what_does_not_say_the_row_before() -> None:
    found = decode(decoder("debezium", key=("mail",)), ({"id": 1}, envelope("u", {"id": 1, "mail": "b@x"})))
    assert "REPLICA IDENTITY FULL" in found.refused[0][1]
    found = decode(decoder(key=("mail",)), ({"id": 1}, {"id": 1, "mail": "b@x"}))
    assert "keyed by mail" in found.refused[0][1]


def test_a_named_key_that_the_topic_shares_needs_nothing_before() -> None:
    found = decode(
        decoder(key=("id",)), (b"7", {"id": 7}), (b"7", None), ({"id": 8, "x": 1}, {"id": 8}), ({"id": 8}, None)
    )
    assert changes(found) == [(7, {"id": 7}), (7, None), (8, {"id": 8}), (8, None)]


def test_rows_keyed_by_columns_need_no_key_of_the_record() -> None:
    found = decode(decoder(key=("id",), filter="id > 1"), (None, {"id": 1}), (None, {"id": 2}), (None, None))
    assert changes(found) == [(2, {"id": 2})]
    assert [i for i, _ in found.refused] == [2]


def test_a_large_value_that_the_capture_left_out_is_refused() -> None:
    row = {"id": 1, "blob": "__debezium_unavailable_value"}
    assert "blob" in decode(decoder("debezium"), ({"id": 1}, envelope("u", row))).refused[0][1]


def test_a_truncate_is_refused_with_what_to_do() -> None:
    assert "rebuild" in decode(decoder("debezium"), (None, envelope("t"))).refused[0][1]
