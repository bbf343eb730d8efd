"""`headwater start` as a process of its own, whose memory and end a test can look at."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.report import resident_mib

__all__ = ["BrokerProcess", "broker_process"]

DEADLINE_S = 60
_READY = re.compile(r"bootstrap\.servers=(\S+) .*metrics at (http://\S+)/metrics")


class BrokerProcess:
    """A broker, its address, its metrics, its memory."""

    def __init__(self, process: subprocess.Popen[str], ready: str, errors: Path) -> None:
        found = _READY.search(ready)
        assert found, f"{ready!r}\n{errors.read_text()}"
        self.process = process
        self.bootstrap = found[1]
        self.url = found[2]
        self._errors = errors

    @property
    def said(self) -> str:
        """Its standard error."""
        return self._errors.read_text()

    def memory_mib(self) -> float:
        return resident_mib(self.process.pid)

    def metrics(self) -> dict[str, float]:
        """Samples by name and labels, as they are written."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=DEADLINE_S) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)


@contextmanager
def broker_process(folder: Path, *settings: str) -> Iterator[BrokerProcess]:
    options = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "headwater.cli.main", "start", "--data", str(folder / "log")]
    errors = folder / "errors"
    with errors.open("w") as file:
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", *options],
            text=True,
            stdout=subprocess.PIPE,
            stderr=file,
            cwd=folder,
        )
    try:
        assert process.stdout is not None
        yield BrokerProcess(process, process.stdout.readline(), errors)
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)
