"""`headwater doctor` on a machine that lacks one thing at a time."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from headwater.cli.main import main


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWATER_BROKER_LISTEN", "127.0.0.1:0")
    monkeypatch.setenv("HEADWATER_CONSOLE_LISTEN", "127.0.0.1:0")
    monkeypatch.setenv("HEADWATER_LOG_BOOTSTRAP", "127.0.0.1:1")


def findings(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, str]]]:
    code = main(["doctor", "--json"])
    return code, {one["check"]: one for one in json.loads(capsys.readouterr().out)}


def test_a_good_machine_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = findings(capsys)
    assert code == 0
    assert found["python"]["state"] == found["disk"]["state"] == "ok"
    assert found["log"]["advice"] == "headwater start"


def test_a_port_in_use_is_a_problem_with_advice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("HEADWATER_CONSOLE_LISTEN", f"127.0.0.1:{taken.getsockname()[1]}")
        code, found = findings(capsys)
    assert code == 1
    assert found["console.listen"]["state"] == "problem"
    assert "another port" in found["console.listen"]["advice"]


def test_no_java_is_a_note_because_the_log_works_without(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    code, found = findings(capsys)
    assert code == 0
    assert found["java"]["state"] == "note"
    assert "Java 17" in found["java"]["advice"]


def test_a_log_that_is_up_is_found(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_LOG_BOOTSTRAP", bootstrap)
    _, found = findings(capsys)
    assert found["log"]["state"] == "ok"
    assert "1 broker(s)" in found["log"]["found"]


def test_people_get_a_line_a_check_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("ok       python") for line in lines)
    assert any("→ headwater start" in line for line in lines)
