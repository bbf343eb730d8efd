"""The rows of the benchmarks: 200 bytes of JSON each, every key once, in no order."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from headwater.client import Connection, ensure_topics
from headwater.views.rows import Row

__all__ = ["KEY", "fill", "make_rows", "texts_of"]

KEY = "id"
ROW_BYTES = 200
PRODUCE_CHUNK = 50_000


def make_rows(count: int) -> list[Row]:
    chance = random.Random(7)
    numbers = list(range(count))
    chance.shuffle(numbers)
    rows: list[Row] = []
    for number in numbers:
        row = {KEY: f"user-{number:08d}", "count": number, "amount": number / 8, "city": f"city {number % 500}"}
        row["text"] = f"{chance.getrandbits(320):x}"
        missing = ROW_BYTES - len(json.dumps(row, separators=(",", ":")))
        row["text"] = str(row["text"]).ljust(len(str(row["text"])) + missing, "x")
        rows.append(row)
    return rows


def texts_of(rows: Sequence[Row]) -> list[bytes]:
    return [json.dumps(row, separators=(",", ":")).encode() for row in rows]


def fill(log: Connection, topic: str, rows: Sequence[Row], texts: Sequence[bytes], partitions: int = 1) -> None:
    """The rows as a topic."""
    ensure_topics(log, [topic], partitions=partitions)
    producer = log.producer(linger_ms=20, compression_type="lz4", queue_buffering_max_messages=PRODUCE_CHUNK * 4)
    for start in range(0, len(rows), PRODUCE_CHUNK):
        end = start + PRODUCE_CHUNK
        pairs = zip(rows[start:end], texts[start:end], strict=True)
        messages = [{"key": str(row[KEY]).encode(), "value": text} for row, text in pairs]
        if producer.produce_batch(topic, messages) != len(messages):
            raise RuntimeError("the producer's queue is full")
        producer.flush()
