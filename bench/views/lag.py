"""How long after a change was produced a reader sees it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import Any

from headwater.client import Connection, ensure_topics
from headwater.views import Definition, View, ViewsRunner, create

__all__ = ["lag_p99_ms"]

RATE, SECONDS, WARM_UP_S = 1_000, 10, 2
LOOK_PAUSE_S = 0.0005  # between two looks of the reader


def lag_p99_ms(log: Connection, topic: str, address: str, options: Mapping[str, Any]) -> float:
    ensure_topics(log, [topic], partitions=1)
    definition = Definition.of("lag", topic=topic, store=address, key=["id"], options=dict(options))
    create(definition)
    sent: list[float] = []  # by offset
    ended = threading.Event()

    def produce() -> None:
        producer = log.producer(linger_ms=1)
        begin = time.perf_counter()
        for number in range(RATE * (SECONDS + WARM_UP_S)):
            while time.perf_counter() < begin + number / RATE:
                producer.poll(0.0005)
            name = f"user-{number % 5_000}"
            row = {"id": name, "n": number, "text": "x" * 150, "city": "Basel"}
            sent.append(time.perf_counter())
            producer.produce(topic, json.dumps(row).encode(), name)
        producer.flush()
        ended.set()

    lags: list[float] = []
    with ViewsRunner([definition], log), View(definition, log) as view:
        writer = threading.Thread(target=produce)
        writer.start()
        seen = 0
        while seen < RATE * (SECONDS + WARM_UP_S):
            reached = view._covered().offsets.get((topic, 0), 0)
            now = time.perf_counter()
            lags += [now - sent[offset] for offset in range(seen, reached)]
            seen = max(seen, reached)
            time.sleep(LOOK_PAUSE_S)
        writer.join()
    measured = sorted(lags[RATE * WARM_UP_S :])
    return measured[int(len(measured) * 0.99)] * 1_000
