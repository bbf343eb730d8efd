"""Snapshots: chunks interleaved with the stream, resumable at any instant, without a gap or a double."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from tests.capture.support import DEADLINE_S, Capturing, Database, Event

from headwater.capture.errors import LogUnavailable
from headwater.capture.pg_connection import parse_lsn
from headwater.capture.pg_visibility import ChangeLog
from headwater.capture.publisher import Publisher
from headwater.testing import eventually

ROWS = 60


@pytest.fixture
def rows(database: Database) -> Database:
    database.run("CREATE TABLE rows (id int PRIMARY KEY, v int)")
    database.run(f"INSERT INTO rows SELECT i, 0 FROM generate_series(1, {ROWS}) i")
    return database


def rebuilt(events: list[Event]) -> dict[int, Any]:
    """The table as the topic tells it."""
    table: dict[int, Any] = {}
    for event in events:
        if event.value is None or event.op == "d":
            table.pop(event.key["id"], None)
        elif event.op == "t":
            table.clear()
        else:
            table[event.key["id"]] = event.after["v"]
    return table


def test_chunks_hold_every_row_once_and_tell_the_progress(rows: Database, capturing: Capturing) -> None:
    running = capturing.start(chunk_rows=7)
    found = capturing.until("rows", ROWS)
    assert [e.key["id"] for e in found] == [*range(1, ROWS + 1)]
    (progress,) = running.status()["snapshot"]
    assert (progress["rows"], progress["percent"], progress["done"], progress["eta_s"]) == (ROWS, 100.0, True, 0.0)


def test_an_empty_table_is_done_at_once(database: Database, capturing: Capturing) -> None:
    database.run("CREATE TABLE rows (id int PRIMARY KEY, v int)")
    running = capturing.start()
    assert running.status()["snapshot"][0]["done"]


def test_chunks_follow_the_order_of_a_composite_key(database: Database, capturing: Capturing) -> None:
    database.run('CREATE TABLE pairs (v int, b text COLLATE "C", a int, PRIMARY KEY (a, b))')
    database.run("INSERT INTO pairs SELECT 0, chr(65 + i % 7), i % 5 FROM generate_series(1, 35) i")
    capturing.start(chunk_rows=4)
    found = [(e.key["a"], e.key["b"]) for e in capturing.until("pairs", 35)]
    assert found == sorted(found)
    assert len(set(found)) == 35


def test_keys_of_every_kind_can_cut_chunks(database: Database, capturing: Capturing) -> None:
    for kind, value in (
        ("text", "'k' || i || E'\\t''\"'"),
        ("uuid", "md5(i::text)::uuid"),
        ("timestamptz", "now() + i * interval '1 hour'"),
        ("numeric", "i / 7.0"),
        ("bytea", "decode(md5(i::text), 'hex')"),
        ("float8", "i / 3.0"),
        ("date", "date '2000-01-01' + i"),
    ):
        database.run(f"CREATE TABLE t_{kind} (id {kind} PRIMARY KEY)")
        database.run(f"INSERT INTO t_{kind} SELECT {value} FROM generate_series(1, 20) i")
    capturing.start(chunk_rows=3)
    for kind in ("text", "uuid", "timestamptz", "numeric", "bytea", "float8", "date"):
        assert len({str(e.key) for e in capturing.until(f"t_{kind}", 20)}) == 20


def test_changes_while_chunks_are_read_win_over_the_chunks(rows: Database, capturing: Capturing) -> None:
    """Updates, deletes, inserts and moved keys all the time; the topic ends at what the table is."""
    rows.run(f"INSERT INTO rows SELECT i, 0 FROM generate_series({ROWS + 1}, 3000) i")
    stop = threading.Event()

    def change() -> None:
        with rows.connect() as connection:
            i = 0
            while not stop.is_set():
                i += 1
                connection.execute("UPDATE rows SET v = v + 1 WHERE id %% 97 = %s", [i % 97])
                connection.execute("DELETE FROM rows WHERE id = %s", [i * 13 % 3000])
                connection.execute("INSERT INTO rows VALUES (%s, -1) ON CONFLICT DO NOTHING", [10_000 + i % 50])
                connection.execute("UPDATE rows SET id = id + 20000 WHERE id = %s", [i * 29 % 3000])

    worker = threading.Thread(target=change)
    worker.start()
    try:
        capturing.start(chunk_rows=100)
    finally:
        stop.set()
        worker.join()
    expected = dict(rows.rows("SELECT id, v FROM rows"))
    eventually(lambda: rebuilt(capturing.events("rows")) == expected, deadline_s=DEADLINE_S, what="the same table")


def test_a_truncate_while_chunks_are_read(rows: Database, capturing: Capturing) -> None:
    running = capturing.start(chunk_rows=5, wait=False)
    rows.run("TRUNCATE rows", "INSERT INTO rows VALUES (1, 7)")
    running.wait_for_snapshot(DEADLINE_S)
    eventually(lambda: rebuilt(capturing.events("rows")) == {1: 7}, deadline_s=DEADLINE_S)


class Failing:
    """Lets the n-th commit of a capture fail, before or after it has happened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, *, after: bool) -> None:
        self.commits = 0
        real = Publisher.commit

        def commit(publisher: Publisher) -> None:
            self.commits += 1
            if self.commits == at and not after:
                raise LogUnavailable("as if killed before the commit")
            real(publisher)
            if self.commits == at:
                raise LogUnavailable("as if killed after the commit")

        monkeypatch.setattr(Publisher, "commit", commit)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_snapshot_goes_on_where_it_was_interrupted(
    rows: Database, capturing: Capturing, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    monkeypatch.setattr("headwater.capture.runner.COMMIT_RECORDS_MAX", 1)
    failing = Failing(monkeypatch, at, after=after)
    capturing.start(chunk_rows=8)
    assert [e.key["id"] for e in capturing.until("rows", ROWS)] == [*range(1, ROWS + 1)]
    assert failing.commits >= at


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_table_without_a_key_is_never_read_twice(
    database: Database, capturing: Capturing, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """It is one Kafka transaction: all of it or nothing."""
    database.run("CREATE TABLE log (v int)", "ALTER TABLE log REPLICA IDENTITY FULL")
    database.run("INSERT INTO log SELECT i FROM generate_series(1, 12000) i")
    Failing(monkeypatch, 1, after=after)
    capturing.start()
    database.run("INSERT INTO log VALUES (0)")
    found = capturing.until("log", 12_001)
    assert Counter(e.after["v"] for e in found) == Counter(range(12_001))


def test_changes_of_a_table_without_a_key_while_it_is_read(database: Database, capturing: Capturing) -> None:
    database.run("CREATE TABLE log (v int)", "ALTER TABLE log REPLICA IDENTITY FULL")
    stop = threading.Event()
    written = [0]

    def change() -> None:
        with database.connect() as connection:
            while not stop.is_set():
                written[0] += 1
                connection.execute("INSERT INTO log VALUES (%s)", [written[0]])

    worker = threading.Thread(target=change)
    worker.start()
    try:
        eventually(lambda: written[0] > 50, deadline_s=DEADLINE_S)
        capturing.start()
        capturing.stop()
        capturing.start()
    finally:
        stop.set()
        worker.join()
    found = capturing.until("log", written[0])
    assert Counter(e.after["v"] for e in found) == Counter(range(1, written[0] + 1))


def test_a_table_added_later_misses_no_transaction_that_was_running(rows: Database, capturing: Capturing) -> None:
    """A transaction that wrote before the table was published is in no stream: its end is waited for."""
    capturing.start()
    rows.run("CREATE TABLE later (id int PRIMARY KEY, v int)", "INSERT INTO later VALUES (1, 0)")
    with rows.connect() as slow:
        slow.execute("BEGIN")
        slow.execute("INSERT INTO later VALUES (2, 0)")
        published = "SELECT 1 FROM pg_publication_tables WHERE tablename = 'later'"
        eventually(lambda: rows.rows(published), deadline_s=DEADLINE_S, what="the new table published")
        slow.execute("INSERT INTO later VALUES (3, 0)")
        rows.run("INSERT INTO later VALUES (4, 0)")
        slow.execute("COMMIT")
    eventually(lambda: rebuilt(capturing.events("later")) == dict.fromkeys((1, 2, 3, 4), 0), deadline_s=DEADLINE_S)


def test_a_table_that_begins_to_be_read_takes_the_place_not_back_behind_the_slot(
    rows: Database, capturing: Capturing
) -> None:
    """What was confirmed to the server cannot be asked for again: a stop here is no gap at the next start."""
    slot = f"headwater_{capturing.name}"
    capturing.start(chunk_rows=5)
    rows.run(*(f"UPDATE rows SET v = {number} WHERE id = 1" for number in range(20)))
    before = parse_lsn(rows.rows("SELECT pg_current_wal_lsn()::text")[0][0])
    capturing.changes("rows", 20)
    rows.run("UPDATE rows SET v = 0 WHERE id = 2")

    def confirmed() -> int:
        return parse_lsn(rows.slot(slot)["confirmed_flush_lsn"])

    eventually(lambda: confirmed() >= before, deadline_s=DEADLINE_S)
    rows.run(
        "CREATE TABLE later (id int PRIMARY KEY, v int)",
        "INSERT INTO later SELECT i, 0 FROM generate_series(1, 3000) i",
    )
    eventually(lambda: capturing.events("later"), deadline_s=DEADLINE_S)
    capturing.stop()
    assert parse_lsn(capturing.state()["position"]["restart"]) >= confirmed()
    capturing.start()
    eventually(lambda: len(rebuilt(capturing.events("later"))) == 3000, deadline_s=DEADLINE_S)


def test_no_snapshot_where_none_is_wanted(rows: Database, capturing: Capturing) -> None:
    capturing.start(snapshot="never", wait=False)
    eventually(lambda: rows.slot(f"headwater_{capturing.name}").get("active"), deadline_s=DEADLINE_S)
    rows.run("UPDATE rows SET v = 1 WHERE id = 5")
    assert [e.op for e in capturing.until("rows", 1)] == ["u"]


def test_a_table_made_while_the_capture_is_down_misses_no_running_transaction(
    rows: Database, capturing: Capturing
) -> None:
    capturing.start()
    capturing.stop()
    rows.run("CREATE TABLE later (id int PRIMARY KEY, v int)")
    with rows.connect() as slow:
        slow.execute("BEGIN")
        slow.execute("INSERT INTO later VALUES (1, 0)")
        capturing.start(wait=False)
        published = "SELECT 1 FROM pg_publication_tables WHERE tablename = 'later'"
        eventually(lambda: rows.rows(published), deadline_s=DEADLINE_S, what="the new table published")
        slow.execute("COMMIT")
    eventually(lambda: rebuilt(capturing.events("later")) == {1: 0}, deadline_s=DEADLINE_S)


def test_tables_and_filters_that_change_between_runs(rows: Database, capturing: Capturing) -> None:
    rows.run("CREATE TABLE other (id int PRIMARY KEY, v int)")
    capturing.start()
    capturing.stop()
    capturing.start(tables=["public.rows"], row_filters={"public.rows": "v > 5"})
    rows.run("INSERT INTO other VALUES (1, 1)", "INSERT INTO rows VALUES (100, 1), (101, 9)")
    assert [e.key["id"] for e in capturing.changes("rows", 1)] == [101]
    assert capturing.events("other") == []


def test_wide_rows_make_smaller_chunks(
    database: Database, capturing: Capturing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.capture.pg_snapshot.CHUNK_BYTES_MAX", 5_000)
    database.run("CREATE TABLE wide (id int PRIMARY KEY, text text)")
    database.run("INSERT INTO wide SELECT i, repeat('x', 1000) FROM generate_series(1, 40) i")
    capturing.start()
    assert [e.key["id"] for e in capturing.until("wide", 40)] == [*range(1, 41)]


def test_chunks_are_read_again_when_too_much_changed(
    rows: Database, capturing: Capturing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changed keys that are remembered have a bound; wide rows must not make the second reading stop early."""
    monkeypatch.setattr(ChangeLog.__init__, "__defaults__", (3,))
    monkeypatch.setattr("headwater.capture.pg_snapshot.CHUNK_BYTES_MAX", 200)
    stop = threading.Event()

    def change() -> None:
        with rows.connect() as connection:
            while not stop.wait(0.002):
                connection.execute("UPDATE rows SET v = v + 1")

    worker = threading.Thread(target=change)
    worker.start()
    try:
        capturing.start(chunk_rows=10)
    finally:
        stop.set()
        worker.join()
    expected = dict(rows.rows("SELECT id, v FROM rows"))
    eventually(lambda: rebuilt(capturing.events("rows")) == expected, deadline_s=DEADLINE_S)
