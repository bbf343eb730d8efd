"""What users of other tools complain about, each shown not to happen here.

1. The slot holds the database's log until its disk is full: `test_postgres_positions` (an idle slot advances, bounds),
   and here a database with traffic that is not captured.
2. Changes lost in silence, those that share a position skipped on restart: `test_postgres_positions`
   (a transaction published in parts), here also with the restart between any two of its events.
3. A snapshot that starts again from zero: `test_postgres_snapshot` (goes on where it was interrupted).
4. A placeholder in place of a large value in the copy: here, over the compacted topic.
5. Columns lost or confused by schema changes: `test_postgres_schema`; here a column dropped while rows under its old
   version wait to be read.
6. Out of memory on large rows and transactions: here.
7. Fail-over drops the slot: here, and `test_postgres_positions` (reported, never resumed past a gap).
"""

from __future__ import annotations

import resource

import pytest
from tests.capture.support import DEADLINE_S, Capturing, Database
from tests.capture.test_settings import LARGE

from headwater.capture.pg_connection import parse_lsn
from headwater.testing import eventually


@pytest.fixture
def rows(database: Database) -> Database:
    database.run("CREATE TABLE rows (id int PRIMARY KEY, v int, text text)")
    return database


def test_traffic_that_is_not_captured_does_not_hold_the_log(
    rows: Database, capturing: Capturing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dlt 702, risingwave 16697: changes only in tables that nobody captures."""
    monkeypatch.setattr("headwater.capture.postgres.IDLE_ADVANCE_S", 0.3)
    monkeypatch.setattr("headwater.capture.postgres.STATUS_INTERVAL_S", 0.1)
    rows.run("CREATE TABLE other (x text)")
    running = capturing.start(tables=["public.rows"])
    rows.run("INSERT INTO other SELECT repeat('x', 500) FROM generate_series(1, 4000)")
    ((now,),) = rows.rows("SELECT pg_current_wal_lsn()::text")
    slot = running.options.slot
    eventually(
        lambda: parse_lsn(rows.slot(slot)["confirmed_flush_lsn"]) >= parse_lsn(now),
        deadline_s=DEADLINE_S,
        what="advance",
    )
    assert capturing.events("other") == []


def test_restarts_between_the_events_of_one_transaction_skip_none(
    rows: Database, capturing: Capturing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debezium 7531: events that share a position."""
    monkeypatch.setattr("headwater.capture.postgres.BATCH_EVENTS_MAX", 1)
    monkeypatch.setattr("headwater.capture.runner.COMMIT_RECORDS_MAX", 1)
    capturing.start()
    capturing.stop()
    rows.run("INSERT INTO rows SELECT i, 0, '' FROM generate_series(1, 40) i")
    while len(capturing.events("rows")) < 40:
        before = len(capturing.events("rows"))
        running = capturing.start(wait=False)
        eventually(lambda now=running: now.events > 1, deadline_s=DEADLINE_S)
        capturing.stop()
        assert len(capturing.events("rows")) > before
    assert [e.key["id"] for e in capturing.events("rows")] == [*range(1, 41)]


def test_the_copy_holds_large_values_that_updates_did_not_touch(rows: Database, capturing: Capturing) -> None:
    """airbyte 30518, PeerDB 3790: after compaction only the last record of a key is left."""
    running = capturing.start(unavailable="reselect")
    rows.run(f"INSERT INTO rows VALUES (1, 0, {LARGE})", "UPDATE rows SET v = 1", "UPDATE rows SET v = 2")
    running.verify()
    ((text,),) = rows.rows("SELECT text FROM rows")
    assert capturing.events("rows")[-1].after == {"id": 1, "v": 2, "text": text}


def test_a_column_dropped_before_its_rows_are_read_is_still_in_them(rows: Database, capturing: Capturing) -> None:
    """PeerDB's lost column, and large values that can no longer be looked up."""
    capturing.start(unavailable="reselect")
    capturing.stop()
    rows.run(f"INSERT INTO rows VALUES (1, 0, {LARGE})", "UPDATE rows SET v = 1", "ALTER TABLE rows DROP text")
    rows.run("UPDATE rows SET v = 2")
    capturing.start(unavailable="reselect")
    insert, update, last = capturing.until("rows", 3)
    assert len(insert.after["text"]) == 32 * 400
    assert update.after["text"] == "__debezium_unavailable_value"  # its value is gone from the database
    assert last.after == {"id": 1, "v": 2}


def test_a_row_of_twenty_megabytes_is_a_record(rows: Database, capturing: Capturing) -> None:
    """airbyte 4746; a broker's own limit is 1 MB, the topics made here allow more."""
    rows.run("INSERT INTO rows VALUES (1, 0, repeat('x', 20000000))")
    capturing.start()
    rows.run("INSERT INTO rows VALUES (2, 0, repeat('y', 20000000))")
    assert [len(e.after["text"]) for e in capturing.until("rows", 2)] == [20_000_000] * 2


def test_a_transaction_larger_than_the_memory_is_kept_on_disk(
    rows: Database, capturing: Capturing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """airbyte 26454, wal2json 183. `make bench-capture` measures the same with 2 GB."""
    from headwater.capture import spill

    monkeypatch.setattr(spill.SpillStore.__init__, "__defaults__", (None, 4 << 20))
    rows.run(f"ALTER DATABASE \"{rows.name}\" SET logical_decoding_work_mem = '1MB'")
    running = capturing.start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with rows.connection.transaction():
        rows.run("INSERT INTO rows SELECT i, 0, repeat(md5(i::text), 30) FROM generate_series(1, 100000) i")
    eventually(lambda: running.events >= 100_000, deadline_s=60, what="100,000 events")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert grown < 150, f"{grown} MiB for a transaction of 100 MB"


def test_the_slot_is_one_that_fails_over(rows: Database, capturing: Capturing) -> None:
    """PeerDB 3352. PostgreSQL 17 and later copy such slots to their standbys."""
    running = capturing.start()
    assert rows.slot(running.options.slot)["failover"] is True
