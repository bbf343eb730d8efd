"""Which tables and columns are captured, and in which form they come out."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from tests.capture.support import Capturing, Database

from headwater.capture import Hash, Mask, Truncate
from headwater.capture.settings import Settings, matches
from headwater.client import Connection
from headwater.errors import SettingError

# beyond what compression keeps in the row itself
LARGE = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 400))"


@pytest.mark.parametrize(
    ("name", "patterns", "expected"),
    [
        ("public.t", ["public.*"], True),
        ("public.t", ["t"], True),
        ("other.t", ["t"], True),
        ("other.t", ["public.*"], False),
        ("public.t1", ["public.t?"], True),
        ("public.T", ["public.t"], False),
        ("public.t", [], False),
    ],
)
def test_patterns_match_tables(name: str, patterns: list[str], expected: bool) -> None:
    assert matches(name, patterns) is expected


def test_a_name_that_cannot_be_in_a_topic_is_refused() -> None:
    with pytest.raises(SettingError, match="use letters"):
        Settings(name="a b", connection=Connection("x"))


def test_a_key_for_hashing_is_not_shown() -> None:
    assert "secret" not in repr(Settings(name="a", connection=Connection("x"), column_rules={"*": Hash("secret")}))


@pytest.fixture
def users(database: Database) -> Database:
    database.run("CREATE TABLE users (id int PRIMARY KEY, mail text, name text, age int NOT NULL DEFAULT 0)")
    database.run("INSERT INTO users VALUES (1, 'a@b.c', 'Ada', 36)")
    return database


def test_tables_left_out_have_no_topic(users: Database, capturing: Capturing) -> None:
    users.run("CREATE TABLE secrets (id int PRIMARY KEY)", "CREATE SCHEMA internal")
    users.run("CREATE TABLE internal.users (id int PRIMARY KEY)")
    capturing.start(tables=["public.*"], exclude_tables=["*.secrets"])
    users.run("INSERT INTO secrets VALUES (1)", "INSERT INTO internal.users VALUES (1)", "DELETE FROM users")
    capturing.until("users", 3)
    assert capturing.events("secrets") == []
    assert capturing.events("internal.users") == []


def test_columns_left_out_reach_no_record(users: Database, capturing: Capturing) -> None:
    users.run("ALTER TABLE users REPLICA IDENTITY FULL")
    capturing.start(exclude_columns=["public.users.mail"])
    users.run("UPDATE users SET mail = 'x@y.z'", "DELETE FROM users")
    read, update, delete, _ = capturing.until("users", 4)
    row = {"id": 1, "name": "Ada", "age": 36}
    assert read.after == update.before == update.after == delete.before == row


def test_a_key_column_cannot_be_left_out(users: Database, capturing: Capturing) -> None:
    capturing.start(exclude_columns=["*.id", "*.name"])
    (read,) = capturing.until("users", 1)
    assert (read.key, read.after) == ({"id": 1}, {"id": 1, "mail": "a@b.c", "age": 36})


def test_columns_are_masked_hashed_and_truncated(users: Database, capturing: Capturing) -> None:
    capturing.start(column_rules={"*.mail": Hash("k"), "public.users.name": Truncate(2), "*.age": Mask("?")})
    users.run("INSERT INTO users VALUES (2, NULL, 'Bob', 7)")
    read, insert = capturing.until("users", 2)
    hashed = hmac.new(b"k", b"a@b.c", hashlib.sha256).hexdigest()
    assert read.after == {"id": 1, "mail": hashed, "name": "Ad", "age": "?"}
    assert insert.after == {"id": 2, "mail": None, "name": "Bo", "age": "?"}


def test_a_masked_value_is_not_in_the_default_of_the_schema_topic(users: Database, capturing: Capturing) -> None:
    users.run("ALTER TABLE users ALTER name SET DEFAULT 'a secret'")
    capturing.start(column_rules={"*.name": Mask()})
    (version,) = capturing.until(".schema-changes", 1)
    assert "a secret" not in json.dumps(version.value)


def test_row_filters_hold_for_the_snapshot_and_the_stream(users: Database, capturing: Capturing) -> None:
    """PostgreSQL turns an update into or out of the filter into an insert or a delete."""
    users.run("INSERT INTO users VALUES (2, 'b', 'Bob', 7)", "ALTER TABLE users REPLICA IDENTITY FULL")
    capturing.start(row_filters={"public.users": "age > 10"})
    users.run("INSERT INTO users VALUES (3, 'c', 'Carl', 8)", "UPDATE users SET age = 11 WHERE id = 2")
    users.run("UPDATE users SET age = 1 WHERE id = 1")
    found = capturing.until("users", 4)
    assert [(e.op, e.key["id"]) for e in found] == [("r", 1), ("c", 2), ("d", 1), ("tombstone", 1)]


def fields(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return next(field for field in schema["fields"] if field["field"] == name)


def test_with_schema_the_record_describes_itself(users: Database, capturing: Capturing) -> None:
    users.run("ALTER TABLE users ADD price numeric(8,2), ADD at timestamptz")
    capturing.start(form="debezium-schema")
    users.run("UPDATE users SET price = 1.5")
    _, update = capturing.until("users", 2)
    schema = update.value["schema"]
    base = capturing.topic("users")
    assert (schema["type"], schema["name"], schema["version"], schema["optional"]) == (
        "struct",
        f"{base}.Envelope",
        2,
        False,
    )
    after = fields(schema, "after")
    assert (after["name"], after["optional"]) == (f"{base}.Value", True)
    assert [f["field"] for f in after["fields"]] == ["id", "mail", "name", "age", "price", "at"]
    assert fields(after, "id") == {"type": "int32", "optional": False, "field": "id"}
    assert fields(after, "price") == {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "8"},
        "optional": True,
        "field": "price",
    }
    assert fields(after, "at")["name"] == "io.debezium.time.ZonedTimestamp"
    assert fields(schema, "source")["name"] == "io.debezium.connector.postgresql.Source"
    assert update.key["schema"] == {
        "type": "struct",
        "fields": [{"type": "int32", "optional": False, "field": "id"}],
        "optional": False,
        "name": f"{base}.Key",
    }
    assert update.key["payload"] == {"id": 1}
    assert update.value["payload"]["op"] == "u"


def test_a_flat_record_is_the_row(users: Database, capturing: Capturing) -> None:
    users.run("CREATE TABLE pairs (b int, a int, PRIMARY KEY (b, a))")
    capturing.start(form="flat")
    users.run("UPDATE users SET age = 37", "DELETE FROM users", "INSERT INTO pairs VALUES (1, 2)")
    found = capturing.until("users", 3)
    assert [e.key for e in found] == [{"id": 1}] * 3
    assert [e.value for e in found] == [
        {"id": 1, "mail": "a@b.c", "name": "Ada", "age": 36},
        {"id": 1, "mail": "a@b.c", "name": "Ada", "age": 37},
        None,
    ]
    (pair,) = capturing.until("pairs", 1)
    assert list(pair.key) == ["a", "b"]  # sorted, as all our changelogs have them


def test_a_large_value_that_did_not_change_has_debeziums_placeholder(users: Database, capturing: Capturing) -> None:
    users.run("ALTER TABLE users ADD bio text, ADD photo bytea, ADD tags text[], ADD ids int[]")
    users.run(f"UPDATE users SET bio = {LARGE}, photo = {LARGE}::bytea, tags = array[{LARGE}]")
    users.run("UPDATE users SET ids = (SELECT array_agg((random() * 1e9)::int) FROM generate_series(1, 4000))")
    capturing.start()
    users.run("UPDATE users SET age = 37")
    _, update = capturing.until("users", 2)
    text = "__debezium_unavailable_value"
    assert update.after["bio"] == text
    assert update.after["tags"] == [text]
    assert update.after["ids"] == list(text.encode())
    assert base64.b64decode(update.after["photo"]) == text.encode()


@pytest.mark.parametrize("form", ["debezium", "flat"])
def test_a_large_value_that_did_not_change_is_filled_in_where_asked(
    users: Database, capturing: Capturing, form: str
) -> None:
    users.run("ALTER TABLE users ADD bio text", f"UPDATE users SET bio = {LARGE}")
    ((bio,),) = users.rows("SELECT bio FROM users")
    capturing.start(unavailable="reselect", form=form)
    users.run("UPDATE users SET age = 37")
    _, update = capturing.until("users", 2)
    after = update.value if form == "flat" else update.after
    assert (after["age"], after["bio"]) == (37, bio)


def test_with_a_full_replica_identity_large_values_are_always_there(users: Database, capturing: Capturing) -> None:
    users.run("ALTER TABLE users ADD bio text", f"UPDATE users SET bio = {LARGE}")
    users.run("ALTER TABLE users REPLICA IDENTITY FULL")
    ((bio,),) = users.rows("SELECT bio FROM users")
    capturing.start()
    users.run("UPDATE users SET age = 37")
    _, update = capturing.until("users", 2)
    assert update.after["bio"] == bio


def test_names_that_need_quoting(database: Database, capturing: Capturing) -> None:
    database.run(
        'CREATE SCHEMA "My Schema"', 'CREATE TABLE "My Schema"."T %s ""x""" ("Id %" int PRIMARY KEY, "ü\\" text)'
    )
    database.run('INSERT INTO "My Schema"."T %s ""x""" VALUES (1, \'a\')')
    capturing.start(tables=["My Schema.*"])
    database.run('INSERT INTO "My Schema"."T %s ""x""" VALUES (2, \'b%\')')
    read, insert = capturing.until("My_Schema.T__s__x_", 2)
    assert (read.key, read.after) == ({"Id %": 1}, {"Id %": 1, "ü\\": "a"})
    assert insert.after == {"Id %": 2, "ü\\": "b%"}
    assert insert.value["source"]["table"] == 'T %s "x"'


def test_an_unknown_setting_is_refused(database: Database, capturing: Capturing) -> None:
    with pytest.raises((SettingError, TypeError), match="colour"):
        capturing.start(colour="red")
