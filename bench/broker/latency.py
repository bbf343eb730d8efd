"""From produce to consume at a steady rate: when a record is handed to the producer to when the consumer has it."""

from __future__ import annotations

import struct
import threading
import time

import numpy as np
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from bench.broker.servers import Server
from headwater.client import Connection, ensure_topics

__all__ = ["produce_to_consume_ms"]

RATE_PER_S = 10_000
SECONDS = 15
SETTLING_SECONDS = 5  # left out of the figures
TICK_S = 0.001  # a burst of RATE_PER_S * TICK_S records


def produce_to_consume_ms(server: Server, bytes_each: int = 1_000) -> tuple[float, float]:
    """p50 and p99, milliseconds."""
    topic = f"latency-{time.time_ns()}"
    ensure_topics(Connection(server.bootstrap), [topic], partitions=1)
    seen: list[int] = []
    ready, total = threading.Event(), RATE_PER_S * SECONDS
    reader = threading.Thread(target=_read, args=(server, topic, total, ready, seen))
    reader.start()
    ready.wait(30)
    _write(server, topic, total, bytes_each)
    reader.join(60)
    measured = np.array(seen[RATE_PER_S * SETTLING_SECONDS :]) / 1e6
    return float(np.percentile(measured, 50)), float(np.percentile(measured, 99))


def _write(server: Server, topic: str, total: int, bytes_each: int) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all", "linger.ms": 0})
    padding, burst = b"x" * (bytes_each - 8), int(RATE_PER_S * TICK_S)
    due = time.perf_counter()
    for _ in range(total // burst):
        due += TICK_S
        for _ in range(burst):
            producer.produce(topic, struct.pack("<q", time.monotonic_ns()) + padding)
        producer.poll(max(0.0, due - time.perf_counter()))
    producer.flush(60)


def _read(server: Server, topic: str, total: int, ready: threading.Event, seen: list[int]) -> None:
    options = {"bootstrap.servers": server.bootstrap, "group.id": topic, "fetch.wait.max.ms": 100}
    consumer = Consumer({**options, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    consumer.poll(1.0)
    ready.set()
    end = time.monotonic() + SECONDS + 60
    while len(seen) < total and time.monotonic() < end:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            body = message.value()
            assert isinstance(body, bytes)
            seen.append(time.monotonic_ns() - struct.unpack_from("<q", body)[0])
    consumer.close()
