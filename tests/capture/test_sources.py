"""The contract of every source, whatever the database: what comes out, in which order, once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.capture.support import DEADLINE_S, Capturing, Database, File, events
from tests.capture.test_postgres_snapshot import Failing, rebuilt

from headwater.capture import Fenced, Hash, Mask
from headwater.testing import eventually

Any_ = Database | File


@pytest.fixture(params=["postgres", "sqlite"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any_]:
    if request.param == "postgres":
        yield request.getfixturevalue("database")
        return
    made = File(tmp_path / "shop.db")
    yield made
    made.connection.close()


@pytest.fixture
def following(source: Any_, bootstrap: str, unique: str) -> Iterator[Capturing]:
    where = source.dsn if isinstance(source, Database) else source.path
    with Capturing(where, bootstrap, f"c{unique}") as made:
        yield made


@pytest.fixture
def rows(source: Any_) -> Any_:
    source.run("CREATE TABLE rows (id INTEGER PRIMARY KEY, v INTEGER, text TEXT)")
    return source


def fill(count: int, first: int = 1) -> str:
    return f"INSERT INTO rows VALUES {', '.join(f'({i}, 0, NULL)' for i in range(first, first + count))}"


def test_inserts_updates_and_deletes(rows: Any_, following: Capturing) -> None:
    rows.run("INSERT INTO rows VALUES (1, 10, 'old')")
    following.start()
    rows.run(
        "INSERT INTO rows VALUES (2, 20, 'new')", "UPDATE rows SET v = 11 WHERE id = 1", "DELETE FROM rows WHERE id = 2"
    )
    found = following.until("rows", 5)
    assert [(e.op, e.key) for e in found] == [
        ("r", {"id": 1}),
        ("c", {"id": 2}),
        ("u", {"id": 1}),
        ("d", {"id": 2}),
        ("tombstone", {"id": 2}),
    ]
    assert [e.value and e.after for e in found] == [
        {"id": 1, "v": 10, "text": "old"},
        {"id": 2, "v": 20, "text": "new"},
        {"id": 1, "v": 11, "text": "old"},
        None,
        None,
    ]
    source = found[1].value["source"]
    assert (source["schema"], source["table"], source["snapshot"]) == (following.schema, "rows", "false")
    assert source["name"] == following.name


def test_a_changed_key_moves_the_row(rows: Any_, following: Capturing) -> None:
    rows.run("INSERT INTO rows VALUES (1, 10, 'x')")
    following.start()
    rows.run("UPDATE rows SET id = 5")
    _, delete, tombstone, create = following.until("rows", 4)
    assert (delete.op, delete.key, delete.headers) == ("d", {"id": 1}, {"__debezium.newkey": b'{"id":5}'})
    assert (tombstone.op, tombstone.key) == ("tombstone", {"id": 1})
    assert (create.op, create.key, create.headers) == ("c", {"id": 5}, {"__debezium.oldkey": b'{"id":1}'})


def test_what_is_rolled_back_is_not_there(rows: Any_, following: Capturing) -> None:
    following.start()
    rows.run("BEGIN", fill(3), "ROLLBACK")
    rows.run("BEGIN", fill(1, 10), "SAVEPOINT a", fill(1, 11), "ROLLBACK TO a", fill(1, 12), "COMMIT")
    assert [e.key["id"] for e in following.until("rows", 2)] == [10, 12]


def test_texts_of_every_kind_are_exact(rows: Any_, following: Capturing) -> None:
    text = 'tab\tnew line\n"quotes" \\ back % percent é 🐘'
    sql = text.replace("'", "''")
    rows.run(f"INSERT INTO rows VALUES (1, 0, '{sql}')")
    following.start()
    rows.run(f"INSERT INTO rows VALUES (2, 0, '{sql}')")
    assert [e.after["text"] for e in following.until("rows", 2)] == [text, text]


def test_a_snapshot_in_chunks_holds_every_row_once(rows: Any_, following: Capturing) -> None:
    rows.run(fill(50))
    following.start(chunk_rows=7)
    assert [e.key["id"] for e in following.until("rows", 50)] == [*range(1, 51)]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_snapshot_goes_on_where_it_was_interrupted(
    rows: Any_, following: Capturing, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    rows.run(fill(40))
    monkeypatch.setattr("headwater.capture.runner.COMMIT_RECORDS_MAX", 1)
    Failing(monkeypatch, at, after=after)
    following.start(chunk_rows=8)
    assert [e.key["id"] for e in following.until("rows", 40)] == [*range(1, 41)]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_changes_are_neither_lost_nor_doubled_by_a_failure(
    rows: Any_, following: Capturing, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    following.start()
    for i in range(1, 4):
        Failing(monkeypatch, 1, after=after)
        rows.run(fill(1, i))
        assert [e.key["id"] for e in following.until("rows", i)] == [*range(1, i + 1)]
        monkeypatch.undo()


def test_changes_while_chunks_are_read_win_over_the_chunks(rows: Any_, following: Capturing) -> None:
    rows.run(fill(1_000))
    stop = threading.Event()

    def change() -> None:
        connection = rows.connect()
        i = 0
        while not stop.is_set():
            i += 1
            connection.execute(f"UPDATE rows SET v = v + 1 WHERE id % 97 = {i % 97}")
            connection.execute(f"DELETE FROM rows WHERE id = {i * 13 % 1000}")
        connection.close()

    worker = threading.Thread(target=change)
    worker.start()
    try:
        following.start(chunk_rows=50)
    finally:
        stop.set()
        worker.join()
    expected = dict(rows.rows("SELECT id, v FROM rows"))
    eventually(lambda: rebuilt(following.events("rows")) == expected, deadline_s=DEADLINE_S)


def test_it_goes_on_where_it_was(rows: Any_, following: Capturing) -> None:
    for i in range(3):
        rows.run(fill(1, 2 * i + 1))
        following.start()
        rows.run(fill(1, 2 * i + 2))
        following.until("rows", 2 * i + 2)
        following.stop()
    assert [e.key["id"] for e in following.events("rows")] == [1, 2, 3, 4, 5, 6]


def test_the_newer_of_one_name_takes_over(rows: Any_, following: Capturing, bootstrap: str) -> None:
    first = following.start()
    with Capturing(following.source, bootstrap, following.name) as newer:
        newer.start()
        rows.run(fill(1))
        newer.until("rows", 1)
        with pytest.raises(Fenced):
            eventually(first.check, deadline_s=DEADLINE_S)


def test_columns_added_and_renamed(rows: Any_, following: Capturing) -> None:
    following.start()
    rows.run("INSERT INTO rows VALUES (1, 0, 'a')")
    following.until("rows", 1)
    rows.run("ALTER TABLE rows ADD extra INTEGER DEFAULT 7", "INSERT INTO rows (id, extra) VALUES (2, 8)")
    eventually(lambda: rebuild_all(following, "extra").get(2) == 8, deadline_s=DEADLINE_S)
    rows.run("ALTER TABLE rows RENAME COLUMN extra TO more")
    rows.run("UPDATE rows SET more = 9 WHERE id = 2")
    eventually(lambda: rebuild_all(following, "more").get(2) == 9, deadline_s=DEADLINE_S)


def rebuild_all(following: Capturing, column: str) -> dict[int, object]:
    return {e.key["id"]: e.after.get(column) for e in following.events("rows") if e.value is not None and e.after}


def test_schema_versions_are_in_a_topic(rows: Any_, following: Capturing) -> None:
    rows.run("INSERT INTO rows VALUES (1, 0, 'a')")
    following.start()
    rows.run("ALTER TABLE rows ADD extra INTEGER")
    rows.run("UPDATE rows SET v = 5")
    first, second = eventually(
        lambda: (found := following.events(".schema-changes"))[1:] and found, deadline_s=DEADLINE_S
    )
    assert [first.value["version"], second.value["version"]] == [1, 2]
    assert [c["name"] for c in second.value["columns"]] == ["id", "v", "text", "extra"]


def test_a_table_created_later_is_captured(rows: Any_, following: Capturing) -> None:
    following.start()
    rows.run("CREATE TABLE later (id INTEGER PRIMARY KEY, v INTEGER)", "INSERT INTO later VALUES (1, 1)")
    following.until("later", 1)
    rows.run("INSERT INTO later VALUES (2, 1)")
    assert [(e.op, e.key["id"]) for e in following.until("later", 2)] == [("r", 1), ("c", 2)]


def test_tables_and_columns_are_chosen_and_masked(rows: Any_, following: Capturing) -> None:
    rows.run("CREATE TABLE secrets (id INTEGER PRIMARY KEY)", "INSERT INTO rows VALUES (1, 5, 'a')")
    rules = {"*.rows.v": Mask(), "*.rows.text": Hash("k")}
    following.start(exclude_tables=["*.secrets"], column_rules=rules)
    rows.run("INSERT INTO secrets VALUES (1)", "UPDATE rows SET v = 6")
    found = following.until("rows", 2)
    assert {e.after["v"] for e in found} == {"****"}
    assert {len(e.after["text"]) for e in found} == {64}
    assert following.events("secrets") == []


def test_columns_left_out(rows: Any_, following: Capturing) -> None:
    following.start(exclude_columns=["*.rows.text"])
    rows.run("INSERT INTO rows VALUES (1, 5, 'a')")
    assert following.until("rows", 1)[0].after == {"id": 1, "v": 5}


def test_a_flat_record_is_the_row(rows: Any_, following: Capturing) -> None:
    following.start(form="flat")
    rows.run("INSERT INTO rows VALUES (1, 5, 'a')", "DELETE FROM rows")
    assert [(e.key, e.value) for e in following.until("rows", 2)] == [
        ({"id": 1}, {"id": 1, "v": 5, "text": "a"}),
        ({"id": 1}, None),
    ]


def test_with_schema_the_record_describes_itself(rows: Any_, following: Capturing) -> None:
    following.start(form="debezium-schema")
    rows.run("INSERT INTO rows VALUES (1, 5, 'a')")
    (event,) = following.until("rows", 1)
    assert event.value["payload"]["after"] == {"id": 1, "v": 5, "text": "a"}
    after = next(f for f in event.value["schema"]["fields"] if f["field"] == "after")
    assert [f["field"] for f in after["fields"]] == ["id", "v", "text"]
    assert event.key["payload"] == {"id": 1}


def test_the_outbox(source: Any_, following: Capturing, bootstrap: str, unique: str) -> None:
    source.run("CREATE TABLE outbox (id INTEGER PRIMARY KEY, topic TEXT, key TEXT, value TEXT, headers TEXT)")
    following.start(outbox_tables=["*.outbox"])
    for i in range(3):
        insert = f"INSERT INTO outbox VALUES ({i}, 'orders-{unique}', 'k', '{{\"n\":{i}}}', '{{\"by\":\"x\"}}')"
        source.together(insert, "DELETE FROM outbox")
    topic = f"orders-{unique}"
    found = eventually(lambda: len(events(bootstrap, topic)) == 3 and events(bootstrap, topic), deadline_s=DEADLINE_S)
    assert [e.value["n"] for e in found] == [0, 1, 2]
    assert found[0].headers == {"by": b"x"}


@pytest.mark.parametrize("form", ["debezium", "flat"])
def test_the_topic_is_the_table(rows: Any_, following: Capturing, form: str) -> None:
    rows.run(fill(200))
    running = following.start(form=form, chunk_rows=30)
    rows.run("UPDATE rows SET v = id WHERE id < 50", "DELETE FROM rows WHERE id > 150", "UPDATE rows SET id = -id")
    (verdict,) = running.verify()
    assert (verdict.equal, verdict.same) == (150, True)
