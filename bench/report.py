"""One JSON line per bar: what was measured of us, of the peer in the same run, and whether the bar is met."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Bar", "cpu_seconds", "resident_mib", "wait_for_port"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Bar:
    """A promise in figures. `at_least` compares ours/peer with the bar from below, otherwise from above."""

    name: str
    bar: float
    unit: str
    at_least: bool = True

    def report(self, ours: float, peer: float | None) -> bool:
        """Print the line; without a peer the bar is absolute, in `unit`."""
        value = ours if peer is None else ours / peer if peer else float("inf")
        met = value >= self.bar if self.at_least else value <= self.bar
        line = {
            "name": self.name,
            "ours": round(ours, 4),
            "peer": None if peer is None else round(peer, 4),
            "unit": self.unit,
            "ratio": None if peer is None else round(value, 3),
            "bar": f"{'>=' if self.at_least else '<='} {self.bar}{'' if peer is None else 'x'}",
            "met": met,
        }
        print(json.dumps(line), flush=True)
        return met


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_mib(pid: int) -> float:
    """Memory of a process in RAM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(f"process {pid} has no resident memory: it has ended")


def wait_for_port(port: int, process: subprocess.Popen[bytes], deadline_s: float = 60) -> None:
    """Until something listens on 127.0.0.1:port."""
    import socket

    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server exited with {process.returncode} before it listened on port {port}")
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            time.sleep(0.005)
    raise TimeoutError(f"nothing listens on port {port} after {deadline_s} s")
