"""The same workload through Debezium's engine and through us: both outputs, event by event.

Differences that are meant, and why, are in `normalised`: everything else must be equal.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bench.capture.peers import debezium
from tests.capture.support import Capturing, Database
from tests.capture.test_postgres_types import TYPES, VALUES, declared

from headwater.testing.postgres import PostgresServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

# Where Debezium's form is not ours, and why: it leaves the column out (we send the server's text: nothing is dropped),
# or loses something. Everything that is not listed must be equal.
LEFT_OUT = (
    "line, lseg, box, path, polygon, circle, int4multirange, tsquery, pg_lsn, xid8, regclass, interval[], money[],"
    " varbit[], point[], name[], box[], positive[], person, person[]"
)
LOSES = {
    "name": "sends null",
    "int8[]": "sends null for each inner array",
    "int2[]": "sends null for each inner array",
    "numeric": "drops zeros at the end: -0.10 is sent as -0.1",
    "numeric(3,-2)": "takes the scale for 2046",
    "date": "infinities overflow into a day of the year -5877641",
}

NOT_OURS = "message.prefix.exclude.list=headwater.*"  # the markers of our snapshots, which are in the database's log

WORKLOAD = [
    "INSERT INTO people VALUES (1, 'Ada', 36), (2, 'Bob', 7)",
    "UPDATE people SET age = 37 WHERE id = 1",
    "UPDATE people SET id = 3 WHERE id = 2",
    "DELETE FROM people WHERE id = 1",
    "INSERT INTO pairs VALUES (1, 'a', 0.5), (2, 'b', NULL)",
    "UPDATE pairs SET v = 1.25",
    "DELETE FROM pairs WHERE a = 1",
    "ALTER TABLE people ADD mail text",
    "INSERT INTO people VALUES (9, 'Eve', NULL, 'e@x')",
    "ALTER TABLE people DROP age",
    "UPDATE people SET mail = NULL WHERE id = 9",
    "SELECT pg_logical_emit_message(true, 'app', 'hello')",
]


def setting(server: PostgresServer) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as database:
        database.execute("CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL DEFAULT 'nobody', age int)")
        database.execute("CREATE TABLE pairs (a int, b text, v numeric(6,2), PRIMARY KEY (a, b))")
        database.execute("ALTER TABLE pairs REPLICA IDENTITY FULL")
        database.execute("CREATE PUBLICATION bench FOR TABLE people, pairs WITH (publish_via_partition_root = true)")
        database.execute("SELECT pg_create_logical_replication_slot('peer', 'pgoutput')")


def normalised(topic: str, key: Any, value: Any) -> Any:
    """Without what differs between two readings of one event: times of processing, names and versions."""
    table = topic.split(".", 1)[1]
    if value is None:
        return table, key, None
    value = {k: v for k, v in value.items() if k not in ("ts_ms", "ts_us", "ts_ns")}
    source = {
        k: v
        for k, v in value["source"].items()
        # `sequence` begins with the last commit that this reader saw: null after a start
        if k not in ("version", "name", "sequence")
    }
    # Debezium leaves these out unless it knows of a replication origin; for us they are always there, as null
    source = {k: v for k, v in source.items() if k not in ("origin", "origin_lsn")}
    return table, key, {**value, "source": source}


def of_debezium(file: Path) -> list[Any]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [normalised(line["topic"], line["key"], line["value"]) for line in lines]


@pytest.fixture
def server() -> Any:
    with PostgresServer() as made:
        yield made


def test_the_same_workload_gives_the_same_events(
    server: PostgresServer, bootstrap: str, unique: str, tmp_path: Path
) -> None:
    setting(server)
    database = Database(server, "postgres")
    database.connection = database.connect()
    with Capturing(server.dsn, bootstrap, f"c{unique}") as capturing:
        capturing.start(transaction_topic=False)
        for statement in WORKLOAD:
            database.run(statement)
        ours = [
            normalised(capturing.topic(name), e.key, e.value)
            for name, count in (("people", 10), ("pairs", 6), (".message", 1))
            for e in capturing.until(name, count)
        ]
    output = tmp_path / "debezium"
    debezium(server.port, "peer", "no_data", len(ours), NOT_OURS, output=str(output))
    theirs = of_debezium(output)
    for table in ("public.people", "public.pairs", "message"):
        mine, peer = ([e for e in events if e[0] == table] for events in (ours, theirs))
        assert mine == peer, (mine, peer)
    database.connection.close()


def test_every_type_has_the_same_form(server: PostgresServer, bootstrap: str, unique: str, tmp_path: Path) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        for statement in TYPES:
            admin.execute(statement)
        columns = ", ".join(f"c{i} {declared(kind)}" for i, (kind, _, _) in enumerate(VALUES))
        admin.execute(f"CREATE TABLE wide (id int PRIMARY KEY, {columns})")
        admin.execute("CREATE PUBLICATION bench FOR TABLE wide WITH (publish_via_partition_root = true)")
        admin.execute("SELECT pg_create_logical_replication_slot('peer', 'pgoutput')")
        with Capturing(server.dsn, bootstrap, f"c{unique}") as capturing:
            capturing.start()
            admin.execute(f"INSERT INTO wide VALUES (1, {', '.join(value for _, value, _ in VALUES)})")
            (event,) = capturing.until("wide", 1)
    output = tmp_path / "debezium"
    debezium(server.port, "peer", "no_data", 1, NOT_OURS, output=str(output))
    theirs = json.loads(output.read_text().splitlines()[0])["value"]["after"]
    different = {
        (kind, value): (event.after[f"c{i}"], theirs.get(f"c{i}", "left out"))
        for i, (kind, value, _) in enumerate(VALUES)
        if theirs.get(f"c{i}", "left out") != event.after[f"c{i}"]
    }
    assert {kind for kind, _ in different} == {*LEFT_OUT.split(", "), *LOSES}, different
    left_out = {kind for (kind, _), (_, peer) in different.items() if peer == "left out"}
    assert left_out == {*LEFT_OUT.split(", ")}
