"""Keeps the demo's processes running: started in order, restarted when they die, stopped in reverse.

A process that dies is started again after a short delay, which doubles up to `RESTART_DELAY_S_MAX` while it dies on;
one that has run for `STEADY_S` starts over with no delay. Nothing else is needed for recovery: every part continues
from what it had committed. Each process is a group of its own, so that its children (Spark's JVM) end with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headwater.errors import EnvironmentFailed

__all__ = ["Part", "Supervisor"]

RESTART_DELAY_S_MIN, RESTART_DELAY_S_MAX = 0.25, 8.0
STEADY_S = 30.0
STOP_DEADLINE_S = 20.0  # after SIGTERM; then SIGKILL
WATCH_INTERVAL_S = 0.1  # how soon a death is noticed
LOG_LINES_SHOWN = 15  # of a part that cannot start


@dataclass(frozen=True, slots=True)
class Part:
    """One process: its name, its command, and how to know that it is ready."""

    name: str
    command: Sequence[str]
    ready: Callable[[], bool]
    ready_deadline_s: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Running:
    part: Part
    process: subprocess.Popen[bytes]
    started_s: float
    delay_s: float = 0.0
    restart_at_s: float | None = None
    restarts: int = 0


class Supervisor:
    """Owns the processes; one thread watches them."""

    def __init__(self, logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def start(self, *parts: Part, ready: Callable[[Part], None] = lambda _: None) -> None:
        """Start parts side by side, and wait until all are ready; `ready` hears of each in turn."""
        with self._lock:
            for part in parts:
                self._running[part.name] = _Running(part, self._spawn(part), time.monotonic())
        if not self._watcher.is_alive():
            self._watcher.start()
        for part in parts:
            self._wait(part)
            ready(part)

    def _wait(self, part: Part) -> None:
        end = time.monotonic() + part.ready_deadline_s
        while not part.ready():
            if time.monotonic() > end or self._running[part.name].restarts > 2:
                raise EnvironmentFailed(
                    f"{part.name} did not become ready. The end of {self.log(part.name)}:\n{self._tail(part)}"
                )
            time.sleep(WATCH_INTERVAL_S)

    def pids(self) -> dict[str, int]:
        with self._lock:
            return {name: running.process.pid for name, running in self._running.items()}

    def restarts(self) -> dict[str, int]:
        with self._lock:
            return {name: running.restarts for name, running in self._running.items()}

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def stop(self, name: str) -> None:
        """Stop one part and forget it."""
        with self._lock:
            running = self._running.pop(name, None)
        if running is not None:
            _end(running.process)

    def stop_all(self) -> None:
        """Stop every part, the last started first."""
        self._stopping.set()
        for name in reversed(list(self._running)):
            self.stop(name)

    def _spawn(self, part: Part) -> subprocess.Popen[bytes]:
        with self.log(part.name).open("ab") as log:
            return subprocess.Popen(
                part.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **part.environment},
                start_new_session=True,  # Ctrl-C reaches the supervisor alone, which then stops all in order
            )

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH_INTERVAL_S):
            with self._lock:
                for running in self._running.values():
                    if running.process.poll() is not None:
                        self._revive(running, time.monotonic())

    def _revive(self, running: _Running, now_s: float) -> None:
        if running.restart_at_s is None:
            _kill_group(running.process)  # what it left behind would hold its ports and locks
            steady = now_s - running.started_s > STEADY_S
            running.delay_s = 0.0 if steady else min(max(RESTART_DELAY_S_MIN, running.delay_s * 2), RESTART_DELAY_S_MAX)
            running.restart_at_s = now_s + running.delay_s
        if now_s >= running.restart_at_s:
            running.process = self._spawn(running.part)
            running.started_s, running.restart_at_s = now_s, None
            running.restarts += 1

    def _tail(self, part: Part) -> str:
        lines = self.log(part.name).read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-LOG_LINES_SHOWN:])


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_DEADLINE_S)
    _kill_group(process)
    process.wait()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
