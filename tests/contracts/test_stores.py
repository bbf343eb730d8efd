"""What every store of views must do: one suite, every store."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.views.stores import ALL, Kind, Servers

from headwater.positions import Position
from headwater.views.bookmark import Bookmark
from headwater.views.errors import Fenced
from headwater.views.life import activate, add_version, forget
from headwater.views.rows import Batch, Key, Row
from headwater.views.stores import Snapshot, Store, Writer

ID = ("id",)


@pytest.fixture(params=[pytest.param(each, id=each.id, marks=each.marks) for each in ALL])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def store(kind: Kind, servers: Servers, tmp_path: Path) -> Iterator[Store]:
    found = servers.store(kind, tmp_path)
    found.change_catalog(lambda catalog: activate(add_version(catalog, "digest", 0), 1))
    yield found
    found.close()


def at(offset: int, key: tuple[str, ...] = ID) -> Bookmark:
    return Bookmark(Position({("t", 0): offset}), key=key, applied=offset)


def batch(rows: dict[Key, Row], offset: int = 0, columns: tuple[str, ...] = ID) -> Batch:
    size = len(rows)
    return Batch(columns, list(rows), list(rows.values()), list(range(offset, offset + size)), None, [1_000] * size)


def gone(*keys: Key, offset: int = 0, columns: tuple[str, ...] = ID) -> Batch:
    return Batch(columns, list(keys), [], list(range(offset, offset + len(keys))), None, [2_000] * len(keys))


def write(writer: Writer, offset: int, rows: dict[Key, Row], deleted: tuple[Key, ...] = (), **more: Any) -> None:
    """One commit: the rows and then the deletions, whose offsets end before `offset`."""
    key = more.pop("columns", ID)
    first = offset - len(rows) - len(deleted)
    writer.begin()
    writer.delete(gone(*deleted, offset=first + len(rows), columns=key))
    writer.upsert(batch(rows, first, key))
    writer.commit(at(offset, key))


@contextmanager
def snapshot(store: Store, version: int | None = None) -> Iterator[Snapshot]:
    reader = store.reader(version)
    try:
        with reader.snapshot() as found:
            yield found
    finally:
        reader.close()


def rows_of(store: Store, version: int | None = None) -> list[Row]:
    """All rows without the columns that are null, in the order of their keys."""
    with snapshot(store, version) as found:
        rows = [{name: value for name, value in row.items() if value is not None} for row in found.scan()]
        assert found.count() == len(rows)
    return sorted(rows, key=lambda row: str(row.get("id", row.get("a"))))


def test_a_view_without_rows_reads_as_empty(store: Store) -> None:
    with snapshot(store) as found:
        assert (list(found.scan()), found.count(), found.get("1")) == ([], 0, None)
        assert found.bookmark.position == Position()
    writer = store.writer(1)
    with snapshot(store) as found:
        assert (list(found.scan()), found.count(), found.get("1")) == ([], 0, None)
    writer.close()


def test_committed_rows_are_read_with_the_position_they_belong_to(store: Store) -> None:
    writer = store.writer(1)
    write(writer, 2, {1: {"id": 1, "name": "ada"}, 2: {"id": 2, "name": "bob"}})
    with snapshot(store) as found:
        assert found.bookmark.position == Position({("t", 0): 2})
        assert found.get(1) == {"id": 1, "name": "ada"}
        assert found.get([2]) == found.get({"id": 2}) == {"id": 2, "name": "bob"}
        assert found.get(3) is None
    assert writer.bookmark().position == Position({("t", 0): 2})
    writer.close()


def test_a_row_replaces_the_one_before_whole(store: Store) -> None:
    writer = store.writer(1)
    write(writer, 1, {1: {"id": 1, "name": "ada", "city": "Paris"}})
    write(writer, 2, {1: {"id": 1, "name": "lovelace"}})
    assert rows_of(store) == [{"id": 1, "name": "lovelace"}]
    writer.close()


def test_deleted_rows_are_gone_and_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    writer = store.writer(1)
    write(writer, 1, {}, deleted=(9,))
    write(writer, 3, {1: {"id": 1}, 2: {"id": 2}})
    write(writer, 5, {}, deleted=(1, 7))
    assert rows_of(store) == [{"id": 2}]
    write(writer, 6, {1: {"id": 1, "back": True}})
    assert rows_of(store) == [{"id": 1, "back": True}, {"id": 2}]
    writer.close()


def test_a_key_spelt_as_text_finds_a_number(store: Store) -> None:
    writer = store.writer(1)
    write(writer, 2, {1: {"id": 1}, 2: {"id": 2}})
    with snapshot(store) as found:
        assert found.get("1") == {"id": 1}
    write(writer, 3, {}, deleted=("1",))
    assert rows_of(store) == [{"id": 2}]
    writer.close()


def test_keys_of_several_columns(store: Store) -> None:
    writer, key = store.writer(1), ("a", "b")
    write(writer, 2, {("x", 1): {"a": "x", "b": 1, "n": 1}, ("x", 2): {"a": "x", "b": 2, "n": 2}}, columns=key)
    write(writer, 4, {("x", 1): {"a": "x", "b": 1, "n": 3}}, (("x", 2),), columns=key)
    with snapshot(store) as found:
        assert found.get(("x", 1)) == found.get({"b": 1, "a": "x"}) == {"a": "x", "b": 1, "n": 3}
        assert found.get(["x", 2]) is None
        assert found.count() == 1
    writer.close()


def test_values_of_every_json_kind_come_back_as_they_were(store: Store, kind: Kind) -> None:
    row = {
        "id": "k",
        "yes": True,
        "no": False,
        "whole": -(2**53),
        "real": 1.5,
        "text": "a\tb\n\\c 'd\" ü 漢 🌊",
        "empty": "",
        "list": [1, "two", None, {"three": 3}] if kind.mixed_lists else ["one", "two"],
        "object": {"a": {"b": [True]}},
    }
    writer = store.writer(1)
    write(writer, 1, {"k": row})
    assert rows_of(store) == [row]
    writer.close()


def test_columns_appear_and_widen_as_rows_bring_them(store: Store) -> None:
    writer = store.writer(1)
    write(writer, 2, {1: {"id": 1, "n": 1}, 2: {"id": 2, "n": 2, "added": "a"}})
    write(writer, 4, {3: {"id": 3, "n": 2.5, "later": True}, 4: {"id": 4}})
    assert rows_of(store) == [
        {"id": 1, "n": 1},
        {"id": 2, "n": 2, "added": "a"},
        {"id": 3, "n": 2.5, "later": True},
        {"id": 4},
    ]
    writer.close()


def test_what_is_not_committed_is_never_there(store: Store, kind: Kind) -> None:
    if not kind.atomic:
        pytest.skip(f"{kind.name} has no transactions: what was sent is there before its bookmark")
    writer = store.writer(1)
    write(writer, 1, {1: {"id": 1}})
    writer.begin()
    writer.upsert(batch({2: {"id": 2, "extra": 1}}, 1))
    writer.delete(gone(1, offset=2))
    writer.abort()
    assert rows_of(store) == [{"id": 1}]
    writer.begin()
    writer.upsert(batch({3: {"id": 3}}, 1))
    writer.close()
    again = store.writer(1)
    assert again.bookmark() == at(1)
    write(again, 2, {4: {"id": 4}})
    assert rows_of(store) == [{"id": 1}, {"id": 4}]
    again.close()


def test_a_batch_applied_twice_changes_nothing(store: Store) -> None:
    first, second = {1: {"id": 1, "n": 1}, 2: {"id": 2}}, {1: {"id": 1, "n": 2}}
    writer = store.writer(1)
    write(writer, 2, first)
    write(writer, 4, second, (2,))
    write(writer, 4, second, (2,))
    assert rows_of(store) == [{"id": 1, "n": 2}]
    writer.close()


def test_an_older_writer_cannot_write_after_a_newer_one_has_started(store: Store) -> None:
    older = store.writer(1)
    write(older, 1, {1: {"id": 1, "by": "older"}})
    newer = store.writer(1)
    assert newer.epoch > older.epoch
    with pytest.raises(Fenced):
        write(older, 2, {1: {"id": 1, "by": "zombie"}})
    older.close()
    with pytest.raises(Fenced):
        store.writer(1, older.epoch)
    write(newer, 2, {1: {"id": 1, "by": "newer"}})
    assert rows_of(store) == [{"id": 1, "by": "newer"}]
    newer.close()


def test_a_writer_that_lost_its_connection_goes_on_with_its_epoch(store: Store) -> None:
    writer = store.writer(1)
    write(writer, 1, {1: {"id": 1}})
    writer.close()
    again = store.writer(1, writer.epoch)
    assert (again.epoch, again.bookmark()) == (writer.epoch, at(1))
    write(again, 2, {2: {"id": 2}})
    again.close()
    assert rows_of(store) == [{"id": 1}, {"id": 2}]


def test_a_snapshot_does_not_move(store: Store, kind: Kind) -> None:
    if not kind.stable_snapshots:
        pytest.skip(f"{kind.name} reads each row as it is now; its module says so")
    writer = store.writer(1)
    write(writer, 1, {1: {"id": 1, "n": 1}})
    with snapshot(store) as before:
        write(writer, 3, {1: {"id": 1, "n": 2}, 2: {"id": 2}})
        assert (before.get(1), before.count()) == ({"id": 1, "n": 1}, 1)
        assert before.bookmark.position == Position({("t", 0): 1})
    with snapshot(store) as after:
        assert (after.get(1), after.count()) == ({"id": 1, "n": 2}, 2)
    writer.close()


def test_versions_live_beside_each_other_until_one_is_dropped(store: Store) -> None:
    first, second = store.writer(1), store.writer(2)
    write(first, 1, {1: {"id": 1, "of": "first"}})
    store.change_catalog(lambda catalog: add_version(catalog, "other", 0))
    write(second, 1, {1: {"id": 1, "of": "second"}})
    reader = store.reader()
    with reader.snapshot() as found:
        assert (found.version, found.get(1)) == (1, {"id": 1, "of": "first"})
    store.change_catalog(lambda catalog: activate(catalog, 2))
    with reader.snapshot() as found:
        assert (found.version, found.get(1)) == (2, {"id": 1, "of": "second"})
    assert rows_of(store, 1) == [{"id": 1, "of": "first"}]
    reader.close()
    first.close()
    store.change_catalog(lambda catalog: forget(catalog, 1))
    store.drop(1)
    assert rows_of(store) == [{"id": 1, "of": "second"}]
    assert list(store.catalog().versions) == [2]
    second.close()


def test_a_dropped_view_leaves_nothing(store: Store) -> None:
    writer = store.writer(1)
    write(writer, 1, {1: {"id": 1}})
    writer.close()
    store.change_catalog(lambda catalog: forget(catalog, 1))
    store.drop(1)
    assert store.catalog().versions == {}
    store.change_catalog(lambda catalog: activate(add_version(catalog, "anew", 0), 1))
    assert rows_of(store) == []


@pytest.mark.parametrize("seed", range(3))
def test_the_store_equals_a_fold_of_random_batches(store: Store, seed: int) -> None:
    chance, model, writer, offset = random.Random(seed), dict[int, Row](), store.writer(1), 0
    for _ in range(8):
        keys = chance.sample(range(12), chance.randint(1, 8))
        split = chance.randint(0, len(keys))
        rows = {k: {"id": k, "n": chance.random(), "s": uuid.uuid4().hex} for k in keys[:split]}
        deleted = tuple(keys[split:])
        offset += len(keys)
        write(writer, offset, dict(rows), deleted)
        model.update(rows)
        for key in deleted:
            model.pop(key, None)
        assert rows_of(store) == sorted(model.values(), key=lambda row: str(row["id"]))
    writer.close()
