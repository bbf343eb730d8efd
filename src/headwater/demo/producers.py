"""The people and the devices of the marketplace, writing to the log and to the shop's database as time passes.

python -m headwater.demo.producers --bootstrap HOST:PORT --dsn DSN
"""

from __future__ import annotations

import argparse
import random
import signal
import threading
import time
from collections.abc import Iterable

import psycopg

from headwater.client import Connection, Writer, ensure_topics
from headwater.demo.devices import Devices
from headwater.demo.people import People
from headwater.demo.story import TOPICS, Event, Statement, Written

__all__ = ["main"]

TICK_S = 0.1
SEARCHES_PER_TICK = 2
REQUESTS_PER_TICK = 4
EPOCH_S = 1_767_225_600  # 2026: identifiers count from there, so that a restart continues with larger ones
IDS_PER_S = 1_000  # far more than the story uses


def main() -> None:
    parser = argparse.ArgumentParser(description="the demo's people and devices")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--dsn", required=True)
    arguments = parser.parse_args()
    ended = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: ended.set())
    connection = Connection(arguments.bootstrap)
    for topic, config in TOPICS.items():
        ensure_topics(connection, [topic], config=config)
    with psycopg.connect(arguments.dsn, autocommit=True) as database, Writer(connection) as writer:
        Story(writer, database).play(ended)


class Story:
    """Plays the story in real time."""

    def __init__(self, writer: Writer, database: psycopg.Connection) -> None:
        first_id = (int(time.time()) - EPOCH_S) * IDS_PER_S
        seed = random.randrange(1 << 30)
        self._people, self._devices = People(seed, first_id), Devices(seed, first_id)
        self._writer, self._database = writer, database

    def play(self, ended: threading.Event) -> None:
        self._write(self._people.first_taxes(_now_ms()))
        while not ended.wait(TICK_S):
            now_ms = _now_ms()
            self._write(self._people.step(now_ms, SEARCHES_PER_TICK))
            self._write(self._devices.step(now_ms, REQUESTS_PER_TICK))
            self._writer.flush()

    def _write(self, happened: Iterable[Written]) -> None:
        for each in happened:
            if isinstance(each, Event):
                key, value = each.encoded()
                self._writer.write(each.topic, value, key=key)
            else:
                self._execute(each)

    def _execute(self, statement: Statement) -> None:
        self._database.execute(statement.sql.encode(), statement.parameters)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main()
