"""Positions: exactly once over restarts, one capture per name, never silently past a gap, never a full disk."""

from __future__ import annotations

import contextlib
import json

import psycopg
import pytest
from tests.capture.support import DEADLINE_S, Capturing, Database
from tests.capture.test_postgres_snapshot import Failing

from headwater.capture import Fenced, GapDetected, WalLimitReached
from headwater.capture.pg_connection import parse_lsn
from headwater.testing import eventually


@pytest.fixture
def rows(database: Database) -> Database:
    database.run("CREATE TABLE rows (id int PRIMARY KEY, v int)")
    return database


def insert(first: int, count: int) -> str:
    return f"INSERT INTO rows SELECT i, 0 FROM generate_series({first}, {first + count - 1}) i"


def test_a_stopped_capture_goes_on_where_it_was(rows: Database, capturing: Capturing) -> None:
    for i in range(4):
        rows.run(insert(i * 2, 1))
        capturing.start()
        rows.run(insert(i * 2 + 1, 1))
        capturing.until("rows", i * 2 + 2)
        capturing.stop()
    assert [e.key["id"] for e in capturing.events("rows")] == [*range(8)]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [2, 3, 5])
def test_a_transaction_published_in_parts_is_neither_cut_nor_repeated(
    rows: Database, capturing: Capturing, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    """All its rows share one position in the database's log; only their number tells them apart."""
    monkeypatch.setattr("headwater.capture.postgres.BATCH_EVENTS_MAX", 100)
    monkeypatch.setattr("headwater.capture.runner.COMMIT_RECORDS_MAX", 100)
    capturing.start(transaction_topic=True)
    Failing(monkeypatch, at, after=after)
    rows.together(insert(0, 350), "UPDATE rows SET v = 1 WHERE id < 50", insert(1000, 200))
    rows.run(insert(2000, 1))
    found = capturing.until("rows", 601)
    ids = [e.key["id"] for e in found]
    assert ids == [*range(350), *range(50), *range(1000, 1200), 2000]
    assert [e.value["transaction"]["total_order"] for e in found] == [*range(1, 601), 1]
    assert [e.value["status"] for e in capturing.until(".transaction", 4)] == ["BEGIN", "END"] * 2


def test_the_newer_capture_of_a_name_takes_over(rows: Database, capturing: Capturing, bootstrap: str) -> None:
    first = capturing.start()
    rows.run(insert(1, 1))
    capturing.until("rows", 1)
    with Capturing(rows.dsn, bootstrap, capturing.name) as newer:
        newer.start(wait=False)
        rows.run(insert(2, 1))
        newer.until("rows", 2)
        rows.run(insert(3, 1))

        def ended() -> bool:
            with contextlib.suppress(Fenced):
                first.check()
                return False
            return True

        eventually(ended, deadline_s=DEADLINE_S, what="the first capture fenced")
        with pytest.raises(Fenced, match="has taken over"):
            first.check()
        assert [e.key["id"] for e in newer.until("rows", 3)] == [1, 2, 3]


def test_the_newer_capture_takes_over_also_while_nothing_happens(
    rows: Database, capturing: Capturing, bootstrap: str
) -> None:
    """An idle capture writes nothing that could be refused: its connection is ended."""
    first = capturing.start()
    with Capturing(rows.dsn, bootstrap, capturing.name) as newer:
        newer.start()
        with pytest.raises(Fenced, match="has taken over"):
            eventually(first.check, deadline_s=DEADLINE_S)
        rows.run(insert(1, 1))
        newer.until("rows", 1)


def test_an_idle_slot_advances_while_other_databases_write(
    rows: Database, capturing: Capturing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that the server keeps all its log for a database in which nothing happens."""
    monkeypatch.setattr("headwater.capture.postgres.IDLE_ADVANCE_S", 0.3)
    monkeypatch.setattr("headwater.capture.postgres.STATUS_INTERVAL_S", 0.1)
    running = capturing.start()
    slot = running.options.slot
    before = parse_lsn(rows.slot(slot)["confirmed_flush_lsn"])
    with psycopg.connect(rows.server.dsn, autocommit=True) as elsewhere:
        elsewhere.execute("CREATE TABLE IF NOT EXISTS other (x text)")
        elsewhere.execute("INSERT INTO other SELECT repeat('x', 500) FROM generate_series(1, 4000)")
        ((now,),) = elsewhere.execute("SELECT pg_current_wal_lsn()::text").fetchall()
    assert parse_lsn(now) > before
    eventually(
        lambda: parse_lsn(rows.slot(slot)["confirmed_flush_lsn"]) >= parse_lsn(now),
        deadline_s=DEADLINE_S,
        what="advance",
    )


def test_the_slot_never_runs_ahead_of_the_log(
    rows: Database, capturing: Capturing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing can be committed, nothing is confirmed."""
    from headwater.capture.errors import LogUnavailable
    from headwater.capture.publisher import Publisher

    running = capturing.start()
    slot = running.options.slot
    real = Publisher.commit

    def refuse(publisher: Publisher) -> None:
        raise LogUnavailable("the broker is away")

    monkeypatch.setattr(Publisher, "commit", refuse)
    ((before,),) = rows.rows("SELECT pg_current_wal_lsn()::text")
    rows.run(insert(1, 10))
    with contextlib.suppress(AssertionError):
        eventually(lambda: False, deadline_s=1.5)
    assert parse_lsn(rows.slot(slot)["confirmed_flush_lsn"]) <= parse_lsn(before)
    monkeypatch.setattr(Publisher, "commit", real)
    capturing.until("rows", 10)


def test_a_dropped_slot_is_reported_and_not_silently_replaced(rows: Database, capturing: Capturing) -> None:
    running = capturing.start()
    slot = running.options.slot
    capturing.stop()
    rows.drop_slot(slot)
    running = capturing.start(wait=False)
    with pytest.raises(GapDetected, match=r"does not exist any more.*at_gap='resnapshot'"):
        eventually(running.check, deadline_s=DEADLINE_S)


def test_after_a_gap_everything_is_read_again_where_asked(rows: Database, capturing: Capturing) -> None:
    rows.run("CREATE TABLE bare (v int)", "ALTER TABLE bare REPLICA IDENTITY FULL", "INSERT INTO bare VALUES (1)")
    rows.run(insert(1, 3))
    running = capturing.start()
    slot = running.options.slot
    capturing.stop()
    rows.drop_slot(slot)
    rows.run("DELETE FROM rows WHERE id = 1", insert(7, 1), "INSERT INTO bare VALUES (2)")
    capturing.start(at_gap="resnapshot")
    found = capturing.until("rows", 7)
    assert [e.op for e in found] == ["r", "r", "r", "t", "r", "r", "r"]
    assert [e.key["id"] for e in found[4:]] == [2, 3, 7]
    assert [(e.op, e.after and e.after["v"]) for e in capturing.until("bare", 4)] == [
        ("r", 1),
        ("t", None),
        ("r", 1),
        ("r", 2),
    ]


def test_a_slot_that_somebody_else_advanced_is_a_gap(rows: Database, capturing: Capturing) -> None:
    running = capturing.start()
    slot = running.options.slot
    capturing.stop()
    rows.run(insert(1, 3))
    eventually(lambda: not rows.slot(slot)["active"], deadline_s=DEADLINE_S)
    rows.connection.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [slot])
    running = capturing.start(wait=False)
    with pytest.raises(GapDetected, match="advanced by somebody else"):
        eventually(running.check, deadline_s=DEADLINE_S)


def test_another_server_under_the_same_address_is_a_gap(rows: Database, capturing: Capturing) -> None:
    """A replica that was promoted has the same system identifier; this one has not."""
    from headwater.capture.pg_catalog import SlotInfo
    from headwater.capture.pg_slot import Place, Server, check_slot

    place = Place("1", 1, lsn=100, restart=90)
    slot = SlotInfo("pgoutput", False, 80, 90, "reserved", None, 0, False)
    assert check_slot(place, "s", slot, Server("1", 1, 100, "d")) == place
    for server, why in (
        (Server("2", 1, 100, "d"), "another server"),
        (Server("1", 1, 99, "d"), "behind what it sent"),
        (Server("1", 2, 200, "d", ((1, 95),)), "before our position"),
        (Server("1", 2, 200, "d"), "unknown"),
    ):
        with pytest.raises(GapDetected, match=why):
            check_slot(place, "s", slot, server)
    assert check_slot(place, "s", slot, Server("1", 2, 200, "d", ((1, 150),))).timeline == 2


def test_an_invalidated_slot_is_a_gap() -> None:
    from headwater.capture.pg_catalog import SlotInfo
    from headwater.capture.pg_slot import Place, Server, check_slot

    slot = SlotInfo("pgoutput", False, None, 90, "lost", "wal_removed", 0, False)
    with pytest.raises(GapDetected, match="invalidated the slot"):
        check_slot(Place("1", 1, lsn=100, restart=90), "s", slot, Server("1", 1, 100, "d"))


@pytest.mark.parametrize("at_limit", ["stop", "drop"])
def test_the_log_that_the_database_keeps_for_us_has_a_bound(
    rows: Database, capturing: Capturing, monkeypatch: pytest.MonkeyPatch, at_limit: str
) -> None:
    monkeypatch.setattr("headwater.capture.pg_health.CHECK_INTERVAL_S", 0.05)
    running = capturing.start(max_wal_bytes=1 << 20, at_limit=at_limit)
    with rows.connect() as slow:
        slow.execute("BEGIN")
        slow.execute(insert(1, 1))
        rows.run("CREATE TABLE uncaptured (x text)")
        rows.run("INSERT INTO uncaptured SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
        with pytest.raises(WalLimitReached, match="max_wal_bytes"):
            eventually(running.check, deadline_s=DEADLINE_S)
    capturing.stop()
    assert bool(rows.slot(running.options.slot)) is (at_limit == "stop")


def test_the_bound_holds_also_while_the_log_is_away(
    rows: Database, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater import Broker

    monkeypatch.setattr("headwater.capture.publisher.OPERATION_TIMEOUT_S", 2.0)
    broker = Broker().start()
    with Capturing(rows.dsn, broker.bootstrap_servers, f"c{unique}") as capturing:
        running = capturing.start(max_wal_bytes=1 << 20, at_limit="stop")
        broker.stop()
        rows.run("CREATE TABLE uncaptured (x text)")
        rows.run("INSERT INTO rows VALUES (1, 1)")
        rows.run("INSERT INTO uncaptured SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
        with pytest.raises(WalLimitReached):
            eventually(running.check, deadline_s=DEADLINE_S * 3)


def test_the_bound_can_be_only_reported(
    rows: Database, capturing: Capturing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headwater.capture.pg_health.CHECK_INTERVAL_S", 0.05)
    capturing.start(max_wal_bytes=1 << 10)
    with rows.connect() as slow:
        slow.execute("BEGIN")
        slow.execute(insert(1, 1))
        rows.run("CREATE TABLE uncaptured (x text)")
        rows.run("INSERT INTO uncaptured SELECT repeat('x', 1000) FROM generate_series(1, 500)")
        eventually(lambda: "max_wal_bytes" in caplog.text, deadline_s=DEADLINE_S)
        slow.execute("COMMIT")
    capturing.until("rows", 1)


def test_heartbeats_come_also_while_nothing_happens(rows: Database, capturing: Capturing, bootstrap: str) -> None:
    from tests.capture.support import events

    capturing.start(heartbeat_s=0.1)
    topic = f"__debezium-heartbeat.{capturing.name}"
    found = eventually(lambda: len(events(bootstrap, topic)) >= 2 and events(bootstrap, topic), deadline_s=DEADLINE_S)
    assert found[0].key == {"serverName": capturing.name}
    assert found[0].value["ts_ms"] > 0


def test_what_is_stored_says_how_far_it_is(rows: Database, capturing: Capturing) -> None:
    capturing.start()
    rows.run(insert(1, 1))
    capturing.until("rows", 1)
    state = capturing.state()
    assert parse_lsn(state["position"]["lsn"]) >= parse_lsn(state["position"]["restart"])
    assert state["snapshot/public.rows"]["done"]
    json.dumps(state)


def test_two_captures_of_one_database_disturb_each_other_in_nothing(
    rows: Database, capturing: Capturing, bootstrap: str, unique: str
) -> None:
    with Capturing(rows.dsn, bootstrap, f"d{unique}") as other:
        capturing.start()
        other.start(form="flat")
        rows.run(insert(1, 2))
        capturing.until("rows", 2)
        other.until("rows", 2)


def test_a_database_that_is_away_is_waited_for(bootstrap: str, unique: str) -> None:
    from headwater.testing.postgres import PostgresServer

    with PostgresServer() as server, Database.create(server, "here") as database:
        database.run("CREATE TABLE rows (id int PRIMARY KEY, v int)")
        with Capturing(database.dsn, bootstrap, f"c{unique}") as capturing:
            capturing.start()
            database.run(insert(1, 1))
            capturing.until("rows", 1)
            server.kill()
            server.start()
            database.connection = eventually(lambda: _try(database), deadline_s=DEADLINE_S)
            database.run(insert(2, 1))
            assert [e.key["id"] for e in capturing.until("rows", 2)] == [1, 2]


def _try(database: Database) -> psycopg.Connection[object] | None:
    try:
        return database.connect()
    except psycopg.OperationalError:
        return None
