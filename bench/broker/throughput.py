"""Producing and reading back with Kafka's own Java tools: MB/s, and MB per second of the broker's CPU."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from bench.broker.servers import Server
from bench.kafka_peer import run_tool
from headwater.client import Connection, ensure_topics

__all__ = ["LOADS", "Load", "Throughput", "consume", "fill", "produce", "produce_from_many"]

MIB = 1_000_000.0  # the tables of the field are in decimal megabytes


@dataclass(frozen=True, slots=True)
class Load:
    """A producer's workload."""

    name: str
    records: int
    bytes_each: int
    partitions: int
    options: tuple[str, ...] = ()  # of the Java producer


LOADS = (
    Load("1 KB", 400_000, 1_000, 4),
    Load("100 B", 2_000_000, 100, 4),
    Load("one record a request", 40_000, 1_000, 1, ("linger.ms=0", "batch.size=1")),
    Load("1,000 partitions", 400_000, 1_000, 1_000),
)
WARM_UP_SHARE = 4  # a warm-up of a quarter of the records before the measured run: the JVMs compile


@dataclass(frozen=True, slots=True)
class Throughput:
    megabytes_per_s: float
    megabytes_per_cpu_s: float


def produce(server: Server, load: Load) -> Throughput:
    """The Java producer with its defaults and acks=all."""
    topic = f"bench-{load.name.replace(' ', '-').replace(',', '')}-{time.time_ns()}"
    ensure_topics(Connection(server.bootstrap), [topic], partitions=load.partitions)
    _perf(server, topic, load, load.records // WARM_UP_SHARE)
    return _measured(server, load.records * load.bytes_each, lambda: _perf(server, topic, load, load.records))


def fill(server: Server, topic: str, records: int, bytes_each: int) -> None:
    """Records to be read back."""
    _perf(server, topic, Load("fill", records, bytes_each, 0), records)


def _perf(server: Server, topic: str, load: Load, records: int) -> float:
    """Seconds that the tool itself reports for its records, its JVM's start left out."""
    printed = run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(load.bytes_each), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={server.bootstrap}", "acks=all", *load.options),
    )
    rate = re.findall(r"([\d.]+) records/sec", printed)
    if not rate:
        raise RuntimeError(f"the producer's report was not understood: {printed[-500:]}")
    return records / float(rate[-1])


def consume(server: Server, topic: str, records: int, bytes_each: int) -> Throughput:
    """Everything read back by the Java consumer's performance tool."""

    def run() -> float:
        printed = run_tool(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--topic", topic, "--bootstrap-server", server.bootstrap, "--num-records", str(records)),
            *("--timeout", "60000", "--hide-header"),
        )
        fetch_ms = float(printed.strip().splitlines()[-1].split(",")[7])
        return fetch_ms / 1_000

    run()  # warm: page cache and JIT of the broker
    return _measured(server, records * bytes_each, run)


def produce_from_many(server: Server, connections: int, records: int, bytes_each: int) -> Throughput:
    """Many librdkafka producers at once, one connection each to the broker's data port."""
    topic = f"bench-many-{time.time_ns()}"
    ensure_topics(Connection(server.bootstrap), [topic], partitions=4)
    return _measured(server, records * bytes_each, lambda: _many(server, topic, connections, records, bytes_each))


def _many(server: Server, topic: str, connections: int, records: int, bytes_each: int) -> float:
    payload, failed = b"x" * bytes_each, list[KafkaError]()

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    def run() -> None:
        producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all", "linger.ms": 5})
        for _ in range(records // connections):
            producer.produce(topic, payload, on_delivery=delivered)
            producer.poll(0)
        producer.flush(120)

    threads = [threading.Thread(target=run) for _ in range(connections)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise RuntimeError(f"{len(failed)} records were not acknowledged: {failed[0]}")
    return time.perf_counter() - start


def _measured(server: Server, total_bytes: int, run: Callable[[], float]) -> Throughput:
    cpu = server.cpu_s()
    seconds = run()
    used = server.cpu_s() - cpu
    return Throughput(total_bytes / MIB / seconds, total_bytes / MIB / used)
