"""The shop's database: a PostgreSQL from a wheel, in the foreground, on a port and in a folder of the demo's own.

python -m headwater.demo.database --folder DIR --port PORT
"""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

import psycopg

from headwater.demo.people import opening
from headwater.demo.story import DATABASE_SCHEMA
from headwater.testing.postgres import PostgresServer

__all__ = ["main"]

WATCH_INTERVAL_S = 0.2  # how soon the end of the server ends this process too, so that the supervisor starts both again

# a demo's data should survive the machine; what a throw-away server leaves out is put back
SETTINGS = {"fsync": "on", "full_page_writes": "on", "max_wal_size": "1GB"}


def main() -> None:
    parser = argparse.ArgumentParser(description="the demo's database")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    ended = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: ended.set())
    server = PostgresServer(settings=SETTINGS, data=arguments.folder)
    server.port = arguments.port
    server.start()
    prepare(server.dsn)
    while not ended.wait(WATCH_INTERVAL_S) and server.running:
        pass
    server.stop()


def prepare(dsn: str) -> None:
    """Tables, catalogue and profiles, where they are not there yet."""
    with psycopg.connect(dsn) as connection:
        connection.execute(DATABASE_SCHEMA.encode())
        for statement in opening():
            connection.execute(statement.sql.encode(), statement.parameters)


if __name__ == "__main__":
    main()
