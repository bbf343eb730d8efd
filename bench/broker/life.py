"""Starting, idling, and standing on a long history."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from bench.broker.servers import Server, start_headwater
from bench.kafka_peer import free_port
from bench.report import resident_mib, wait_for_port
from headwater import Broker

__all__ = ["embedded_first_ack_s", "first_ack_s", "idle_mib", "process_first_ack_s"]

_FAST = {
    "linger.ms": 0,
    "acks": "all",
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 50,
}


def first_ack_s(bootstrap: str, started: float, topic: str = "first-ack") -> float:
    """Seconds from `started` (time.monotonic) until a record is acknowledged."""
    options = {**_FAST, "topic.metadata.refresh.fast.interval.ms": 20, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **options})
    acknowledged: list[float] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is None:
            acknowledged.append(time.monotonic())

    producer.produce(topic, b"x", on_delivery=delivered)
    producer.flush(60)
    if not acknowledged:
        raise RuntimeError(f"{bootstrap} acknowledged nothing")
    return acknowledged[0] - started


def process_first_ack_s(data: Path | None = None, topic: str = "first-ack") -> float:
    """`headwater start` as a process, on an empty folder or on `data`."""
    with tempfile.TemporaryDirectory() as empty:
        port, started = free_port(), time.monotonic()
        process = start_headwater(data or Path(empty), port)
        try:
            wait_for_port(port, process)
            return first_ack_s(f"127.0.0.1:{port}", started, topic)
        finally:
            process.kill()
            process.wait()


def embedded_first_ack_s() -> float:
    """Inside this process, as the pytest fixture does: until the broker is ready."""
    started = time.monotonic()
    with Broker():
        return time.monotonic() - started


def idle_mib(server: Server) -> float:
    return resident_mib(server.process.pid)
