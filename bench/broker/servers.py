"""The two brokers as processes: ours as `headwater start`, Kafka from its jars."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.kafka_peer import free_port, kafka_peer
from bench.report import cpu_seconds, wait_for_port

__all__ = ["Server", "headwater", "kafka", "start_headwater"]


@dataclass(frozen=True, slots=True)
class Server:
    """A running broker."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    started: float  # time.monotonic() when the process was

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        return cpu_seconds(self.process.pid)


def start_headwater(data: Path, port: int, settings: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    told = f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}"  # as the peer is told
    options = [word for setting in (told, *settings) for word in ("--set", setting)]
    command = [
        sys.executable,
        "-m",
        "headwater.cli.main",
        "start",
        "--data",
        str(data),
        "--listen",
        f"127.0.0.1:{port}",
    ]
    return subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def headwater(settings: Sequence[str] = ()) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        port, started = free_port(), time.monotonic()
        process = start_headwater(Path(folder), port, settings)
        try:
            wait_for_port(port, process)
            yield Server("headwater", port, process, started)
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def kafka(settings: Sequence[str] = ()) -> Iterator[Server]:
    with kafka_peer(dict(setting.split("=", 1) for setting in settings)) as peer:
        yield Server("kafka", peer.port, peer.process, peer.started)
