"""`headwater view`, as a shell would call it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.main import main
from headwater.client import Connection, Writer, ensure_topics
from headwater.testing.waiting import eventually


@pytest.fixture
def topic(bootstrap: str, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWATER_LOG_BOOTSTRAP", bootstrap)
    name = f"cli-{unique}"
    ensure_topics(Connection(bootstrap), [name], partitions=1)
    return name


def call(capsys: pytest.CaptureFixture[str], *words: str, expect: int = 0) -> str:
    code = main(["view", *words])
    found = capsys.readouterr()
    assert code == expect, found.err
    return found.out if code == 0 else found.err


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(call(capsys, *words, "--json"))


def put(bootstrap: str, topic: str, *rows: dict[str, Any]) -> str:
    with Writer(Connection(bootstrap)) as writer:
        for row in rows:
            writer.write(topic, json.dumps(row).encode(), key=b'{"id":%d}' % row["id"])
        return writer.flush()


def test_the_life_of_a_view(bootstrap: str, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "version 1" in call(capsys, "create", "users", "--topic", topic, "--key", "id")
    assert answer(capsys, "list")["users"]["topics"] == [topic]
    token = put(bootstrap, topic, {"id": 1, "n": 1}, {"id": 2, "n": 2})
    follower = subprocess.Popen(
        [sys.executable, "-m", "headwater.cli.main", "view", "run"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert follower.stdout is not None
        assert "following users" in follower.stdout.readline()
        got = answer(capsys, "get", "users", "2", "--at-least", token, "--timeout", "30")
        assert (got["row"], got["version"]) == ({"id": 2, "n": 2}, 1)
        (version,) = answer(capsys, "status")["versions"]
        assert (version["rows"], version["lag_records"], version["active"]) == (2, 0, True)
        assert "users" in call(capsys, "status")
        lines = call(capsys, "rebuild", "users", "--json").splitlines()
        assert json.loads(lines[-1]) == {"view": "users", "active": 2, "versions": [2]}
        assert json.loads(lines[-2])["percent"] == 100.0
        token = put(bootstrap, topic, {"id": 3, "n": 3})
        assert answer(capsys, "get", "users", "3", "--at-least", token, "--timeout", "30")["version"] == 2
        call(capsys, "rebuild", "users", "--no-swap")
        assert answer(capsys, "swap", "users")["active"] == 3
        call(capsys, "drop", "users", "--version", "2")
    finally:
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(30) == 0
    call(capsys, "drop", "users", "--all")
    assert answer(capsys, "status")["versions"] == []


def test_dead_letters_are_replayed_once(
    bootstrap: str, topic: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call(capsys, "create", "users", "--topic", topic, "--filter", "n > 0")
    put(bootstrap, topic, {"id": 1, "n": "text"})
    follower = subprocess.Popen([sys.executable, "-m", "headwater.cli.main", "view", "run"], env=os.environ)
    try:
        refused = eventually(
            lambda: [v for v in answer(capsys, "status")["versions"] if v["refused"]], deadline_s=30, what="a refusal"
        )
        assert "TypeError" in refused[0]["error"]
    finally:
        follower.terminate()
        follower.wait(30)
    assert answer(capsys, "replay", "users")["replayed"] == 1
    assert answer(capsys, "replay", "users")["replayed"] == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["rebuild", "nothing"], "no view 'nothing'"),
        (["create", "users"], "no view 'users'"),
        (["create", "users", "--topic", "t", "--store", "paper:x"], "none of sqlite:"),
        (["create"], "declares no view"),
        (["run"], "declares no view"),
    ],
)
def test_mistakes_are_explained(
    topic: str, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    assert complaint in call(capsys, *words, expect=1)


def test_passwords_are_not_shown(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    from headwater.views import Definition, declare

    for number, address in enumerate(["postgresql://ada:secret@db/x", "redis://:secret@host:1/0", "sqlite:a.db"]):
        declare(Definition.of(f"v{number}", topic=topic, store=address), Path("views.toml"))
    text = call(capsys, "list")
    assert "secret" not in text
    assert "postgresql://ada:***@db/x" in text
    assert "sqlite:a.db" in text
