"""Schema changes flow: each row is encoded under the version of the table that it was written under."""

from __future__ import annotations

import pytest
from tests.capture.support import Capturing, Database


@pytest.fixture
def things(database: Database) -> Database:
    database.run("CREATE TABLE things (id int PRIMARY KEY, a text)")
    return database


def test_columns_added_renamed_retyped_and_dropped(things: Database, capturing: Capturing) -> None:
    capturing.start()
    things.run(
        "INSERT INTO things VALUES (1, 'x')",
        "ALTER TABLE things ADD b int DEFAULT 5",
        "INSERT INTO things VALUES (2, 'x')",
        "ALTER TABLE things RENAME b TO c",
        "INSERT INTO things VALUES (3, 'x', 6)",
        "ALTER TABLE things ALTER c TYPE text",
        "INSERT INTO things VALUES (4, 'x', '7')",
        "ALTER TABLE things DROP a",
        "INSERT INTO things VALUES (5, '8')",
    )
    assert [e.after for e in capturing.until("things", 5)] == [
        {"id": 1, "a": "x"},
        {"id": 2, "a": "x", "b": 5},
        {"id": 3, "a": "x", "c": 6},
        {"id": 4, "a": "x", "c": "7"},
        {"id": 5, "c": "8"},
    ]


def test_a_schema_change_inside_a_transaction(things: Database, capturing: Capturing) -> None:
    capturing.start()
    things.together(
        "INSERT INTO things VALUES (1, 'x')",
        "ALTER TABLE things ADD b int",
        "INSERT INTO things VALUES (2, 'x', 1)",
        "ALTER TABLE things DROP a",
        "INSERT INTO things VALUES (3, 2)",
    )
    assert [e.after for e in capturing.until("things", 3)] == [
        {"id": 1, "a": "x"},
        {"id": 2, "a": "x", "b": 1},
        {"id": 3, "b": 2},
    ]


def test_a_schema_change_that_is_rolled_back(things: Database, capturing: Capturing) -> None:
    capturing.start()
    things.together(
        "INSERT INTO things VALUES (1, 'x')",
        "SAVEPOINT s",
        "ALTER TABLE things ADD b int",
        "INSERT INTO things VALUES (2, 'x', 1)",
        "ROLLBACK TO s",
        "INSERT INTO things VALUES (3, 'y')",
    )
    assert [e.after for e in capturing.until("things", 2)] == [{"id": 1, "a": "x"}, {"id": 3, "a": "y"}]


def test_schema_changes_in_a_streamed_transaction_with_rolled_back_savepoints(
    things: Database, capturing: Capturing
) -> None:
    things.run(f"ALTER DATABASE \"{things.name}\" SET logical_decoding_work_mem = '64kB'")
    fill = "INSERT INTO things (id, a) SELECT i, repeat('x', 100) FROM generate_series({}, {}) i"
    capturing.start()
    things.together(
        fill.format(1, 2_000),
        "SAVEPOINT s",
        "ALTER TABLE things ADD b int DEFAULT 1",
        fill.format(2_001, 4_000),
        "ROLLBACK TO s",
        fill.format(4_001, 6_000),
        "ALTER TABLE things ADD c int DEFAULT 2",
        fill.format(6_001, 8_000),
    )
    things.run("INSERT INTO things VALUES (9000, 'last', 3)")
    found = capturing.until("things", 6_001)
    assert [e.key["id"] for e in found] == [*range(1, 2_001), *range(4_001, 8_001), 9_000]
    assert {tuple(e.after) for e in found[:4_000]} == {("id", "a")}
    assert {tuple(e.after) for e in found[4_000:]} == {("id", "a", "c")}


def test_schema_changes_while_the_capture_is_down(things: Database, capturing: Capturing) -> None:
    capturing.start()
    capturing.stop()
    things.run(
        "INSERT INTO things VALUES (1, 'x')",
        "ALTER TABLE things ADD b int",
        "INSERT INTO things VALUES (2, 'x', 1)",
        "ALTER TABLE things DROP a",
        "UPDATE things SET b = 3 WHERE id = 2",
    )
    capturing.start()
    assert [e.after for e in capturing.until("things", 3)] == [
        {"id": 1, "a": "x"},
        {"id": 2, "a": "x", "b": 1},
        {"id": 2, "b": 3},
    ]


def test_a_key_that_changes_while_the_capture_is_down(things: Database, capturing: Capturing) -> None:
    capturing.start()
    capturing.stop()
    things.run(
        "INSERT INTO things VALUES (1, 'x')",
        "ALTER TABLE things DROP CONSTRAINT things_pkey, ADD PRIMARY KEY (a)",
        "INSERT INTO things VALUES (2, 'y')",
        "DELETE FROM things WHERE id = 1",
    )
    capturing.start()
    assert [(e.op, e.key) for e in capturing.until("things", 4)] == [
        ("c", {"id": 1}),
        ("c", {"a": "y"}),
        ("d", {"a": "x"}),
        ("tombstone", {"a": "x"}),
    ]


def test_a_table_dropped_while_the_capture_is_down(things: Database, capturing: Capturing) -> None:
    things.run("CREATE TABLE other (id int PRIMARY KEY)")
    capturing.start()
    capturing.stop()
    things.run("INSERT INTO things VALUES (1, 'x')", "DROP TABLE things", "INSERT INTO other VALUES (1)")
    capturing.start()
    assert [(e.key, e.after) for e in capturing.until("things", 1)] == [({"id": 1}, {"id": 1, "a": "x"})]
    capturing.until("other", 1)


def test_a_table_renamed_goes_on_under_its_new_name(things: Database, capturing: Capturing) -> None:
    things.run("INSERT INTO things VALUES (1, 'x')")
    capturing.start()
    things.run("ALTER TABLE things RENAME TO stuff", "INSERT INTO stuff VALUES (2, 'y')")
    assert [e.key["id"] for e in capturing.until("stuff", 1)] == [2]


def test_every_version_is_in_the_schema_topic(things: Database, capturing: Capturing) -> None:
    things.run("INSERT INTO things VALUES (1, 'x')")
    capturing.start()
    things.run("ALTER TABLE things ADD b numeric(5,2) NOT NULL DEFAULT 1", "INSERT INTO things VALUES (2, 'x')")
    first, second = capturing.until(".schema-changes", 2)
    assert first.key == second.key == {"schema": "public", "table": "things"}
    assert [first.value["version"], second.value["version"]] == [1, 2]
    assert second.value["key"] == ["id"]
    assert second.value["columns"] == [
        {"name": "id", "type": "integer", "optional": False},
        {"name": "a", "type": "text", "optional": True},
        {"name": "b", "type": "numeric(5,2)", "optional": False, "default": "1"},
    ]
    capturing.stop()
    capturing.start()
    things.run("INSERT INTO things VALUES (3, 'x')")
    capturing.until("things", 3)
    capturing.until(".schema-changes", 2)


def test_a_table_created_later_is_captured_from_its_first_row(things: Database, capturing: Capturing) -> None:
    capturing.start()
    things.run("CREATE TABLE later (id int PRIMARY KEY)", "INSERT INTO later VALUES (1)")
    found = capturing.until("later", 1)
    assert [(e.op, e.key["id"]) for e in found] == [("r", 1)]
    things.run("INSERT INTO later VALUES (2)")
    assert [(e.op, e.key["id"]) for e in capturing.until("later", 2)] == [("r", 1), ("c", 2)]
