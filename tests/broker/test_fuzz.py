"""Hostile bytes: damaged requests of every API, and noise. The broker lives, stays small, and serves others."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from headwater.wire.apis import APIS
from wire.generate import random_request_frame

from .clients import create_topic, producer, read_everything, send, values
from .process import BrokerProcess, broker_process

FRAMES, SOAK_FRAMES = 20_000, 1_000_000
CONNECTIONS = 16
MEMORY_GROWTH_MIB_MAX = 150  # over all frames; what the requests' own effects (topics, groups) take is a part of it
SERVICE_S_MAX = 5.0  # the longest that the well-behaved client waits for an acknowledgement, on a busy machine


class Attacker:
    """Sends frames over a few connections, and opens one anew whenever the broker has closed it or lets it wait."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address = (host, int(port))
        self._random = random.Random(seed)
        self._sockets: list[socket.socket | None] = [None] * CONNECTIONS

    def attack(self, frames: int) -> None:
        for number in range(frames):
            self._send(number % CONNECTIONS, self._frame())
        for sock in self._sockets:
            if sock is not None:
                sock.close()

    def _frame(self) -> bytes:
        rng = self._random
        kind = rng.random()
        if kind < 0.1:  # noise
            return rng.randbytes(rng.randrange(1, 200))
        if kind < 0.2:  # noise in a frame, perhaps one that claims more or less than it has
            body = rng.randbytes(rng.randrange(0, 300))
            return struct.pack(">i", len(body) + rng.choice((0, 0, 0, -3, 50, 1 << 30))) + body
        frame = bytearray(random_request_frame(rng))
        if kind < 0.3:  # untouched: valid, if absurd
            return bytes(frame)
        if kind < 0.4:  # cut
            return bytes(frame[: rng.randrange(len(frame))])
        for _ in range(rng.choice((1, 1, 2, 8))):  # the size and the API stay, so that its decoder and handler are met
            position = rng.randrange(6, len(frame))
            frame[position] ^= 1 << rng.randrange(8)
        return bytes(frame)

    def _send(self, index: int, frame: bytes) -> None:
        sock = self._sockets[index]
        if sock is not None and not self._answered(sock):
            sock.close()
            sock = None
        if sock is None:
            sock = socket.create_connection(self._address, timeout=30)
            sock.settimeout(0)
            self._sockets[index] = sock
        try:
            sock.send(frame)
        except OSError:
            sock.close()
            self._sockets[index] = None

    @staticmethod
    def _answered(sock: socket.socket) -> bool:
        try:
            return bool(sock.recv(1 << 16))
        except OSError:
            return False


class Neighbour:
    """A well-behaved client: writes one record after another and notes how long each took."""

    def __init__(self, bootstrap: str) -> None:
        self.topic = create_topic(bootstrap, "neighbour")
        self.written: list[bytes] = []
        self.slowest_s = 0.0
        self.failure: Exception | None = None
        self._producer = producer(bootstrap)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join(60)

    def _write(self) -> None:
        try:
            while not self._done.wait(0.01):
                value = str(len(self.written)).encode()
                started = time.monotonic()
                send(self._producer, self.topic, [value])
                self.slowest_s = max(self.slowest_s, time.monotonic() - started)
                self.written.append(value)
        except Exception as error:
            self.failure = error


def attacked(broker: BrokerProcess, frames: int, seed: int) -> None:
    neighbour = Neighbour(broker.bootstrap)
    Attacker(broker.bootstrap, seed).attack(min(frames, 5_000))  # topics and groups of its own, handlers imported
    before = broker.memory_mib()
    Attacker(broker.bootstrap, seed + 1).attack(frames - min(frames, 5_000))
    neighbour.stop()
    assert broker.process.poll() is None, broker.said[-5_000:]
    metrics = broker.metrics()
    assert 'headwater_errors_total{kind="HandlerFailed"}' not in metrics, broker.said[-5_000:]
    assert "Traceback" not in broker.said, broker.said[-5_000:]
    assert len(broker.said) < 1 << 20, "warnings about clients must be bounded"
    assert broker.memory_mib() - before < MEMORY_GROWTH_MIB_MAX
    assert neighbour.failure is None
    assert values(read_everything(broker.bootstrap, neighbour.topic)) == neighbour.written
    assert neighbour.slowest_s < SERVICE_S_MAX
    met = [name for name in metrics if name.startswith("headwater_requests_total")]
    assert len(met) > len(APIS) * 0.8, "most APIs were reached"
    assert broker.stop() == 0


def test_twenty_thousand_damaged_frames(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker:
        attacked(broker, FRAMES, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_a_million_damaged_frames(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker:
        attacked(broker, SOAK_FRAMES, seed=random.randrange(1 << 30))
