"""Signals: tables read again on demand, paused, stopped; through a table or a logical message."""

from __future__ import annotations

import json

import pytest
from tests.capture.support import DEADLINE_S, Capturing, Database

from headwater.testing import eventually


@pytest.fixture
def rows(database: Database) -> Database:
    database.run(
        "CREATE TABLE rows (id int PRIMARY KEY, v int)", "CREATE TABLE signals (id text, type text, data text)"
    )
    database.run(
        "ALTER TABLE signals REPLICA IDENTITY FULL", "INSERT INTO rows SELECT i, 0 FROM generate_series(1, 10) i"
    )
    return database


def message(database: Database, capturing: Capturing, kind: str, **data: object) -> None:
    text = json.dumps({"capture": capturing.name, "type": kind, "data": data})
    database.connection.execute("SELECT pg_logical_emit_message(true, 'headwater.signal', %s)", [text])


def insert_signal(database: Database, kind: str, **data: object) -> None:
    database.connection.execute("INSERT INTO signals VALUES ('x', %s, %s)", [kind, json.dumps(data)])


def test_a_table_is_read_again_when_the_signal_table_asks(rows: Database, capturing: Capturing) -> None:
    capturing.start(signal_table="public.signals", tables=["public.rows"])
    insert_signal(rows, "execute-snapshot", **{"data-collections": ["public.rows"], "type": "incremental"})
    found = capturing.until("rows", 20)
    assert [e.value["source"]["snapshot"] for e in found] == ["true"] * 10 + ["incremental"] * 10
    assert found[-1].value["source"]["txId"] is None
    assert capturing.events("signals") == []


def test_a_table_is_read_again_when_a_message_asks(rows: Database, capturing: Capturing) -> None:
    capturing.start(tables=["public.rows"], chunk_rows=3)
    message(rows, capturing, "execute-snapshot", **{"data-collections": ["public.rows"]})
    assert sorted(e.key["id"] for e in capturing.until("rows", 20)) == sorted([*range(1, 11)] * 2)
    message(rows, capturing, "execute-snapshot", **{"data-collections": ["public.rows"]})
    capturing.until("rows", 30)


def test_a_signal_for_another_capture_is_not_ours(rows: Database, capturing: Capturing) -> None:
    capturing.start(tables=["public.rows"])
    text = json.dumps({"capture": "other", "type": "execute-snapshot", "data": {"data-collections": ["public.rows"]}})
    rows.connection.execute("SELECT pg_logical_emit_message(true, 'headwater.signal', %s)", [text])
    rows.run("UPDATE rows SET v = 1 WHERE id = 1")
    assert [e.op for e in capturing.until("rows", 11)] == ["r"] * 10 + ["u"]


def test_a_paused_snapshot_goes_on_when_it_is_resumed(rows: Database, capturing: Capturing) -> None:
    running = capturing.start(tables=["public.rows"], chunk_rows=2)
    message(rows, capturing, "pause-snapshot")
    message(rows, capturing, "execute-snapshot", **{"data-collections": ["public.rows"]})
    rows.run("UPDATE rows SET v = 1 WHERE id = 1")
    assert [e.op for e in capturing.until("rows", 11)][-1] == "u"
    rows.run("UPDATE rows SET v = 2 WHERE id = 1")
    capturing.until("rows", 12)
    message(rows, capturing, "resume-snapshot")
    found = capturing.until("rows", 22)
    assert [e.after["v"] for e in found if e.key["id"] == 1] == [0, 1, 2, 2]
    eventually(lambda: running.status()["snapshot"][0]["done"], deadline_s=DEADLINE_S)


def test_a_snapshot_can_be_stopped(rows: Database, capturing: Capturing) -> None:
    running = capturing.start(tables=["public.rows"], chunk_rows=2)
    message(rows, capturing, "pause-snapshot")
    message(rows, capturing, "execute-snapshot", **{"data-collections": ["public.rows"]})
    message(rows, capturing, "stop-snapshot", **{"data-collections": ["public.rows"]})
    message(rows, capturing, "resume-snapshot")
    rows.run("UPDATE rows SET v = 1 WHERE id = 1")
    capturing.until("rows", 11)
    eventually(lambda: running.status()["snapshot"][0]["done"], deadline_s=DEADLINE_S)
    message(rows, capturing, "execute-snapshot", **{"data-collections": ["public.rows"]})
    capturing.until("rows", 21)


def test_a_signal_that_makes_no_sense_stops_nothing(rows: Database, capturing: Capturing) -> None:
    capturing.start(signal_table="public.signals", tables=["public.rows"])
    rows.run("INSERT INTO signals VALUES ('x', 'execute-snapshot', 'not json')", "INSERT INTO signals VALUES ('x')")
    rows.run("SELECT pg_logical_emit_message(true, 'headwater.signal', 'not json')")
    rows.run("SELECT pg_logical_emit_message(true, 'headwater.signal', '[]')")
    message(rows, capturing, "make-coffee")
    rows.run("UPDATE rows SET v = 1 WHERE id = 1")
    capturing.until("rows", 11)
