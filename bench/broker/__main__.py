"""`make bench-broker`: every bar of the log and its broker, a JSON line each; ARGS="--only throughput" runs a part."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeVar

from bench.broker import history, life
from bench.broker.latency import produce_to_consume_ms
from bench.broker.servers import Server, headwater, kafka
from bench.broker.throughput import LOADS, Load, Throughput, consume, fill, produce, produce_from_many
from bench.report import Bar
from headwater.client import Connection, ensure_topics

FSYNC = ["log.flush.interval.messages=1"]  # Kafka told to fsync each append
FSYNC_LOAD = Load("1 KB, both fsync", 60_000, 1_000, 4)
READ_RECORDS, READ_BYTES = 1_000_000, 1_000

T = TypeVar("T")


def throughput() -> None:
    """Producing: ours fsyncs before each acknowledgement, Kafka acknowledges from the page cache."""
    for load in LOADS:
        ours, peer = (_with(server, partial(produce, load=load)) for server in (headwater, kafka))
        _report(f"produce {load.name}", ours, peer, 1.0)
    ours, peer = (_with(s, lambda running: produce_from_many(running, 50, 300_000, 1_000)) for s in (headwater, kafka))
    _report("produce over 50 connections", ours, peer, 1.0)


def fsync() -> None:
    """Both fsync before each acknowledgement."""
    with headwater() as server:
        ours = produce(server, FSYNC_LOAD)
    with kafka(FSYNC) as server:
        peer = produce(server, FSYNC_LOAD)
    Bar("produce 1 KB, Kafka told to fsync too: MB per broker CPU-second", 5.0, "MB/CPU-s").report(
        ours.megabytes_per_cpu_s, peer.megabytes_per_cpu_s
    )


def reading() -> None:
    ours, peer = (_with(server, _read_back) for server in (headwater, kafka))
    Bar("consume everything: MB per broker CPU-second", 1.0, "MB/CPU-s").report(
        ours.megabytes_per_cpu_s, peer.megabytes_per_cpu_s
    )


def latency() -> None:
    ours, peer = (_with(server, produce_to_consume_ms) for server in (headwater, kafka))
    for name, mine, theirs in zip(("p50", "p99"), ours, peer, strict=True):
        Bar(f"produce to consume at 10,000/s: {name}", 1.0, "ms", at_least=False).report(mine, theirs)


def starting() -> None:
    life.process_first_ack_s()  # byte code compiled, files in the page cache
    ours = min(life.process_first_ack_s() for _ in range(5))
    peer = _with(kafka, lambda running: life.first_ack_s(running.bootstrap, running.started))
    Bar("start to first acknowledged record, as a process", 0.2, "s", at_least=False).report(ours, None)
    Bar("the same, beside Kafka", 0.1, "s", at_least=False).report(ours, peer)
    life.embedded_first_ack_s()
    Bar("the fixture inside a running process: ready", 0.05, "s", at_least=False).report(
        min(life.embedded_first_ack_s() for _ in range(5)), None
    )
    idle, peer_idle = (_with(server, life.idle_mib) for server in (headwater, kafka))
    Bar("idle memory", 1 / 6, "MiB", at_least=False).report(idle, peer_idle)


def long_history() -> None:
    Bar("start with 10 GB of log after kill -9", 2.0, "s", at_least=False).report(history.restart_after_kill_s(), None)
    little, much = history.append_rate_per_s(1_000), history.append_rate_per_s(100_000_000_000)
    Bar("appends with 100 GB (sparse) behind them against 1 KB", 0.95, "records/s").report(much, little)


PARTS: dict[str, Callable[[], None]] = {
    "throughput": throughput,
    "fsync": fsync,
    "reading": reading,
    "latency": latency,
    "starting": starting,
    "history": long_history,
}


def _with(server: Callable[[], AbstractContextManager[Server]], run: Callable[[Server], T]) -> T:
    with server() as running:
        return run(running)


def _read_back(server: Server) -> Throughput:
    topic = "read-back"
    ensure_topics(Connection(server.bootstrap), [topic], partitions=4)
    fill(server, topic, READ_RECORDS, READ_BYTES)
    return consume(server, topic, READ_RECORDS, READ_BYTES)


def _report(name: str, ours: Throughput, peer: Throughput, bar: float) -> None:
    Bar(f"{name}: MB per broker CPU-second", bar, "MB/CPU-s").report(ours.megabytes_per_cpu_s, peer.megabytes_per_cpu_s)
    Bar(f"{name}: MB/s", bar, "MB/s").report(ours.megabytes_per_s, peer.megabytes_per_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[*PARTS], help="one part of it")
    only = parser.parse_args().only
    for name, part in PARTS.items():
        if only in (None, name):
            part()
    return 0


if __name__ == "__main__":
    sys.exit(main())
