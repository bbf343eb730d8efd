"""What each kind of change becomes in the log: Debezium's contract."""

from __future__ import annotations

import base64
import json

import pytest
from tests.capture.support import Capturing, Database


@pytest.fixture
def people(database: Database) -> Database:
    database.run("CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL DEFAULT 'nobody', age int)")
    return database


def test_an_insert_has_the_whole_envelope(people: Database, capturing: Capturing) -> None:
    capturing.start()
    people.run("INSERT INTO people VALUES (1, 'Ada', 36)")
    (event,) = capturing.until("people", 1)
    value = event.value
    assert event.key == {"id": 1}
    assert value["before"] is None
    assert value["after"] == {"id": 1, "name": "Ada", "age": 36}
    assert value["op"] == "c"
    assert value["transaction"] is None
    assert set(value) == {"before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"}
    assert value["ts_ns"] // 1000 == value["ts_us"]
    assert value["ts_us"] // 1000 == value["ts_ms"]


def test_the_source_block_names_the_transaction(people: Database, capturing: Capturing) -> None:
    capturing.start()
    with people.connection.transaction():
        people.run("INSERT INTO people VALUES (1, 'Ada', 36)")
        ((xid,),) = people.rows("SELECT pg_current_xact_id()::text::bigint")
    people.run("INSERT INTO people VALUES (2, 'Bob', 1)")
    first, second = capturing.until("people", 2)
    source = first.value["source"]
    names = "version connector name ts_ms snapshot db sequence ts_us ts_ns schema table txId lsn xmin origin origin_lsn"
    assert " ".join(source) == names
    assert source["connector"] == "postgresql"
    assert source["name"] == capturing.name
    assert (source["db"], source["schema"], source["table"]) == (people.name, "public", "people")
    assert source["txId"] == xid
    assert source["snapshot"] == "false"
    assert isinstance(source["lsn"], int)
    last_commit, lsn = json.loads(second.value["source"]["sequence"])
    assert source["lsn"] < int(last_commit) < int(lsn) == second.value["source"]["lsn"]


def test_an_update_without_a_full_replica_identity_has_no_before(people: Database, capturing: Capturing) -> None:
    people.run("INSERT INTO people VALUES (1, 'Ada', 36)")
    capturing.start()
    people.run("UPDATE people SET age = 37")
    read, update = capturing.until("people", 2)
    assert (read.op, read.value["source"]["snapshot"]) == ("r", "true")
    assert (update.op, update.key, update.before) == ("u", {"id": 1}, None)
    assert update.after == {"id": 1, "name": "Ada", "age": 37}


def test_an_update_with_a_full_replica_identity_has_both_rows(people: Database, capturing: Capturing) -> None:
    people.run("ALTER TABLE people REPLICA IDENTITY FULL", "INSERT INTO people VALUES (1, 'Ada', 36)")
    capturing.start()
    people.run("UPDATE people SET age = 37")
    _, update = capturing.until("people", 2)
    assert update.before == {"id": 1, "name": "Ada", "age": 36}
    assert update.after == {"id": 1, "name": "Ada", "age": 37}


def test_a_delete_is_followed_by_a_tombstone(people: Database, capturing: Capturing) -> None:
    people.run("INSERT INTO people VALUES (1, 'Ada', 36)")
    capturing.start()
    people.run("DELETE FROM people")
    _, delete, tombstone = capturing.until("people", 3)
    assert (delete.op, delete.key, delete.after) == ("d", {"id": 1}, None)
    assert (tombstone.op, tombstone.key) == ("tombstone", {"id": 1})


def test_a_delete_fills_in_what_the_database_did_not_send(people: Database, capturing: Capturing) -> None:
    """Nullable columns are null, others have their default or an empty value."""
    people.run("ALTER TABLE people ADD height float8 NOT NULL DEFAULT 0, ADD born date NOT NULL DEFAULT now()")
    people.run("INSERT INTO people VALUES (1, 'Ada', 36, 1.6, '1815-12-10')")
    capturing.start()
    people.run("DELETE FROM people")
    _, delete, _ = capturing.until("people", 3)
    assert delete.before == {"id": 1, "name": "nobody", "age": None, "height": 0, "born": 0}


def test_a_delete_with_a_full_replica_identity_has_the_row(people: Database, capturing: Capturing) -> None:
    people.run("ALTER TABLE people REPLICA IDENTITY FULL", "INSERT INTO people VALUES (1, 'Ada', 36)")
    capturing.start()
    people.run("DELETE FROM people")
    assert capturing.until("people", 3)[1].before == {"id": 1, "name": "Ada", "age": 36}


def test_tombstones_can_be_left_out(people: Database, capturing: Capturing) -> None:
    people.run("INSERT INTO people VALUES (1, 'Ada', 36)")
    capturing.start(tombstones=False)
    people.run("DELETE FROM people", "INSERT INTO people VALUES (2, 'Bob', 1)")
    assert [e.op for e in capturing.until("people", 3)] == ["r", "d", "c"]


def test_a_changed_key_is_a_delete_and_a_create_that_name_each_other(people: Database, capturing: Capturing) -> None:
    people.run("INSERT INTO people VALUES (1, 'Ada', 36)")
    capturing.start()
    people.run("UPDATE people SET id = 7")
    _, delete, tombstone, create = capturing.until("people", 4)
    assert (delete.op, delete.key, delete.headers) == ("d", {"id": 1}, {"__debezium.newkey": b'{"id":7}'})
    assert (tombstone.op, tombstone.key) == ("tombstone", {"id": 1})
    assert (create.op, create.key, create.headers) == ("c", {"id": 7}, {"__debezium.oldkey": b'{"id":1}'})
    assert create.after == {"id": 7, "name": "Ada", "age": 36}


def test_a_truncate_reaches_every_partition(people: Database, capturing: Capturing) -> None:
    people.run("INSERT INTO people SELECT i, 'x', i FROM generate_series(1, 20) i")
    capturing.start(partitions=3)
    people.run("TRUNCATE people")
    truncates = [e for e in capturing.until("people", 23) if e.op == "t"]
    assert sorted(e.partition for e in truncates) == [0, 1, 2]
    assert all(e.before is None and e.after is None for e in truncates)


def test_truncates_can_be_left_out(people: Database, capturing: Capturing) -> None:
    capturing.start(truncates=False)
    people.run("INSERT INTO people VALUES (1)", "TRUNCATE people", "INSERT INTO people VALUES (2)")
    assert [e.op for e in capturing.until("people", 2)] == ["c", "c"]


def test_several_tables_truncated_at_once(people: Database, capturing: Capturing) -> None:
    people.run("CREATE TABLE pets (id int PRIMARY KEY, owner int REFERENCES people)")
    people.run("INSERT INTO people VALUES (1)", "INSERT INTO pets VALUES (1, 1)")
    capturing.start()
    people.run("TRUNCATE people CASCADE")
    assert [e.op for e in capturing.until("people", 2)] == ["r", "t"]
    assert [e.op for e in capturing.until("pets", 2)] == ["r", "t"]


def test_a_composite_key_has_its_columns_in_the_tables_order(database: Database, capturing: Capturing) -> None:
    database.run("CREATE TABLE places (y int, x text, v int, PRIMARY KEY (x, y))")
    capturing.start()
    database.run("INSERT INTO places VALUES (1, 'a', 5)", "UPDATE places SET v = 6", "DELETE FROM places")
    assert [e.key for e in capturing.until("places", 4)] == [{"y": 1, "x": "a"}] * 4


def test_a_table_without_a_key_has_records_without_keys(database: Database, capturing: Capturing) -> None:
    database.run("CREATE TABLE notes (text text)", "ALTER TABLE notes REPLICA IDENTITY FULL")
    database.run("INSERT INTO notes VALUES ('old')")
    capturing.start()
    database.run("INSERT INTO notes VALUES ('new')", "UPDATE notes SET text = 'newer' WHERE text = 'new'")
    database.run("DELETE FROM notes WHERE text = 'old'")
    found = capturing.until("notes", 4)
    assert [(e.op, e.key) for e in found] == [("r", None), ("c", None), ("u", None), ("d", None)]
    assert found[2].before == {"text": "new"}


def test_a_table_whose_updates_would_fail_is_refused(database: Database, capturing: Capturing) -> None:
    """A published table without an identity makes the user's own updates fail."""
    from headwater.errors import SettingError

    database.run("CREATE TABLE bare (x int)")
    running = capturing.start(wait=False)
    with pytest.raises(SettingError, match=r"public\.bare.*REPLICA IDENTITY FULL"):
        running.wait_for_snapshot()
    database.run("INSERT INTO bare VALUES (1)", "UPDATE bare SET x = 2")


def test_key_columns_can_be_chosen(database: Database, capturing: Capturing) -> None:
    database.run("CREATE TABLE logins (who text, at int)", "ALTER TABLE logins REPLICA IDENTITY FULL")
    capturing.start(key_columns={"public.logins": ["who"]})
    database.run("INSERT INTO logins VALUES ('Ada', 1)", "UPDATE logins SET at = 2")
    assert [(e.op, e.key) for e in capturing.until("logins", 2)] == [("c", {"who": "Ada"}), ("u", {"who": "Ada"})]


def test_a_unique_index_may_be_the_identity(database: Database, capturing: Capturing) -> None:
    database.run("CREATE TABLE rows (id int NOT NULL UNIQUE, v int)")
    database.run("ALTER TABLE rows REPLICA IDENTITY USING INDEX rows_id_key", "INSERT INTO rows VALUES (1, 1)")
    capturing.start()
    database.run("UPDATE rows SET v = 2", "UPDATE rows SET id = 3", "DELETE FROM rows")
    assert [e.op for e in capturing.until("rows", 7)] == ["r", "u", "d", "tombstone", "c", "d", "tombstone"]


def test_a_partitioned_table_is_one_table(database: Database, capturing: Capturing) -> None:
    database.run("CREATE TABLE days (day int PRIMARY KEY, v int) PARTITION BY RANGE (day)")
    database.run("CREATE TABLE days_a PARTITION OF days FOR VALUES FROM (0) TO (10)")
    database.run("CREATE TABLE days_b PARTITION OF days FOR VALUES FROM (10) TO (20)", "INSERT INTO days VALUES (1, 1)")
    capturing.start()
    database.run("INSERT INTO days VALUES (11, 1)", "UPDATE days SET v = 2 WHERE day = 1")
    assert [(e.op, e.key["day"]) for e in capturing.until("days", 3)] == [("r", 1), ("c", 11), ("u", 1)]


def test_generated_columns_are_left_to_the_database(database: Database, capturing: Capturing) -> None:
    database.run("CREATE TABLE boxes (id int PRIMARY KEY, w int, twice int GENERATED ALWAYS AS (w * 2) STORED)")
    database.run("INSERT INTO boxes VALUES (1, 5)")
    capturing.start()
    database.run("INSERT INTO boxes VALUES (2, 6)")
    assert [e.after for e in capturing.until("boxes", 2)] == [{"id": 1, "w": 5}, {"id": 2, "w": 6}]


def test_a_rolled_back_transaction_leaves_nothing(people: Database, capturing: Capturing) -> None:
    capturing.start()
    people.run("BEGIN", "INSERT INTO people VALUES (1)", "ROLLBACK", "INSERT INTO people VALUES (2)")
    assert [e.key for e in capturing.until("people", 1)] == [{"id": 2}]


def test_a_rolled_back_savepoint_leaves_nothing(people: Database, capturing: Capturing) -> None:
    capturing.start()
    people.together(
        "INSERT INTO people VALUES (1)",
        "SAVEPOINT a",
        "INSERT INTO people VALUES (2)",
        "ROLLBACK TO a",
        "INSERT INTO people VALUES (3)",
    )
    assert [e.key["id"] for e in capturing.until("people", 2)] == [1, 3]


def test_logical_messages_are_delivered(people: Database, capturing: Capturing) -> None:
    capturing.start()
    people.run("SELECT pg_logical_emit_message(true, 'app', 'in a transaction')")
    people.run("SELECT pg_logical_emit_message(false, 'app', '\\x00ff'::bytea)", "INSERT INTO people VALUES (1)")
    inside, outside = capturing.until(".message", 2)
    assert inside.key == outside.key == {"prefix": "app"}
    assert [e.op for e in (inside, outside)] == ["m", "m"]
    assert base64.b64decode(inside.value["message"]["content"]) == b"in a transaction"
    assert base64.b64decode(outside.value["message"]["content"]) == b"\x00\xff"


def test_the_transaction_topic_counts_events_in_total_order(people: Database, capturing: Capturing) -> None:
    people.run("CREATE TABLE pets (id int PRIMARY KEY)")
    capturing.start(transaction_topic=True)
    people.together("INSERT INTO people VALUES (1)", "INSERT INTO pets VALUES (5)", "INSERT INTO people VALUES (2)")
    begin, end = capturing.until(".transaction", 2)
    identity = begin.value["id"]
    assert begin.value["status"] == "BEGIN"
    assert begin.key == {"id": identity}
    assert end.value["status"] == "END"
    assert (end.value["id"], end.value["event_count"]) == (identity, 3)
    assert end.value["data_collections"] == [
        {"data_collection": "public.people", "event_count": 2},
        {"data_collection": "public.pets", "event_count": 1},
    ]
    orders = [e.value["transaction"] for e in capturing.until("people", 2)]
    assert orders == [
        {"id": identity, "total_order": 1, "data_collection_order": 1},
        {"id": identity, "total_order": 3, "data_collection_order": 2},
    ]
    assert capturing.until("pets", 1)[0].value["transaction"]["total_order"] == 2
    xid, lsn = identity.split(":")
    assert int(xid) == capturing.until("people", 2)[0].value["source"]["txId"]
    assert int(lsn) > 0
