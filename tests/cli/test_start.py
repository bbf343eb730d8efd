"""`headwater start` as a process: its one line, its signals, its refusals."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

START = [sys.executable, "-m", "headwater.cli.main", "start", "--listen", "127.0.0.1:0"]
DEADLINE_S = 30


@contextmanager
def started(*options: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen([*START, *options], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_it_says_one_line_serves_and_ends_cleanly(tmp_path: Path, by: signal.Signals) -> None:
    with started("--data", "log", cwd=tmp_path) as (process, line):
        found = re.fullmatch(r"headwater is ready: bootstrap\.servers=(127\.0\.0\.1:\d+) \(data in log\)\n", line)
        assert found, line
        admin = AdminClient({"bootstrap.servers": found[1]})
        assert admin.list_topics(timeout=DEADLINE_S).brokers
        process.send_signal(by)
        out, err = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, out, err) == (0, "", "")
    assert (tmp_path / "log" / ".kafka_cleanshutdown").exists()


def test_settings_come_from_a_file_written_for_kafka(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("# a comment\nnum.partitions=7\nzookeeper.connect=somewhere\n")
    with started("--data", "log", "--config", "server.properties", cwd=tmp_path) as (process, line):
        bootstrap = line.split("=")[1].split(" ")[0]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        from confluent_kafka.cimpl import NewTopic

        admin.create_topics([NewTopic("t", num_partitions=-1, replication_factor=-1)])["t"].result(DEADLINE_S)
        assert len(admin.list_topics("t", DEADLINE_S).topics["t"].partitions) == 7
        process.terminate()
        _, err = process.communicate(timeout=DEADLINE_S)
        assert "zookeeper.connect does not apply to this broker" in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "num.partition=4"], "did you mean 'num.partitions'"),
        (["--set", "num.partitions=four"], "num.partitions"),
        (["--set", "nonsense"], "write NAME=VALUE"),
        (["--config", "missing.properties"], "missing.properties"),
        (["--set", "advertised.listeners=SSL://127.0.0.1:0"], "speaks PLAINTEXT only"),
    ],
)
def test_what_it_cannot_start_with_is_one_clear_line(tmp_path: Path, options: list[str], said: str) -> None:
    done = subprocess.run(
        [*START, *options], cwd=tmp_path, text=True, capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_directory_in_use_and_a_port_in_use_are_refused(tmp_path: Path) -> None:
    with started("--data", "log", cwd=tmp_path) as (_, line):
        address = line.split("=")[1].split(" ")[0]
        for options, said in ((["--data", "log"], "log"), (["--data", "other", "--listen", address], "is in use")):
            done = subprocess.run(
                [*START, *options], cwd=tmp_path, text=True, capture_output=True, timeout=DEADLINE_S, check=False
            )
            assert done.returncode == 1
            assert said in done.stderr
            assert done.stderr.count("\n") == 1
