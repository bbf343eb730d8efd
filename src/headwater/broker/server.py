"""Accepting connections, and the bounds that all of them share.

One event loop serves every socket. A connection that may not be (too many, in all or of one address) is closed at
once and counted. A connection silent for `connections.max.idle.ms` is closed.

Memory. When unfinished requests and unsent answers of all connections exceed `queued.max.request.bytes`, no socket is
read but the one whose request is unfinished for the longest: so memory stays below that bound and one request, and
something always ends. Whoever holds memory then and makes no progress for `STALLED_MS` is closed.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections import Counter
from typing import TYPE_CHECKING

from headwater.broker.call import Peer
from headwater.broker.complaints import Complaints
from headwater.broker.connection import Connection
from headwater.broker.dispatch import Dispatcher
from headwater.broker.listeners import Listener
from headwater.broker.loop import READABLE
from headwater.errors import EnvironmentFailed

if TYPE_CHECKING:
    from headwater.broker.services import Services

__all__ = ["Server"]

RECEIVE_BUFFER_BYTES = 1 << 18  # one for all connections: the most that is read from a socket in one round
ACCEPTS_PER_ROUND_MAX = 64  # connections accepted before those that exist are served again
ACCEPT_PAUSE_MS = 100  # when no descriptor is left: how long to wait for one
STALLED_MS = 5_000  # while memory is short: how long a client may keep some of it without sending or reading anything
IDLE_SWEEP_MS = 10_000  # how often silent connections are looked for, at the most

_log = logging.getLogger("headwater.broker")


class Server:
    """The sockets. Its part as a connection's `Host` is in `serve`, `has_room`, `account`, `frame_begun` and
    `frame_ended`, `refuse_frame`, `closed`."""

    def __init__(self, broker: Services) -> None:
        self.loop = broker.loop
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.request_bytes_max = broker.config.number("socket.request.max.bytes")
        self.requests_queued_max = broker.config.number("queued.max.requests")
        self.connections: dict[int, Connection] = {}
        self._complaints = Complaints(broker.loop)
        self.serve = Dispatcher(broker, self._complaints).serve
        self._config = broker.config
        self._metrics = broker.metrics
        self._memory_max = broker.config.number("queued.max.request.bytes")
        self._memory = 0
        self._waiting_for_memory: set[Connection] = set()
        self._frames: dict[Connection, None] = {}  # whose requests are unfinished, the oldest first
        self._looks_for_stalled = False
        self._per_address: Counter[str] = Counter()
        self._next_id = 0
        self._sockets: list[socket.socket] = []

    # -- listening

    def listen(self, listener: Listener, advertised: tuple[str, int] | None) -> Listener:
        """Bind now (EnvironmentFailed says why not); accept once the loop runs. The listener with its real port."""
        family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((listener.host, listener.port))
            sock.listen(self._config.number("socket.listen.backlog.size"))
        except OSError as error:
            sock.close()
            raise EnvironmentFailed(_bind_failure(listener, error)) from error
        sock.setblocking(False)
        bound = Listener(listener.security, listener.host, sock.getsockname()[1])
        self._sockets.append(sock)
        self.loop.watch(sock.fileno(), READABLE, lambda _: self._accept(sock, bound, advertised))
        if len(self._sockets) == 1:
            self._sweep_later()
        return bound

    def close(self) -> None:
        for sock in self._sockets:
            self.loop.unwatch(sock.fileno())
            sock.close()
        self._sockets.clear()
        for connection in list(self.connections.values()):
            connection.close()

    def _accept(self, listening: socket.socket, listener: Listener, advertised: tuple[str, int] | None) -> None:
        for _ in range(ACCEPTS_PER_ROUND_MAX):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause_accepting(listening, error)
                return
            self._admit(sock, address, listener, advertised)

    def _admit(
        self, sock: socket.socket, address: tuple[str, int], listener: Listener, advertised: tuple[str, int] | None
    ) -> None:
        host = str(address[0])
        reason = self._too_many(host)
        if reason is not None:
            self._metrics.connections_refused[reason] += 1
            self._complaints.warn("refusing a connection from %s: %s is reached", host, reason)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, name in (
            (socket.SO_SNDBUF, "socket.send.buffer.bytes"),
            (socket.SO_RCVBUF, "socket.receive.buffer.bytes"),
        ):
            if self._config.number(name) > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, self._config.number(name))
        self._next_id += 1
        endpoint = advertised or sock.getsockname()[:2]
        peer = Peer(self._next_id, host, address[1], endpoint=endpoint)
        self._per_address[host] += 1
        self._metrics.connections_opened += 1
        self._metrics.connections_open += 1
        self.connections[peer.id] = Connection(self, sock, peer)

    def _too_many(self, host: str) -> str | None:
        if len(self.connections) >= self._config.number("max.connections"):
            return "max.connections"
        if self._per_address[host] >= self._bound_of(host):
            return "max.connections.per.ip"
        return None

    def _bound_of(self, host: str) -> int:
        for override in self._config.text("max.connections.per.ip.overrides").split(","):
            name, _, bound = override.strip().rpartition(":")
            if name == host and bound.isdigit():
                return int(bound)
        return self._config.number("max.connections.per.ip")

    def _pause_accepting(self, listening: socket.socket, error: OSError) -> None:
        """No descriptor or memory left: connections wait in the backlog until there is."""
        if not self._sockets:
            return
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            _log.warning("accepting a connection failed: %s", error)
            return
        self._metrics.connections_refused[errno.errorcode[error.errno]] += 1
        _log.error("cannot accept connections: %s; raise the limit of open files (ulimit -n)", error)
        self.loop.change(listening.fileno(), 0)
        self.loop.call_later(ACCEPT_PAUSE_MS, self._accept_again, listening)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self.loop.change(listening.fileno(), READABLE)

    def _sweep_later(self) -> None:
        idle_ms = self._config.number("connections.max.idle.ms")
        if idle_ms >= 0:
            self.loop.call_later(min(IDLE_SWEEP_MS, max(idle_ms / 4, 1)), self._close_idle, idle_ms)

    def _close_idle(self, idle_ms: int) -> None:
        oldest = self.loop.monotonic_ms() - idle_ms
        for connection in list(self.connections.values()):
            if connection.last_active_ms < oldest and not connection.waiting:
                connection.close()
        self._sweep_later()

    # -- what connections ask

    def has_room(self, connection: Connection) -> bool:
        if self._memory <= self._memory_max or self._memory_max < 0 or connection is next(iter(self._frames), None):
            return True
        self._waiting_for_memory.add(connection)
        if not self._looks_for_stalled:
            self._looks_for_stalled = True
            self.loop.call_later(STALLED_MS, self._close_stalled)
        return False

    def frame_begun(self, connection: Connection) -> None:
        self._frames[connection] = None

    def frame_ended(self, connection: Connection) -> None:
        self._frames.pop(connection, None)
        following = next(iter(self._frames), None)
        if following in self._waiting_for_memory:
            assert following is not None
            self._waiting_for_memory.discard(following)
            self.loop.call_soon(following.resume)

    def account(self, change: int) -> None:
        self._memory += change
        if self._waiting_for_memory and self._memory <= self._memory_max:
            waiting, self._waiting_for_memory = self._waiting_for_memory, set()
            for connection in waiting:
                self.loop.call_soon(connection.resume)

    def _close_stalled(self) -> None:
        self._looks_for_stalled = False
        before_ms = self.loop.monotonic_ms() - STALLED_MS
        oldest = next(iter(self._frames), None)
        holders = [c for c in self.connections.values() if c.unsent_bytes or c is oldest]
        for connection in sorted(holders, key=lambda holder: holder.last_active_ms):
            if self._memory <= self._memory_max or connection.last_active_ms > before_ms:
                break
            self._metrics.error("Stalled")
            self._complaints.warn("closing the connection of %s: it holds memory and does nothing", connection.peer)
            connection.close()
        if self._waiting_for_memory:
            self._looks_for_stalled = True
            self.loop.call_later(STALLED_MS, self._close_stalled)

    def refuse_frame(self, connection: Connection, reason: str) -> None:
        self._metrics.error("InvalidFrame")
        self._complaints.warn("closing the connection of %s: it sent %s", connection.peer, reason)
        connection.close()

    def closed(self, connection: Connection) -> None:
        peer = connection.peer
        del self.connections[peer.id]
        self._waiting_for_memory.discard(connection)
        self.frame_ended(connection)
        self._metrics.connections_open -= 1
        self._per_address[peer.host] -= 1
        if not self._per_address[peer.host]:
            del self._per_address[peer.host]
        if peer.abandoned is not None:
            peer.abandoned()


def _bind_failure(listener: Listener, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{listener.host}:{listener.port} is in use by another process; choose another port with --listen"
    return f"cannot listen on {listener.host}:{listener.port}: {error.strerror}"
