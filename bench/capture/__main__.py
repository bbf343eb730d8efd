"""`make bench-capture`: every bar of capture, a JSON line each; ARGS="--only stream --rows 50000" runs a part, smaller.

Both readers follow copies of one replication slot over the same table `t (id, name, at, amount)`. Ours writes what it
reads into the log, which is fsynced before it is confirmed; Debezium's engine hands its events over and drops them.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from bench.broker.servers import Server
from bench.broker.servers import headwater as log_server
from bench.capture.peers import Measured, debezium, headwater, started_debezium, started_headwater
from bench.capture.triggers import triggers
from bench.report import Bar, resident_mib
from headwater.client import Connection
from headwater.testing.postgres import PostgresServer

ROWS_PER_TRANSACTION = 1_000
LATENCY_RATE = 1_000  # transactions a second
LATENCY_WARM = 0.2  # of the samples are left out at the start
DEBEZIUM_FAST = ("max.batch.size=20480", "max.queue.size=81920")  # its fastest here; the default is a tenth slower

TABLE = "CREATE TABLE t (id bigint PRIMARY KEY, name text, at bigint, amount numeric(12,2))"
ROW = "i, 'name ' || i, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, i / 7.0"


class Bench:
    """One database and one log; slots are copies, so that everybody reads the same."""

    def __init__(self, postgres: PostgresServer, log: Server, rows: int) -> None:
        self.postgres, self.log, self.rows = postgres, log, rows
        self.database = psycopg.connect(postgres.dsn, autocommit=True)
        self.database.execute(TABLE)
        self.database.execute("CREATE PUBLICATION bench FOR TABLE t")

    def slot(self, name: str) -> None:
        self.database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])

    def copy(self, slot: str, name: str) -> str:
        self.database.execute("SELECT pg_copy_logical_replication_slot(%s, %s, false)", [slot, name])
        return name

    def drop(self, *slots: str) -> None:
        """Bases first: they hold back the database's log."""
        for slot in slots:
            self.database.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [slot]
            )

    def settings(self, name: str, **more: Any) -> dict[str, Any]:
        return {
            "dsn": self.postgres.dsn,
            "name": name,
            "tables": ["public.t"],
            "publication": "bench",
            "partitions": 1,
            "schema_topic": False,
            **more,
        }

    def ours(self, name: str, events: int, **more: Any) -> Measured:
        return headwater(self.log.bootstrap, self.settings(name, **more), events)

    def port(self) -> int:
        return self.postgres.port

    def insert(self, rows: int, per_transaction: int) -> None:
        for first in range(0, rows, per_transaction):
            self.database.execute(
                f"INSERT INTO t SELECT {ROW} FROM generate_series(%s::int, %s::int) i",
                [first, first + per_transaction - 1],
            )


def stream(bench: Bench) -> None:
    """Committed rows, 1,000 a transaction."""
    _stream(bench, "1,000 rows a transaction", bench.rows, ROWS_PER_TRANSACTION, (2.5, 5.0))


def single(bench: Bench) -> None:
    """One row a transaction."""
    _stream(bench, "one row a transaction", bench.rows // 5, 1, (1.3, 4.0))


def _stream(bench: Bench, name: str, rows: int, per_transaction: int, bars: tuple[float, float]) -> None:
    bench.database.execute("TRUNCATE t")
    bench.slot("base")
    bench.insert(rows, per_transaction)
    bench.copy("base", "peer")
    bench.copy("base", "ours")
    peer = debezium(bench.port(), "peer", "no_data", rows, *DEBEZIUM_FAST)
    broker_before = bench.log.cpu_s()
    ours = bench.ours(f"stream-{per_transaction}", rows, slot="ours", snapshot="never", two_phase=False, failover=False)
    bench.drop("base", "peer", "ours")
    Bar(f"stream, {name}: events/s", bars[0], "events/s").report(ours.rate, peer.rate)
    Bar(f"stream, {name}: events per CPU-second of the reader", bars[1], "events/CPU-s").report(
        ours.events_per_cpu_s, peer.events_per_cpu_s
    )
    _say(ours, peer, broker_cpu_s=bench.log.cpu_s() - broker_before)


def snapshot(bench: Bench) -> None:
    """Reading a table that is there already."""
    bench.database.execute("TRUNCATE t")
    bench.insert(bench.rows, 50_000)
    bench.slot("peer")
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        bench.postgres.run("psql", "-d", "postgres", "-c", f"\\copy t to '{Path(folder) / 't'}'")
        bare = bench.rows / (time.perf_counter() - started)
    peer = debezium(bench.port(), "peer", "initial", bench.rows, *DEBEZIUM_FAST)
    ours = bench.ours("snapshot", bench.rows, two_phase=False, failover=False)
    bench.drop("peer", "headwater_snapshot")
    Bar("snapshot: rows/s", 4.0, "rows/s").report(ours.rate, peer.rate)
    Bar("snapshot: rows/s, of a bare COPY to a file", 0.5, "rows/s").report(ours.rate, bare)
    _say(ours, peer)


def latency(bench: Bench) -> None:
    """From the row's own clock, in its transaction, to the reader: a consumer of the topic, Debezium's call-back."""
    bench.database.execute("TRUNCATE t")
    count = min(bench.rows, 10_000)
    bench.slot("peer")
    bench.slot("ours")
    with started_debezium(bench.port(), "peer", "no_data", count, "poll.interval.ms=5", "latency=1") as process:
        _steady(bench, 0, count, process)
        out, _ = process.communicate(timeout=120)
    import json

    peer = Measured(**json.loads(out.splitlines()[-1]))
    settings = bench.settings("latency", slot="ours", snapshot="never", two_phase=False, failover=False)
    bench.database.execute("SELECT pg_replication_slot_advance('ours', pg_current_wal_lsn())")
    with started_headwater(bench.log.bootstrap, settings, count):
        delays = _arrivals(bench, "latency.public.t", count)
    bench.drop("peer", "ours")
    kept = sorted(delays[int(len(delays) * LATENCY_WARM) :])
    for name, place, theirs in (("p50", 0.5, peer.p50_ms), ("p99", 0.99, peer.p99_ms)):
        Bar(f"latency at {LATENCY_RATE:,} transactions/s: {name}", 1.0, "ms", at_least=False).report(
            kept[int(len(kept) * place)] / 1000, theirs
        )


def _steady(bench: Bench, first: int, count: int, process: subprocess.Popen[bytes] | None) -> None:
    """One row a transaction at an even rate, once the reader is connected."""
    while not bench.database.execute("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'").fetchall():
        if process is not None and process.poll() is not None:
            raise RuntimeError("the reader has ended")
        time.sleep(0.05)
    time.sleep(1.0)
    begun = time.perf_counter()
    for i in range(first, first + count):
        bench.database.execute(f"INSERT INTO t SELECT {ROW} FROM generate_series(%s::int, %s::int) i", [i, i])
        ahead = (i - first + 1) / LATENCY_RATE - (time.perf_counter() - begun)
        if ahead > 0:
            time.sleep(ahead)


def _arrivals(bench: Bench, topic: str, count: int) -> list[int]:
    """The delay of each record in microseconds, as a consumer of the topic sees it."""
    import re

    from headwater.client import ensure_topics

    connection = Connection(bench.log.bootstrap)
    ensure_topics(connection, [topic], partitions=1, config={"cleanup.policy": "compact"})
    consumer = connection.consumer("latency", fetch_wait_max_ms=100)
    consumer.subscribe([topic])
    at = re.compile(rb'"after":\{[^}]*"at":(\d+)')
    delays: list[int] = []
    writer = threading.Thread(target=_steady, args=(bench, count, count, None))
    while not consumer.assignment():
        consumer.poll(0.1)
    writer.start()
    while len(delays) < count:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        found = at.search(message.value() or b"")
        if found is not None:
            delays.append(time.time_ns() // 1000 - int(found[1]))
    writer.join()
    consumer.close()
    return delays


def memory(bench: Bench) -> None:
    """A transaction in progress, large: `--rows` of 1 kB each, 2 million are 2 GB."""
    bench.database.execute("TRUNCATE t")
    bench.slot("ours")
    settings = bench.settings("memory", slot="ours", snapshot="never", two_phase=False, failover=False)
    with started_headwater(bench.log.bootstrap, settings, 1 << 60) as process:
        while not bench.database.execute("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'").fetchall():
            time.sleep(0.05)
        with bench.database.transaction():
            peak = _write_and_watch(bench, process.pid)
    bench.drop("ours")
    size = f"{bench.rows * 1024 / 1e9:.2f} GB"
    Bar(f"memory with a transaction of {size} in progress", 300, "MiB", at_least=False).report(peak, None)


def _write_and_watch(bench: Bench, pid: int) -> float:
    """The most memory that the process had while the rows were written, and a while after."""
    peak = 0.0
    for first in range(0, bench.rows, 10_000):
        bench.database.execute(
            "INSERT INTO t SELECT i, repeat(md5(i::text), 32), 0, 1 FROM generate_series(%s::int, %s::int) i",
            [first, first + 9_999],
        )
        peak = max(peak, resident_mib(pid))
    end = time.monotonic() + 5
    while time.monotonic() < end:
        peak = max(peak, resident_mib(pid))
        time.sleep(0.1)
    return peak


def _say(ours: Measured, peer: Measured, **more: float) -> None:
    shown = ", ".join(f"{name} {value:.2f}" for name, value in more.items())
    print(
        f"# ours: {ours.cpu_s:.2f} CPU-s, {ours.peak_mib:.0f} MiB; Debezium: {peer.cpu_s:.2f} CPU-s, "
        f"{peer.peak_mib:.0f} MiB{'; ' + shown if shown else ''}",
        flush=True,
    )


PARTS: dict[str, Callable[[Bench], None]] = {
    "stream": stream,
    "single": single,
    "snapshot": snapshot,
    "latency": latency,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.capture", description=__doc__)
    parser.add_argument("--only", choices=[*PARTS, "triggers"], action="append", help="a part; repeatable")
    parser.add_argument("--rows", type=int, default=500_000, help="how many rows")
    given = parser.parse_args()
    for name in given.only or [*PARTS, "triggers"]:
        if name == "triggers":
            triggers()
            continue
        with PostgresServer(settings={"max_wal_size": "8GB"}) as postgres, log_server() as log:
            PARTS[name](Bench(postgres, log, given.rows))


if __name__ == "__main__":
    main()
