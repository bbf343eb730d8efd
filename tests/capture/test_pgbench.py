"""A workload that nobody tuned to: pgbench's TPC-B, whose sums agree over the topics as they do in the database."""

from __future__ import annotations

from tests.capture.support import Capturing, Database

from headwater.capture.rebuild import rebuild

CLIENTS, TRANSACTIONS = 4, 150


def test_the_sums_of_tpc_b_agree(database: Database, capturing: Capturing) -> None:
    run = database.server.run
    run("pgbench", "-i", "-q", "-s", "1", database.name)
    database.run("ALTER TABLE pgbench_history REPLICA IDENTITY FULL")
    running = capturing.start(chunk_rows=20_000, form="flat", wait=False)
    run("pgbench", "-n", "-c", str(CLIENTS), "-j", "2", "-t", str(TRANSACTIONS), database.name)
    running.wait_for_snapshot(60)
    run("pgbench", "-n", "-c", str(CLIENTS), "-t", str(TRANSACTIONS), database.name)
    assert all(verdict.same for verdict in running.verify())
    sums = {}
    for table, column in (
        ("accounts", "abalance"),
        ("tellers", "tbalance"),
        ("branches", "bbalance"),
        ("history", "delta"),
    ):
        with rebuild(capturing.bootstrap, capturing.topic(f"pgbench_{table}")) as copy:
            rows = [row[column] for row in copy.rows()]
        sums[table] = sum(rows)
        if table == "history":
            assert len(rows) == 2 * CLIENTS * TRANSACTIONS
    assert len(set(sums.values())) == 1, sums
