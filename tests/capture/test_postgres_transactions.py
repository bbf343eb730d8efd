"""Big, prepared and partly rolled back transactions: published at their commit, in commit order, never before."""

from __future__ import annotations

import pytest
from tests.capture.support import DEADLINE_S, Capturing, Database

from headwater.capture import spill
from headwater.testing import eventually
from headwater.testing.postgres import PostgresServer

ROWS = 3_000  # at 100 bytes: several times logical_decoding_work_mem


@pytest.fixture
def numbers(database: Database) -> Database:
    database.run("CREATE TABLE numbers (id int PRIMARY KEY, text text)")
    # 64 kB is the least that PostgreSQL takes: transactions beyond it are streamed while they run
    database.run(f"ALTER DATABASE \"{database.name}\" SET logical_decoding_work_mem = '64kB'")
    return database


def insert(first: int, count: int) -> str:
    return f"INSERT INTO numbers SELECT i, repeat('x', 100) FROM generate_series({first}, {first + count - 1}) i"


def streamed(database: Database, slot: str) -> int:
    ((count,),) = database.rows(
        f"SELECT coalesce(sum(stream_txns), 0) FROM pg_stat_replication_slots WHERE slot_name = '{slot}'"
    )
    return int(count)


def test_a_big_transaction_is_streamed_and_published_at_its_commit(numbers: Database, capturing: Capturing) -> None:
    running = capturing.start()
    with numbers.connection.transaction():
        numbers.run(insert(1, ROWS))
        with numbers.connect() as other:
            other.execute("INSERT INTO numbers VALUES (0, 'committed first')")
        assert [e.key["id"] for e in capturing.until("numbers", 1)] == [0]
    ids = [e.key["id"] for e in capturing.until("numbers", ROWS + 1)]
    assert ids == list(range(ROWS + 1))
    eventually(lambda: streamed(numbers, running.options.slot) >= 1, deadline_s=DEADLINE_S, what="a streamed one")


def test_rolled_back_savepoints_of_a_streamed_transaction_are_left_out(numbers: Database, capturing: Capturing) -> None:
    capturing.start()
    numbers.together(
        insert(1, ROWS),
        "SAVEPOINT a",
        insert(10_000, ROWS),
        "SAVEPOINT b",
        insert(20_000, ROWS),
        "ROLLBACK TO b",
        insert(30_000, 10),
        "ROLLBACK TO a",
        "SAVEPOINT c",
        insert(40_000, ROWS),
        "RELEASE c",
    )
    ids = [e.key["id"] for e in capturing.until("numbers", 2 * ROWS)]
    assert ids == [*range(1, ROWS + 1), *range(40_000, 40_000 + ROWS)]


def test_a_streamed_transaction_that_rolls_back_leaves_nothing(numbers: Database, capturing: Capturing) -> None:
    capturing.start()
    numbers.run("BEGIN", insert(1, ROWS), "ROLLBACK", insert(5_000, 1))
    assert [e.key["id"] for e in capturing.until("numbers", 1)] == [5_000]


def test_transactions_that_run_at_the_same_time_come_in_commit_order(numbers: Database, capturing: Capturing) -> None:
    capturing.start(transaction_topic=True)
    with numbers.connect() as first, numbers.connect() as second:
        first.execute("BEGIN")
        second.execute("BEGIN")
        first.execute(insert(1, ROWS))
        second.execute(insert(10_000, ROWS))
        first.execute(insert(5_000, ROWS))
        second.execute("COMMIT")
        first.execute("COMMIT")
    ids = [e.key["id"] for e in capturing.until("numbers", 3 * ROWS)]
    assert ids == [*range(10_000, 10_000 + ROWS), *range(1, ROWS + 1), *range(5_000, 5_000 + ROWS)]
    assert [e.value["event_count"] for e in capturing.until(".transaction", 4)] == [None, ROWS, None, 2 * ROWS]


def test_more_than_the_memory_waits_on_disk(
    numbers: Database, capturing: Capturing, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(spill.SpillStore.__init__, "__defaults__", (None, 20_000))
    capturing.start()
    numbers.together(insert(1, ROWS), "SAVEPOINT a", insert(9_000, ROWS), "ROLLBACK TO a")
    assert [e.key["id"] for e in capturing.until("numbers", ROWS)] == [*range(1, ROWS + 1)]


@pytest.mark.parametrize("count", [1, ROWS], ids=["small", "streamed"])
def test_a_prepared_transaction_is_published_when_it_commits(
    numbers: Database, capturing: Capturing, count: int
) -> None:
    capturing.start()
    numbers.run("BEGIN", insert(1, count), f"PREPARE TRANSACTION 'a{numbers.name}'", insert(50_000, 1))
    assert [e.key["id"] for e in capturing.until("numbers", 1)] == [50_000]
    numbers.run(f"COMMIT PREPARED 'a{numbers.name}'")
    assert [e.key["id"] for e in capturing.until("numbers", 1 + count)] == [50_000, *range(1, count + 1)]


@pytest.mark.parametrize("count", [1, ROWS], ids=["small", "streamed"])
def test_a_prepared_transaction_survives_a_restart_of_the_capture(
    numbers: Database, capturing: Capturing, count: int
) -> None:
    """The server sends what was prepared again only if the slot stays behind it."""
    capturing.start()
    numbers.run("BEGIN", insert(1, count), f"PREPARE TRANSACTION 'a{numbers.name}'", insert(50_000, 1))
    capturing.until("numbers", 1)
    capturing.stop()
    numbers.run(insert(50_001, 1))
    capturing.start()
    capturing.until("numbers", 2)
    capturing.stop()
    numbers.run(f"COMMIT PREPARED 'a{numbers.name}'")
    capturing.start()
    ids = [e.key["id"] for e in capturing.until("numbers", 2 + count)]
    assert ids == [50_000, 50_001, *range(1, count + 1)]


def test_a_prepared_transaction_that_rolls_back_leaves_nothing(numbers: Database, capturing: Capturing) -> None:
    capturing.start()
    numbers.run("BEGIN", insert(1, ROWS), f"PREPARE TRANSACTION 'a{numbers.name}'")
    numbers.run(f"ROLLBACK PREPARED 'a{numbers.name}'", insert(50_000, 1))
    assert [e.key["id"] for e in capturing.until("numbers", 1)] == [50_000]


def test_prepared_while_the_capture_is_down(numbers: Database, capturing: Capturing) -> None:
    capturing.start()
    capturing.stop()
    numbers.run("BEGIN", insert(1, 2), f"PREPARE TRANSACTION 'a{numbers.name}'", insert(50_000, 1))
    numbers.run(f"COMMIT PREPARED 'a{numbers.name}'")
    capturing.start()
    assert [e.key["id"] for e in capturing.until("numbers", 3)] == [50_000, 1, 2]


def test_without_two_phase_a_prepared_transaction_comes_at_its_commit(numbers: Database, capturing: Capturing) -> None:
    capturing.start(two_phase=False)
    numbers.run("BEGIN", insert(1, 2), f"PREPARE TRANSACTION 'a{numbers.name}'", insert(50_000, 1))
    numbers.run(f"COMMIT PREPARED 'a{numbers.name}'")
    assert [e.key["id"] for e in capturing.until("numbers", 3)] == [50_000, 1, 2]


def test_an_older_server_speaks_an_older_protocol(bootstrap: str, unique: str) -> None:
    """PostgreSQL 16 beside 18: no fail-over slots, markers of snapshots in transactions."""
    with (
        PostgresServer(version=16) as server,
        Database.create(server, f"db_{unique}") as old,
        Capturing(old.dsn, bootstrap, f"c{unique}") as capturing,
    ):
        old.run("CREATE TABLE numbers (id int PRIMARY KEY, text text)", insert(1, 10))
        old.run(f"ALTER DATABASE \"{old.name}\" SET logical_decoding_work_mem = '64kB'")
        capturing.start(chunk_rows=3)
        old.together(insert(1_000, ROWS), "SAVEPOINT a", insert(9_000, ROWS), "ROLLBACK TO a")
        ids = [e.key["id"] for e in capturing.until("numbers", 10 + ROWS)]
        assert ids == [*range(1, 11), *range(1_000, 1_000 + ROWS)]
