"""From a commit in PostgreSQL to a read that has seen it."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headwater.capture import Postgres
from headwater.client import Connection
from headwater.errors import BadInput
from headwater.testing.postgres import PostgresServer
from headwater.testing.waiting import eventually
from headwater.views import Definition, NotCovered, View, ViewsRunner, create, token_of_commit
from headwater.views.captured import lsn_of
from headwater.views.tail import ends_of


def test_a_committed_row_is_read_by_the_token_of_its_commit(bootstrap: str, unique: str, tmp_path: Path) -> None:
    log, name = Connection(bootstrap), f"shop{unique}"
    with PostgresServer() as server, psycopg.connect(server.dsn, autocommit=True) as db:
        db.execute("CREATE TABLE users (id int PRIMARY KEY, name text)")
        db.execute("INSERT INTO users VALUES (1, 'Ada')")
        with Postgres(server.dsn, bootstrap=log, name=name, tables=["public.users"], partitions=2) as capture:
            capture.wait_for_snapshot()
            topic = f"{name}.public.users"
            eventually(lambda: any(ends_of(log, [topic]).offsets.values()), deadline_s=20)
            users = Definition.of("users", topic=topic, store=f"sqlite:{tmp_path}/views.db")
            create(users)
            with ViewsRunner([users], log), View(users, log) as view:
                for n in range(5):
                    db.execute("UPDATE users SET name = %s WHERE id = 1", (f"Ada {n}",))
                    found = db.execute("SELECT pg_current_wal_lsn()::text").fetchone()
                    assert found is not None
                    token = token_of_commit(log, name, found[0], topics=[topic], timeout=30)
                    assert view.get(1, at_least=token, timeout=30) == {"id": 1, "name": f"Ada {n}"}
                db.execute("DELETE FROM users")
                found = db.execute("SELECT pg_current_wal_lsn()::text").fetchone()
                assert found is not None
                assert (
                    view.get(1, at_least=token_of_commit(log, name, found[0], topics=[topic], timeout=30), timeout=30)
                    is None
                )
                with pytest.raises(NotCovered, match="has not passed"):
                    token_of_commit(log, name, "FFFF/0", topics=[topic], timeout=0.1)


def test_log_positions_are_read_as_postgresql_prints_them() -> None:
    assert lsn_of("16/B374D848") == (0x16 << 32) + 0xB374D848
    assert lsn_of(42) == 42
    with pytest.raises(BadInput, match="16/B374D848"):
        lsn_of("sixteen")
