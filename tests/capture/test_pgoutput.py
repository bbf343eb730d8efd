"""The decoder of pgoutput messages and the assembly of transactions, without a server."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.capture import pgoutput
from headwater.capture.pg_transactions import Assembler, Closed, Opened, Outside, Row, Step
from headwater.capture.pgoutput import POSTGRES_EPOCH_US, UNCHANGED
from headwater.capture.spill import SpillStore
from headwater.errors import EnvironmentFailed


def tuple_of(*values: bytes | str | None) -> bytes:
    """A tuple as the server writes it; a str stands for its kind ("u": unchanged)."""
    out = struct.pack(">H", len(values))
    for value in values:
        if value is None:
            out += b"n"
        elif isinstance(value, str):
            out += value.encode()
        else:
            out += b"t" + struct.pack(">I", len(value)) + value
    return out


def begin(xid: int, lsn: int) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, 1_000_000, xid)


def commit(lsn: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, lsn, lsn + 8, 0)


def insert(number: int, xid: int | None = None) -> bytes:
    inside = b"" if xid is None else struct.pack(">I", xid)
    return b"I" + inside + struct.pack(">I", 7) + b"N" + tuple_of(b"%d" % number)


def start(xid: int, *, first: bool = False) -> bytes:
    return b"S" + struct.pack(">IB", xid, first)


def abort(xid: int, subtransaction: int) -> bytes:
    return b"A" + struct.pack(">II", xid, subtransaction)


def stream_commit(xid: int, lsn: int) -> bytes:
    return b"c" + struct.pack(">IBQQq", xid, 0, lsn, lsn + 8, 0)


STOP = b"E"


def test_a_begin_carries_place_time_and_id() -> None:
    decoded = pgoutput.begin(begin(5, 0x1234))
    assert decoded == pgoutput.Begin(0x1234, 1_000_000 + POSTGRES_EPOCH_US, 5)


def test_a_relation_names_its_columns() -> None:
    columns = b"\1id\0" + struct.pack(">Ii", 23, -1) + b"\0p\0" + struct.pack(">Ii", 1700, 655366)
    message = b"R" + struct.pack(">I", 9) + b"public\0t\0d\0\2" + columns
    relation = pgoutput.relation(message)
    assert (relation.oid, relation.schema, relation.name, relation.identity) == (9, "public", "t", "d")
    assert relation.columns == (
        pgoutput.RelationColumn("id", 23, -1, True),
        pgoutput.RelationColumn("p", 1700, 655366, False),
    )
    assert pgoutput.relation(b"R\0\0\0\5" + message[1:], 5) == relation


def test_an_empty_schema_name_is_pg_catalog() -> None:
    assert pgoutput.relation(b"R\0\0\0\1\0t\0d\0\0").schema == "pg_catalog"


@pytest.mark.parametrize(
    ("body", "old", "old_is_key", "new"),
    [
        (b"N" + tuple_of(b"1", None), None, False, [b"1", None]),
        (b"K" + tuple_of(b"0", None) + b"N" + tuple_of(b"1", "u"), [b"0", None], True, [b"1", UNCHANGED]),
        (b"O" + tuple_of(b"0") + b"N" + tuple_of(b""), [b"0"], False, [b""]),
    ],
)
def test_an_update_with_each_kind_of_old_row(body: bytes, old: object, old_is_key: bool, new: object) -> None:
    change = pgoutput.read_row(b"U\0\0\0\7" + body)
    assert (change.relation, change.old, change.old_is_key, change.new) == (7, old, old_is_key, new)


def test_a_delete_has_only_an_old_row() -> None:
    change = pgoutput.read_row(b"D\0\0\0\7K" + tuple_of(b"1"))
    assert (change.kind, change.old, change.new) == ("D", [b"1"], None)


def test_a_truncate_lists_relations_and_options() -> None:
    message = b"T" + struct.pack(">IBII", 2, 3, 7, 8)
    assert pgoutput.truncate(message) == pgoutput.Truncate(True, True, (7, 8))


def test_a_logical_message() -> None:
    message = b"M\1" + struct.pack(">Q", 99) + b"app\0" + struct.pack(">I", 2) + b"\0\1"
    assert pgoutput.logical_message(message) == pgoutput.LogicalMessage(True, 99, "app", b"\0\1")


@pytest.mark.parametrize(
    "message",
    [
        b"I\0\0\0\7N\0\1x",
        b"I\0\0\0\7X\0\0",
        b"I\0\0\0\7N\0\1t\0\0\0\5ab",
    ],
)
def test_bytes_that_are_no_row_are_refused(message: bytes) -> None:
    with pytest.raises(pgoutput.Malformed, match=r"byte|bytes"):
        pgoutput.read_row(message)


def run(messages: list[bytes], store: SpillStore | None = None) -> list[Step]:
    assembler = Assembler(store or SpillStore())
    return [step for lsn, message in enumerate(messages) for step in assembler.feed(lsn, message)]


def shown(steps: list[Step]) -> list[object]:
    """Transactions by id, rows by their number."""
    out: list[object] = []
    for step in steps:
        if isinstance(step, Opened):
            out.append(f"begin {step.transaction.xid}")
        elif isinstance(step, Closed):
            out.append(f"end {step.transaction.xid} at {step.end_lsn}")
        elif isinstance(step, Row):
            change = pgoutput.read_row(step.data, step.at)
            assert change.new is not None
            out.append(int(change.new[0]))  # type: ignore[arg-type]
        else:
            out.append("outside")
    return out


def test_a_whole_transaction_goes_straight_through() -> None:
    assert shown(run([begin(5, 100), insert(1), insert(2), commit(100)])) == ["begin 5", 1, 2, "end 5 at 108"]


def test_a_streamed_transaction_comes_out_at_its_commit_without_what_was_rolled_back() -> None:
    messages = [
        start(5, first=True),
        insert(1, 5),
        insert(2, 6),
        STOP,
        begin(9, 50),
        insert(90),
        commit(50),
        abort(5, 6),
        start(5),
        insert(3, 7),
        STOP,
        stream_commit(5, 100),
    ]
    assert shown(run(messages)) == ["begin 9", 90, "end 9 at 58", "begin 5", 1, 3, "end 5 at 108"]


def test_a_streamed_transaction_that_aborts_is_thrown_away() -> None:
    store = SpillStore()
    assert run([start(5, first=True), insert(1, 5), STOP, abort(5, 5)], store) == []
    assert store.memory_bytes == 0


def test_a_message_of_no_transaction_is_its_own_step() -> None:
    message = b"M\0" + struct.pack(">Q", 99) + b"app\0\0\0\0\0"
    (step,) = run([message])
    assert isinstance(step, Outside)


def test_an_unknown_message_is_refused() -> None:
    with pytest.raises(pgoutput.Malformed, match="unknown"):
        run([b"?"])


entries = st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=60)), max_size=60)


@settings(deadline=None, max_examples=60)
@given(entries, st.sets(st.integers(0, 3)), st.integers(1, 4000))
def test_spilled_rows_come_back_in_order_whatever_the_memory(
    rows: list[tuple[int, bytes]], dropped: set[int], memory: int
) -> None:
    store = SpillStore(memory_bytes_max=memory)
    waiting = store.open()
    for lsn, (xid, data) in enumerate(rows):
        waiting.append(xid, lsn, data)
        assert store.memory_bytes <= memory
    for xid in dropped:
        waiting.drop(xid)
    expected = [(lsn, data) for lsn, (xid, data) in enumerate(rows) if xid not in dropped]
    assert list(waiting.replay()) == expected
    store.clear()
    assert store.memory_bytes == 0


def test_the_largest_waiting_transaction_goes_to_disk_first(tmp_path: Path) -> None:
    store = SpillStore(tmp_path, memory_bytes_max=2_000)
    small, large = store.open(), store.open()
    small.append(1, 1, b"x")
    for i in range(12):
        large.append(2, i, b"y" * 100)
    assert small.memory_bytes > 0
    assert large.memory_bytes < 2_000
    assert [data for _, data in large.replay()] == [b"y" * 100] * 12
    store.clear()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_says_where_and_what_to_do(tmp_path: Path) -> None:
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    store = SpillStore(not_a_folder, memory_bytes_max=10)
    with pytest.raises(EnvironmentFailed, match="TMPDIR"):
        store.open().append(1, 1, b"x" * 100)
