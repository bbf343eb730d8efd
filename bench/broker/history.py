"""Appends with little and with much history behind them, and starting again on 10 GB after `kill -9`.

The history is sparse: real segments and indexes, whose middle is a hole that takes no disk. It is made by appending a
few batches a segment to our own log and stretching the closed segments' files, which appends and a start never read.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from bench.broker.life import process_first_ack_s
from bench.broker.servers import start_headwater
from bench.kafka_peer import free_port
from bench.report import wait_for_port
from headwater.client import Connection, ensure_topics

__all__ = ["append_rate_per_s", "restart_after_kill_s"]

SEGMENT_BYTES = 1 << 30
RECORDS = 200_000
RECORD_BYTES = 1_000


def append_rate_per_s(history_bytes: int) -> float:
    """Records a second into a partition that has `history_bytes` behind it; the better of two runs."""
    with tempfile.TemporaryDirectory() as folder:
        data, port = Path(folder), free_port()
        process = start_headwater(data, port, [f"log.segment.bytes={SEGMENT_BYTES}"])
        wait_for_port(port, process)
        ensure_topics(Connection(f"127.0.0.1:{port}"), ["history"], partitions=1, config={"segment.bytes": "1048576"})
        _produce(port, max(2, min(history_bytes // SEGMENT_BYTES, 120)) * 1_048)
        process.terminate()
        process.wait(30)
        _stretch(data / "history-0", history_bytes)
        process = start_headwater(data, port)
        try:
            wait_for_port(port, process)
            _produce(port, RECORDS // 4)
            return max(RECORDS / _produce(port, RECORDS) for _ in range(2))
        finally:
            process.kill()
            process.wait()


def restart_after_kill_s(gigabytes: int = 10) -> float:
    """From `exec` to the first acknowledged record, on a log that was killed while it was written."""
    with tempfile.TemporaryDirectory() as folder:
        data, port = Path(folder), free_port()
        process = start_headwater(data, port, ["log.segment.bytes=268435456"])
        wait_for_port(port, process)
        ensure_topics(Connection(f"127.0.0.1:{port}"), ["big"], partitions=4)
        _produce(port, gigabytes * 1_000_000, topic="big")
        process.kill()
        process.wait()
        return process_first_ack_s(data, topic="big")


def _produce(port: int, records: int, topic: str = "history") -> float:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "acks": "all", "linger.ms": 5})
    payload, start = b"x" * RECORD_BYTES, time.perf_counter()
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, payload)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(120)
    return time.perf_counter() - start


def _stretch(partition: Path, history_bytes: int) -> None:
    """Closed segments grow by a hole at their end, up to `history_bytes` in all."""
    closed = sorted(partition.glob("*.log"))[:-1]
    for segment in closed:
        with segment.open("r+b") as file:
            file.truncate(max(segment.stat().st_size, history_bytes // len(closed)))
