"""`/metrics` in Prometheus' text format and `/healthz`, on a port of their own, served by the broker's loop.

One small request a connection: the first line is read, answered and the connection closed. Bounded in bytes, in
connections and in time.
"""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

from headwater.broker.exposition import expose
from headwater.broker.loop import READABLE, WRITABLE, Loop, Timer
from headwater.errors import EnvironmentFailed

if TYPE_CHECKING:
    from headwater.broker.runtime import Runtime

__all__ = ["MetricsServer"]

REQUEST_BYTES_MAX = 8192  # a longer request line and headers: not somebody who wants metrics
CONNECTIONS_MAX = 16  # beyond, connections are closed at once: scrapes are few
PATIENCE_MS = 5000  # for a whole request and its answer


class MetricsServer:
    """Listens at once; answers while the loop runs."""

    def __init__(self, runtime: Runtime, address: str) -> None:
        self._runtime = runtime
        self._loop = runtime.loop
        self._exchanges: set[_Exchange] = set()
        host, _, port = address.rpartition(":")
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host.strip("[]"), int(port)))
            self._socket.listen(CONNECTIONS_MAX)
        except OSError as error:
            self._socket.close()
            raise EnvironmentFailed(f"cannot serve metrics at {address}: {error.strerror}") from error
        self._socket.setblocking(False)
        self.address = f"{host}:{self._socket.getsockname()[1]}"
        self._loop.watch(self._socket.fileno(), READABLE, self._accept)

    def close(self) -> None:
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        for exchange in tuple(self._exchanges):
            exchange.close()

    def answer(self, path: str) -> tuple[str, str, str]:
        """Status, content type and body for a path."""
        if path == "/metrics":
            return "200 OK", "text/plain; version=0.0.4; charset=utf-8", expose(self._runtime)
        if path == "/healthz":
            failed = [f"{p.topic}-{p.index}" for p in self._runtime.logs if p.log.failure is not None]
            status = "200 OK" if not failed else "503 Service Unavailable"
            body = json.dumps({"status": "ok" if not failed else "storage failed", "partitions": failed})
            return status, "application/json", body + "\n"
        return "404 Not Found", "text/plain", "there are /metrics and /healthz\n"

    def forget(self, exchange: _Exchange) -> None:
        self._exchanges.discard(exchange)

    def _accept(self, _events: int) -> None:
        try:
            sock, _ = self._socket.accept()
        except OSError:
            return
        if len(self._exchanges) >= CONNECTIONS_MAX:
            sock.close()
            return
        sock.setblocking(False)
        self._exchanges.add(_Exchange(self, self._loop, sock))


class _Exchange:
    """One request and its answer."""

    def __init__(self, server: MetricsServer, loop: Loop, sock: socket.socket) -> None:
        self._server = server
        self._loop = loop
        self._socket = sock
        self._received = b""
        self._unsent = b""
        self._timer: Timer = self._loop.call_later(PATIENCE_MS, self.close)
        self._loop.watch(sock.fileno(), READABLE, self._ready)

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        self._timer.cancel()
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        self._server.forget(self)

    def _ready(self, _events: int) -> None:
        try:
            if self._unsent:
                self._send()
            else:
                self._receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()

    def _receive(self) -> None:
        data = self._socket.recv(REQUEST_BYTES_MAX)
        self._received += data
        if not data or len(self._received) > REQUEST_BYTES_MAX:
            self.close()
        elif b"\r\n\r\n" in self._received or b"\n\n" in self._received:
            words = self._received.split(b"\n", 1)[0].split()
            path = words[1].decode("ascii", "replace").split("?")[0] if len(words) > 1 else ""
            status, kind, body = self._server.answer(path)
            content = body.encode()
            fields = (
                f"HTTP/1.1 {status}",
                f"Content-Type: {kind}",
                f"Content-Length: {len(content)}",
                "Connection: close",
            )
            self._unsent = "\r\n".join((*fields, "", "")).encode() + content
            self._loop.change(self._socket.fileno(), WRITABLE)

    def _send(self) -> None:
        sent = self._socket.send(self._unsent)
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self.close()
