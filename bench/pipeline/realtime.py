"""Real-time Mode through our session and topics: milliseconds from a producer's clock to a consumer's.

A producer sends 1,000 records a second, one at a time, with the time in them; a consumer reads what the query makes of
them and takes the difference. The query runs in a process of its own (`python -m bench.pipeline.realtime CASE ...`), as
it would; batches are a minute long, and the measured minute contains a batch's end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from bench.report import Bar
from headwater import Broker
from headwater.client import Connection, ensure_topics
from headwater.pipeline.stateful import Batch, Column, Operator, State, TableSpec, Time, stateful

RATE_PER_S = 1_000
WARM_S = float(os.environ.get("BENCH_WARM_S", "25"))
MEASURED_S = float(os.environ.get("BENCH_MEASURED_S", "60"))
BATCH = "60 seconds"
KEYS = 1_000
PARTITIONS = 2
START_TIMEOUT_S = 120.0

# case -> what it is, p50 and p99 in milliseconds
CASES = {
    "expressions": ("built-in expressions", 20, 60),
    "copartitioned": ("a custom operator on a co-partitioned topic", 25, 80),
    "shuffled": ("a keyed running aggregate with a shuffle", 100, 200),
}


class RunningTotal(Operator):
    """The total of each key, and when the oldest of the rows in it was sent."""

    key = ("user",)
    state = (TableSpec.of("totals", [("user", pa.string())], [Column("total", pa.int64(), 0)]),)

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        return pa.schema([("user", pa.string()), ("total", pa.int64()), ("sent", pa.int64())])

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        groups = batch.groups("user")
        totals = state["totals"].get(groups.keys).numpy("total").copy()
        np.add.at(totals, groups.index, batch.column("amount").to_numpy())
        state["totals"].put(groups.keys, {"total": totals})
        sent = np.full(len(groups), np.iinfo(np.int64).max)
        np.minimum.at(sent, groups.index, batch.column("sent").to_numpy())
        return groups.table(total=totals, sent=sent)


def run() -> None:
    with Broker(num_partitions=PARTITIONS) as broker:
        for case, (name, p50, p99) in CASES.items():
            found = measure(Connection(broker.bootstrap_servers), case)
            Bar(f"Real-time Mode at 1,000/s, {name}: p50", p50, "ms", at_least=False).report(found[0], None)
            Bar(f"Real-time Mode at 1,000/s, {name}: p99", p99, "ms", at_least=False).report(found[1], None)


def measure(log: Connection, case: str) -> tuple[float, float]:
    """p50 and p99 of the records sent in the measured time, in milliseconds."""
    source, sink = f"{case}-in", f"{case}-out"
    ensure_topics(log, [source, sink], partitions=PARTITIONS)
    end = threading.Event()
    with query(log, case, source, sink) as process, reading(log, sink) as found:
        feeder = threading.Thread(target=_feed, args=(log, source, end))
        feeder.start()
        try:
            _wait_for_rows(found, process)
            time.sleep(WARM_S)
            start = time.time()
            time.sleep(MEASURED_S)
            stop = time.time()
        finally:
            end.set()
            feeder.join()
        time.sleep(1)  # for what is still on its way
    sent, latency = np.array(list(found), dtype=np.float64).T
    measured = latency[(sent >= start) & (sent < stop)]
    print(json.dumps({"case": case, "sent": RATE_PER_S * MEASURED_S, "rows": len(measured)}), file=sys.stderr)
    return float(np.percentile(measured, 50)) * 1e3, float(np.percentile(measured, 99)) * 1e3


@contextmanager
def query(log: Connection, case: str, source: str, sink: str) -> Iterator[subprocess.Popen[bytes]]:
    """The query in its process, from its start to its end; an error if it ends before that."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.pipeline.realtime", case, log.bootstrap_servers, source, sink, folder]
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        try:
            yield process
        finally:
            process.communicate()  # it ends when its standard input does
        if process.returncode != 0:
            raise RuntimeError(f"the query of {case} ended with {process.returncode}")


@contextmanager
def reading(log: Connection, sink: str) -> Iterator[list[tuple[float, float]]]:
    """When each row was sent, and how long it took to be here, in seconds."""
    found: list[tuple[float, float]] = []
    end = threading.Event()

    def read() -> None:
        consumer = log.consumer("bench", fetch_wait_max_ms=100)
        consumer.subscribe([sink])
        while not end.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                now = time.time()
                sent = json.loads(message.value() or b"")["sent"] / 1e6
                found.append((sent, now - sent))
        consumer.close()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield found
    finally:
        end.set()
        reader.join()


def _feed(log: Connection, source: str, end: threading.Event) -> None:
    producer = log.producer(linger_ms=0)
    start, number = time.perf_counter(), 0
    while not end.is_set():
        while number < (time.perf_counter() - start) * RATE_PER_S:
            user = f"u{number % KEYS}"
            row = {"user": user, "amount": 1, "sent": int(time.time() * 1e6)}
            producer.produce(source, json.dumps(row).encode(), user.encode())
            number += 1
        producer.poll(0)
        time.sleep(0.0005)
    producer.flush()


def _wait_for_rows(found: list[tuple[float, float]], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not found:
        if process.poll() is not None:
            raise RuntimeError(f"the query ended with {process.returncode} before it gave a row")
        if time.monotonic() > deadline:
            raise TimeoutError(f"the query gave no row within {START_TIMEOUT_S:.0f} s")
        time.sleep(0.1)


def serve(case: str, bootstrap: str, source: str, sink: str, folder: str) -> None:
    """The query, until standard input ends."""
    from headwater.pipeline import Json, session, to_records, topic, write_topic

    quiet = {"spark.log.level": "OFF"}  # stopping a query of this mode interrupts its tasks, which say so at length
    spark = session("bench-realtime", realtime=True, shuffle_partitions=PARTITIONS, settings=quiet)
    rows: Any = topic(
        spark, source, connection=bootstrap, value=Json("user string, amount bigint, sent bigint"), start="latest"
    )
    if case == "expressions":
        rows = rows.selectExpr("upper(user) as user", "amount * 2 as amount", "sent")
    else:
        how: dict[str, Any] = {"copartitioned": True} if case == "copartitioned" else {"partitions": PARTITIONS}
        rows = stateful(rows, RunningTotal(), checkpoint=folder, realtime=True, **how)
    records = to_records(rows, key=["user"])
    query = write_topic(records, sink, connection=bootstrap, query=case, checkpoint=folder, realtime=BATCH)
    sys.stdin.read()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    serve(*sys.argv[1:])
