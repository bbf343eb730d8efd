"""What is SQLite's own: values of any type in any column, the changelog and its clean-up, triggers that go missing."""

from __future__ import annotations

import base64
import random
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.capture.support import DEADLINE_S, Capturing, File
from tests.capture.test_command import following as following_process
from tests.capture.test_postgres_snapshot import rebuilt

from headwater.capture import GapDetected, SourceLost
from headwater.errors import SettingError
from headwater.testing import eventually


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    made = File(tmp_path / "shop.db")
    made.run("CREATE TABLE rows (id INTEGER PRIMARY KEY, v)")
    yield made
    made.connection.close()


@pytest.fixture
def following(file: File, bootstrap: str, unique: str) -> Iterator[Capturing]:
    with Capturing(file.path, bootstrap, f"c{unique}") as made:
        yield made


VALUES = [
    ("9223372036854775807", 2**63 - 1),
    ("-9223372036854775808", -(2**63)),
    ("0.1", 0.1),
    ("5e-324", 5e-324),
    ("1.7976931348623157e308", 1.7976931348623157e308),
    ("0.1 + 0.2", 0.1 + 0.2),
    ("9e999", "Infinity"),
    ("-9e999", "-Infinity"),
    ("NULL", None),
    ("''", ""),
    ("'12'", "12"),
    ("X'00ff'", base64.b64encode(b"\x00\xff").decode()),
    ("X''", ""),
    ("zeroblob(3)", base64.b64encode(bytes(3)).decode()),
    ("'line' || char(10) || 'é'", "line\né"),
]


def test_every_value_is_exact_in_the_snapshot_and_in_the_stream(file: File, following: Capturing) -> None:
    for i, (sql, _) in enumerate(VALUES):
        file.run(f"INSERT INTO rows VALUES ({i}, {sql})")
    following.start()
    for i, (sql, _) in enumerate(VALUES):
        file.run(f"INSERT INTO rows VALUES ({100 + i}, {sql})")
    found = [e.after["v"] for e in following.until("rows", 2 * len(VALUES))]
    expected = [value for _, value in VALUES]
    assert found[: len(VALUES)] == expected
    assert found[len(VALUES) :] == expected


def test_an_update_has_both_rows(file: File, following: Capturing) -> None:
    file.run("INSERT INTO rows VALUES (1, 'a')")
    following.start()
    file.run("UPDATE rows SET v = 'b'", "DELETE FROM rows")
    _, update, delete, _ = following.until("rows", 4)
    assert (update.before, update.after) == ({"id": 1, "v": "a"}, {"id": 1, "v": "b"})
    assert delete.before == {"id": 1, "v": "b"}


def test_tables_of_every_kind_are_read_in_chunks(file: File, following: Capturing) -> None:
    file.run(
        "CREATE TABLE bare (v)",
        "CREATE TABLE texts (k TEXT PRIMARY KEY, v) WITHOUT ROWID",
        "CREATE TABLE pairs (a INT, b BLOB, v, PRIMARY KEY (a, b)) WITHOUT ROWID",
        "CREATE TABLE shadow (_rowid_ TEXT PRIMARY KEY, v)",
        'CREATE TABLE "odd ""name" ("the key" INTEGER PRIMARY KEY, "%s" TEXT)',
        "CREATE TABLE sums (id INTEGER PRIMARY KEY, a INT, twice INT GENERATED ALWAYS AS (a * 2) STORED)",
    )
    for i in range(10):
        file.run(
            f"INSERT INTO bare VALUES ({i})",
            f"INSERT INTO texts VALUES ('k{i}', {i})",
            f"INSERT INTO pairs VALUES ({i % 2}, X'0{i}', {i})",
            f"INSERT INTO shadow VALUES ('k{i}', {i})",
            f'INSERT INTO "odd ""name" VALUES ({i}, \'x\')',
            f"INSERT INTO sums (id, a) VALUES ({i}, {i})",
        )
    following.start(chunk_rows=3)
    assert sorted(e.after["v"] for e in following.until("bare", 10)) == [*range(10)]
    assert {e.key["k"] for e in following.until("texts", 10)} == {f"k{i}" for i in range(10)}
    assert len({str(e.key) for e in following.until("pairs", 10)}) == 10
    assert len({str(e.key) for e in following.until("shadow", 10)}) == 10
    assert following.until("odd__name", 10)[0].after == {"the key": 0, "%s": "x"}
    assert following.until("sums", 10)[3].after == {"id": 3, "a": 3}


def log_rows(file: File) -> int:
    return int(file.rows("SELECT count(*) FROM _headwater_log")[0][0])


def test_the_changelog_is_emptied_once_it_is_in_the_log(file: File, following: Capturing) -> None:
    following.start()
    file.run(
        "INSERT INTO rows WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000) SELECT i, 0 FROM n"
    )
    following.until("rows", 3000)
    eventually(lambda: log_rows(file) == 0, deadline_s=DEADLINE_S, what="an empty changelog")
    file.run("INSERT INTO rows VALUES (-1, 0)")
    following.until("rows", 3001)


def test_the_changelog_keeps_what_another_capture_has_not_read(
    file: File, following: Capturing, bootstrap: str, unique: str
) -> None:
    with Capturing(file.path, bootstrap, f"d{unique}") as slow:
        slow.start()
        slow.stop()
        following.start()
        file.run("INSERT INTO rows VALUES (1, 0)")
        following.until("rows", 1)
        following.stop()
        assert log_rows(file) == 1
        slow.start()
        slow.until("rows", 1)
        slow.stop()
        assert log_rows(file) == 0


def test_a_trigger_that_was_dropped_makes_the_table_be_read_again(file: File, following: Capturing) -> None:
    """What happened without it is not known."""
    file.run("INSERT INTO rows VALUES (1, 'a'), (2, 'b')")
    following.start()
    file.run("BEGIN", "DROP TRIGGER _headwater_update_rows", "UPDATE rows SET v = 'lost' WHERE id = 1", "COMMIT")
    eventually(lambda: rebuilt(following.events("rows")) == {1: "lost", 2: "b"}, deadline_s=DEADLINE_S)
    assert "t" in [e.op for e in following.events("rows")]
    file.run("UPDATE rows SET v = 'c' WHERE id = 2")
    eventually(lambda: rebuilt(following.events("rows")) == {1: "lost", 2: "c"}, deadline_s=DEADLINE_S)


def test_a_table_dropped_and_made_again(file: File, following: Capturing) -> None:
    file.run("INSERT INTO rows VALUES (1, 'a'), (2, 'b')")
    following.start()
    file.run("BEGIN", "DROP TABLE rows", "CREATE TABLE rows (id INTEGER PRIMARY KEY, v)", "COMMIT")
    file.run("INSERT INTO rows VALUES (7, 'new')")
    eventually(lambda: rebuilt(following.events("rows")) == {7: "new"}, deadline_s=DEADLINE_S)


def test_a_table_renamed_goes_on_under_its_new_name_once(file: File, following: Capturing) -> None:
    following.start()
    file.run("ALTER TABLE rows RENAME TO things")
    eventually(lambda: file.rows("SELECT 1 FROM _headwater_versions WHERE name = 'things'"), deadline_s=DEADLINE_S)
    file.run("INSERT INTO things VALUES (1, 'a')")
    following.until("things", 1)


def test_rows_written_between_a_schema_change_and_its_notice_are_whole(file: File, following: Capturing) -> None:
    following.start()
    following.stop()
    file.run("INSERT INTO rows VALUES (1, 'a')", "ALTER TABLE rows ADD extra", "INSERT INTO rows VALUES (2, 'b', 'c')")
    file.run("UPDATE rows SET extra = 'd' WHERE id = 1")
    running = following.start()
    eventually(lambda: len(following.events("rows")) >= 5, deadline_s=DEADLINE_S)
    (verdict,) = running.verify()
    assert (verdict.equal, verdict.same) == (2, True)


def test_a_database_restored_from_a_backup_is_a_gap(file: File, following: Capturing, tmp_path: Path) -> None:
    following.start()
    following.stop()
    backup = tmp_path / "backup.db"
    with sqlite3.connect(backup) as copy:
        file.connection.backup(copy)
    file.run("INSERT INTO rows VALUES (1, 'a')")
    following.start()
    following.until("rows", 1)
    following.stop()
    file.connection.close()
    for name in ("shop.db-wal", "shop.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(backup, file.path)
    file.connection = file.connect()
    running = following.start(wait=False)
    with pytest.raises(GapDetected, match=r"restored from a backup.*at_gap='resnapshot'"):
        eventually(running.check, deadline_s=DEADLINE_S)
    following.stop()
    following.start(at_gap="resnapshot")
    assert [e.op for e in following.until("rows", 2)] == ["c", "t"]


def test_another_database_in_its_place_is_a_gap(file: File, following: Capturing, tmp_path: Path) -> None:
    following.start()
    following.stop()
    other = File(tmp_path / "other.db")
    other.run("CREATE TABLE rows (id INTEGER PRIMARY KEY, v)")
    following.source = other.path
    running = following.start(wait=False)
    with pytest.raises(GapDetected, match="another database"):
        eventually(running.check, deadline_s=DEADLINE_S)


def test_what_sqlite_cannot_do_is_refused_at_once(file: File, following: Capturing) -> None:
    running = following.start(wait=False, transaction_topic=True)
    with pytest.raises(SettingError, match="no transaction topic"):
        eventually(running.check, deadline_s=DEADLINE_S)


def test_a_file_that_is_not_there_or_no_database_is_named(following: Capturing, tmp_path: Path) -> None:
    from headwater.capture.sqlite import connect

    with pytest.raises(SettingError, match="no SQLite database at"):
        connect(tmp_path / "nowhere.db")
    (tmp_path / "text").write_text("this is not a database, but it is long enough to be read as one" * 20)
    with pytest.raises(SourceLost, match="cannot be opened"):
        connect(tmp_path / "text")


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_random_workload_ends_at_the_same_table(file: File, following: Capturing, mode: str) -> None:
    file.run(f"PRAGMA journal_mode = {mode}")
    running = following.start(chunk_rows=40)
    chance, stop = random.Random(3), threading.Event()

    def change() -> None:
        connection = file.connect()
        while not stop.wait(0.01):  # a pause, so that the amount of work is not the machine's speed
            connection.execute("BEGIN IMMEDIATE")
            for _ in range(chance.randint(1, 30)):
                key, kind = chance.randrange(300), chance.randrange(6)
                if kind < 3:
                    connection.execute("INSERT INTO rows VALUES (?, 1) ON CONFLICT DO UPDATE SET v = v + 1", [key])
                elif kind == 3:
                    connection.execute("DELETE FROM rows WHERE id = ?", [key])
                elif kind == 4:
                    connection.execute("UPDATE OR IGNORE rows SET id = ? WHERE id = ?", [chance.randrange(300), key])
                else:
                    connection.execute("REPLACE INTO rows VALUES (?, 0)", [key])
            connection.execute(chance.choice(("COMMIT", "COMMIT", "ROLLBACK")))
        connection.close()

    worker = threading.Thread(target=change)
    worker.start()
    try:
        for _ in range(3):
            eventually(lambda now=running: now.events > 200, deadline_s=DEADLINE_S)
            following.stop()
            running = following.start(chunk_rows=40)
    finally:
        stop.set()
        worker.join()
    (verdict,) = running.verify()
    assert verdict.same, verdict
    assert rebuilt(following.events("rows")) == dict(file.rows("SELECT id, v FROM rows"))


def test_killed_at_any_instant_nothing_is_lost_or_doubled(file: File, bootstrap: str, unique: str) -> None:
    name, stop, chance = f"c{unique}", threading.Event(), random.Random()
    written = [0]

    def change() -> None:
        connection = file.connect()
        while not stop.wait(0.005):
            written[0] += 1
            connection.execute("INSERT INTO rows VALUES (?, 0)", [written[0]])
        connection.close()

    options = ["sqlite", "--file", str(file.path), "--name", name, "--bootstrap", bootstrap, "--partitions", "1"]
    worker = threading.Thread(target=change)
    worker.start()
    try:
        for _ in range(5):
            with following_process(*options):  # ends it by kill -9
                stop.wait(chance.uniform(0.6, 1.6))
    finally:
        stop.set()
        worker.join()
    with Capturing(file.path, bootstrap, name) as last:
        last.start()
        assert [e.key["id"] for e in last.until("rows", written[0])] == [*range(1, written[0] + 1)]
