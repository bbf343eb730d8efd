"""One PostgreSQL server and one broker for all tests of capture; every test has a database of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.capture.support import Capturing, Database

from headwater.testing.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with PostgresServer(settings={"max_replication_slots": "100", "max_wal_senders": "100"}) as server:
        yield server


@pytest.fixture
def database(postgres_server: PostgresServer, unique: str) -> Iterator[Database]:
    with Database.create(postgres_server, f"db_{unique}") as made:
        yield made


@pytest.fixture
def capturing(database: Database, bootstrap: str, unique: str) -> Iterator[Capturing]:
    """Starts captures of the database and reads what they wrote."""
    with Capturing(database.dsn, bootstrap, f"c{unique}") as made:
        yield made
