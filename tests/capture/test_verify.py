"""The topic as a full copy: rebuilt from offset 0 and compared with the database, row by row."""

from __future__ import annotations

import random
import threading

import pytest
from tests.capture.support import Capturing, Database
from tests.capture.test_settings import LARGE

from headwater.capture.errors import CaptureError
from headwater.capture.rebuild import rebuild
from headwater.client import Connection


@pytest.fixture
def rows(database: Database) -> Database:
    database.run("CREATE TABLE rows (id int PRIMARY KEY, v int, text text)")
    database.run("INSERT INTO rows SELECT i, i, 'x' FROM generate_series(1, 500) i")
    return database


@pytest.mark.parametrize("form", ["debezium", "debezium-schema", "flat"])
def test_topic_and_table_are_equal(rows: Database, capturing: Capturing, form: str) -> None:
    running = capturing.start(form=form, chunk_rows=100)
    rows.run("UPDATE rows SET v = v + 1 WHERE id < 100", "DELETE FROM rows WHERE id > 400", "UPDATE rows SET id = -id")
    (verdict,) = running.verify()
    assert verdict.describe() | {"examples": []} == {
        "table": "public.rows",
        "topic": capturing.topic("rows"),
        "equal": 400,
        "missing": 0,
        "extra": 0,
        "different": 0,
        "older": 0,
        "changing": 0,
        "examples": [],
        "same": True,
    }


def test_a_table_without_a_key_is_compared_by_its_rows(database: Database, capturing: Capturing) -> None:
    database.run("CREATE TABLE log (v int)", "ALTER TABLE log REPLICA IDENTITY FULL")
    database.run("INSERT INTO log SELECT i % 5 FROM generate_series(1, 50) i")
    running = capturing.start()
    database.run("INSERT INTO log VALUES (1), (1)", "UPDATE log SET v = 9 WHERE v = 2", "DELETE FROM log WHERE v = 3")
    (verdict,) = running.verify()
    assert (verdict.equal, verdict.same) == (42, True)


def test_truncates_and_large_values_are_followed(rows: Database, capturing: Capturing) -> None:
    running = capturing.start(partitions=3)
    rows.run("TRUNCATE rows", f"INSERT INTO rows SELECT i, 0, {LARGE} FROM generate_series(1, 20) i")
    rows.run("UPDATE rows SET v = 5 WHERE id < 10")
    (verdict,) = running.verify()
    assert (verdict.equal, verdict.same) == (20, True)


def test_it_holds_while_the_table_goes_on_changing(rows: Database, capturing: Capturing) -> None:
    running = capturing.start()
    stop = threading.Event()

    def change() -> None:
        chance = random.Random(1)
        with rows.connect() as connection:
            while not stop.is_set():
                connection.execute("UPDATE rows SET v = v + 1 WHERE id %% 50 = %s", [chance.randrange(50)])
                connection.execute("DELETE FROM rows WHERE id = %s", [chance.randrange(500)])

    worker = threading.Thread(target=change)
    worker.start()
    try:
        verdicts = [running.verify()[0] for _ in range(3)]
    finally:
        stop.set()
        worker.join()
    assert all(verdict.same for verdict in verdicts), verdicts


def test_every_kind_of_difference_is_found(rows: Database, capturing: Capturing, bootstrap: str) -> None:
    running = capturing.start(form="flat")
    running.verify()
    producer = Connection(bootstrap).producer()
    topic = capturing.topic("rows")
    producer.produce(topic, None, b'{"id":1}')
    producer.produce(topic, b'{"id":2,"v":-1,"text":"x"}', b'{"id":2}')
    producer.produce(topic, b'{"id":999,"v":0,"text":"x"}', b'{"id":999}')
    producer.flush()
    (verdict,) = running.verify()
    assert (verdict.missing, verdict.different, verdict.extra, verdict.same) == (1, 1, 1, False)
    assert verdict.examples[0] == 'not in the topic: {"id":1}'


def test_rows_of_an_older_version_of_the_table_are_told_apart(rows: Database, capturing: Capturing) -> None:
    """PostgreSQL gives them the new column's default, and says so to nobody."""
    running = capturing.start()
    rows.run("ALTER TABLE rows ADD more int DEFAULT 7", "UPDATE rows SET v = 0 WHERE id <= 100")
    (verdict,) = running.verify()
    assert (verdict.equal, verdict.older, verdict.different, verdict.same) == (100, 400, 0, True)


def test_a_capture_that_does_not_run_is_named(rows: Database, capturing: Capturing) -> None:
    running = capturing.start()
    capturing.stop()
    with pytest.raises(CaptureError, match=r"has not reached .*Is it running"):
        running.verify(timeout_s=0.5)


def test_a_table_is_rebuilt_in_two_lines(rows: Database, capturing: Capturing, bootstrap: str) -> None:
    running = capturing.start()
    rows.run("DELETE FROM rows WHERE id > 2")
    running.verify()
    with rebuild(bootstrap, capturing.topic("rows")) as copy:
        assert len(copy) == 2
        assert list(copy.rows()) == [{"id": 1, "v": 1, "text": "x"}, {"id": 2, "v": 2, "text": "x"}]


def test_what_is_no_change_event_is_named(bootstrap: str, unique: str) -> None:
    producer = Connection(bootstrap).producer()
    producer.produce(f"t-{unique}", b"not json", b"1")
    producer.flush()
    with pytest.raises(CaptureError, match="offset 0: not a change event"):
        rebuild(bootstrap, f"t-{unique}")
