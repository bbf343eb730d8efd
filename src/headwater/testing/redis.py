"""A real Redis server for tests, thrown away after use: its own folder and port, every write on disk before the answer.

`kill()` is `kill -9`; `start()` after it reads the same append-only file.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from headwater.errors import EnvironmentFailed

__all__ = ["RedisServer", "install_redis"]

START_TIMEOUT_S = 30.0
INSTALL_TIMEOUT_S = 180.0


class RedisServer:
    """One server; use it as a context manager."""

    def __init__(self) -> None:
        self.port = _free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="headwater-redis-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> RedisServer:
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        if program is None:
            raise EnvironmentFailed("redis-server is not installed: apt-get install redis-server")
        words = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        words += ["--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--daemonize", "no"]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break
            if self._answers():
                return self
            time.sleep(0.01)
        raise EnvironmentFailed(f"redis-server did not start within {START_TIMEOUT_S:.0f} s")

    def _answers(self) -> bool:
        """Whether it serves, which it does not while it still reads its file."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def __enter__(self) -> RedisServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def install_redis() -> str:
    """Debian's package, where there is none and it may be installed; else why not."""
    if shutil.which("redis-server") or shutil.which("valkey-server"):
        return ""
    try:
        subprocess.run(
            ["apt-get", "install", "--yes", "--no-install-recommends", "redis-server"],
            check=True,
            capture_output=True,
            timeout=INSTALL_TIMEOUT_S,
            env={"DEBIAN_FRONTEND": "noninteractive", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"redis-server is not installed, and cannot be: {error}"
    return ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
