"""`headwater capture` as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.capture.support import DEADLINE_S, Database, File, events

from headwater.cli.main import main
from headwater.testing import eventually


@contextmanager
def following(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "headwater.cli.main", "capture", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_postgres_from_the_command_line(
    database: Database, bootstrap: str, unique: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database.run("CREATE TABLE rows (id int PRIMARY KEY, secret text)", "INSERT INTO rows VALUES (1, 'x')")
    name = f"c{unique}"
    options = [
        "--dsn",
        database.dsn,
        "--name",
        name,
        "--bootstrap",
        bootstrap,
        "--tables",
        "public.*",
        "--mask",
        "*.secret",
    ]
    with following("postgres", *options) as process:
        topic = f"{name}.public.rows"
        (event,) = eventually(lambda: events(bootstrap, topic), deadline_s=DEADLINE_S)
        assert event.after == {"id": 1, "secret": "****"}
        assert main(["capture", "verify", "postgres", *options, "--json"]) == 0
        verdict = json.loads(capsys.readouterr().out)
        assert (verdict["table"], verdict["equal"], verdict["same"]) == ("public.rows", 1, True)
        assert process.stdout is not None
        assert any("following; 1 records" in line or "following; 2 records" in line for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, err
    assert main(["capture", "status", name, "--bootstrap", bootstrap, "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["name"], status["slot"]) == (name, f"headwater_{name}")
    assert status["tables"] == [{"table": "public.rows", "rows": 1, "done": True}]
    assert main(["capture", "status", name, "--bootstrap", bootstrap]) == 0
    assert "public.rows: read" in capsys.readouterr().out


def test_sqlite_from_the_command_line(
    tmp_path: Path, bootstrap: str, unique: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = File(tmp_path / "shop.db")
    file.run("CREATE TABLE rows (id INTEGER PRIMARY KEY, v)", "INSERT INTO rows VALUES (1, 'x')")
    options = ["--file", str(file.path), "--name", f"c{unique}", "--bootstrap", bootstrap]
    with following("sqlite", *options):
        eventually(lambda: events(bootstrap, f"c{unique}.main.rows"), deadline_s=DEADLINE_S)
        assert main(["capture", "verify", "sqlite", *options]) == 0
        assert "main.rows: equal; 1 rows equal" in capsys.readouterr().out
    file.connection.close()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["postgres", "--name", "a b", "--dsn", "x"], "use letters"),
        (["postgres", "--name", "a", "--max-wal", "much"], "--max-wal 'much'"),
        (["postgres", "--name", "a", "--hash", "*.x"], "--hash needs --hash-key-file"),
        (["postgres", "--name", "a", "--truncate", "x"], "write NAME=VALUE"),
        (["postgres", "--name", "a", "--truncate", "x=y"], "not a number of characters"),
        (["sqlite", "--name", "a", "--file", "/nowhere.db"], "no SQLite database at"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    words: list[str], why: str, bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["capture", *words, "--bootstrap", bootstrap]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("headwater capture: ")
    assert why in error


def test_an_unknown_capture_is_named_with_those_there_are(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "status", "nobody", "--bootstrap", bootstrap]) == 1
    assert "no capture named 'nobody'" in capsys.readouterr().err
