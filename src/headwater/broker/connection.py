"""One client's socket: bytes in, frames to the dispatcher, responses out in the order of their requests.

Copies. A read goes into one buffer shared by all connections; whole frames are served in place, so the payload of a
Produce goes from there to the log's write. Only a frame that is cut by the end of a read moves, into a buffer of its
own that then receives the rest directly. Responses leave by `sendmsg` from where they lie, stored records by
`sendfile`.

Order. Answers leave in the order of requests. A request that waits (a long poll, a rebalance) holds the connection:
nothing behind it is looked at, as in Kafka. A Produce that only waits for the disk has taken effect and holds nobody
(see `Acknowledgement`).

Bounds. A connection is not read while it is held, muted by a quota, has `queued.max.requests` answers outstanding or
more than `UNSENT_BYTES_MAX` unsent, or while all connections together hold `queued.max.request.bytes`.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from headwater.broker.loop import READABLE, WRITABLE, Loop, Timer
from headwater.broker.promise import Promise
from headwater.log.regions import FileRegion

if TYPE_CHECKING:
    from headwater.broker.call import Peer

__all__ = ["UNSENT_BYTES_MAX", "Acknowledgement", "Connection", "Host"]

UNSENT_BYTES_MAX = 1 << 20  # bytes: answers in memory of a client that does not read them; then it is not read either
FRAME_AT_ONCE_MAX = 1 << 20  # bytes: a larger frame's buffer grows as its bytes arrive, not when its size is claimed
CHUNKS_PER_SEND_MAX = 512  # buffers given to one sendmsg; Linux takes up to 1024 (IOV_MAX)
FRAME_BYTES_MIN = 8  # api key, version, correlation id: nothing shorter is a request

_SIZE = struct.Struct(">i")
_HANG_UP = 0x08 | 0x10  # EPOLLERR | EPOLLHUP


class Acknowledgement(Promise[Any]):
    """The answer of a request that has taken effect already and only waits to be durable: requests behind it may
    run."""

    __slots__ = ()


class Host(Protocol):
    """What a connection needs of its server."""

    loop: Loop
    receive_buffer: memoryview
    request_bytes_max: int
    requests_queued_max: int

    def serve(self, connection: Connection, frame: memoryview) -> None:
        """Answer one request: by `connection.send`, or `connection.later` when it takes a while."""
        ...

    def has_room(self, connection: Connection) -> bool:
        """Whether unfinished requests of all connections fit in memory; else `connection.resume` is called later."""
        ...

    def account(self, change: int) -> None:
        """Memory held by unfinished requests and unsent answers grew or shrank by `change` bytes."""
        ...

    def frame_begun(self, connection: Connection) -> None:
        """A part of a request is here, and the rest is not."""
        ...

    def frame_ended(self, connection: Connection) -> None: ...

    def refuse_frame(self, connection: Connection, reason: str) -> None:
        """A frame that cannot be a request: count it, say it, close this connection."""
        ...

    def closed(self, connection: Connection) -> None: ...


class Connection:
    """A socket that the loop watches; see the module."""

    def __init__(self, host: Host, sock: socket.socket, peer: Peer) -> None:
        self.peer = peer
        self.last_active_ms = host.loop.monotonic_ms()
        self.open = True
        self._host = host
        self._loop = host.loop
        self._sock = sock
        self._fd = sock.fileno()
        self._interest = READABLE
        self._frame: bytearray | None = None  # a frame that is still arriving, with its size in front
        self._frame_size = 0  # bytes of the whole frame, with its size
        self._filled = 0  # bytes of it that are here
        self._backlog = b""  # bytes read but not looked at yet
        self._held = False
        self._muted: Timer | None = None
        self._answers: deque[_Answer] = deque()  # outstanding, in the order of requests
        self._draining = False
        self._unsent: deque[Any] = deque()  # buffers and [region, sent] pairs
        self._unsent_bytes = 0  # of those in memory
        self._accounted = 0
        host.loop.watch(self._fd, READABLE, self._ready)

    @property
    def waiting(self) -> bool:
        """Whether it is the client that waits, for an answer or for the end of its throttling."""
        return bool(self._answers) or self._muted is not None

    @property
    def unsent_bytes(self) -> int:
        """Answers in memory that the client has not taken yet."""
        return self._unsent_bytes

    # -- answering, called by the dispatcher

    def send(self, chunks: list[Any]) -> None:
        """Answer the request in hand; at once unless earlier ones are still outstanding."""
        if self._answers:
            self._answers.append(_Answer(chunks))
        else:
            self._write(chunks)

    def later(self, promise: Promise[Any], encode: Callable[[Promise[Any]], list[Any] | None]) -> None:
        """Answer the request in hand when `promise` is settled; `encode` makes the bytes (None: there is no answer)."""
        answer = _Answer(None)
        self._answers.append(answer)
        holding = not isinstance(promise, Acknowledgement)
        self._held = self._held or holding

        def settled(promise: Promise[Any]) -> None:
            if not self.open:
                return
            chunks = encode(promise)
            answer.chunks = [] if chunks is None else chunks
            answer.releases = holding
            if not self._draining:
                self._draining = True
                self._loop.call_soon(self._drain)

        promise.then(settled)

    def mute(self, duration_ms: float) -> None:
        """A quota was exceeded: read nothing for a while."""
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._loop.call_later(duration_ms, self._unmute)

    def close(self) -> None:
        if not self.open:
            return
        self.open = False
        self._loop.unwatch(self._fd)
        self._sock.close()
        if self._muted is not None:
            self._muted.cancel()
        self._answers.clear()
        self._unsent.clear()
        self._frame = None
        self._backlog = b""
        self._host.account(-self._accounted)
        self._accounted = 0
        self._host.closed(self)

    def resume(self) -> None:
        """There may be room again: look at what was read, then read on."""
        if not self.open or self._stopped():
            return
        if self._backlog:
            backlog, self._backlog = self._backlog, b""
            self._take(memoryview(backlog))
        if self.open and not self._stopped():
            self._watch(self._interest | READABLE)
        if self.open:
            self._account()

    # -- reading

    def _ready(self, events: int) -> None:
        if events & WRITABLE:
            self._write_more()
        if not self.open:
            return
        if events & READABLE:
            self._read()
        elif events & _HANG_UP:
            self.close()

    def _stopped(self) -> bool:
        return (
            self._held
            or self._muted is not None
            or self._unsent_bytes > UNSENT_BYTES_MAX
            or len(self._answers) >= self._host.requests_queued_max
        )

    def _read(self) -> None:
        """One read a round, so that a busy client does not starve others."""
        if self._stopped() or not self._host.has_room(self):
            self._watch(self._interest & ~READABLE)
            return
        frame = self._frame
        try:
            if frame is None:
                buffer = self._host.receive_buffer
                kept = len(self._backlog)  # fewer than 4 bytes: not even a frame's size
                buffer[:kept] = self._backlog
                count = self._sock.recv_into(buffer[kept:])
            else:
                count = self._sock.recv_into(memoryview(frame)[self._filled :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # reset by the peer
            count = 0
        if count == 0:
            self.close()
            return
        self.last_active_ms = self._loop.monotonic_ms()
        if frame is None:
            self._backlog = b""
            self._take(buffer[: kept + count])
        else:
            self._filled += count
            self._continue_frame(frame)
        if self.open and (self._accounted or self._frame is not None or self._unsent):
            self._account()

    def _take(self, data: memoryview) -> None:
        """Serve the whole frames in `data`; keep the rest."""
        position, end = 0, len(data)
        host = self._host
        while end - position >= 4 and not self._stopped():
            size = _SIZE.unpack_from(data, position)[0]
            if not FRAME_BYTES_MIN <= size <= host.request_bytes_max:
                host.refuse_frame(self, f"a frame of {size} bytes (socket.request.max.bytes={host.request_bytes_max})")
                return
            start = position + 4
            if end - start < size:
                self._begin_frame(data[position:], 4 + size)
                return
            position = start + size
            host.serve(self, data[start:position])
            if not self.open:
                return
        if position < end:
            self._backlog = bytes(data[position:])

    def _begin_frame(self, arrived: memoryview, size: int) -> None:
        frame = bytearray(min(size, max(FRAME_AT_ONCE_MAX, 2 * len(arrived))))
        frame[: len(arrived)] = arrived
        self._frame, self._frame_size, self._filled = frame, size, len(arrived)
        self._host.frame_begun(self)

    def _continue_frame(self, frame: bytearray) -> None:
        if self._filled == self._frame_size:
            self._frame = None
            self._host.frame_ended(self)
            self._host.serve(self, memoryview(frame)[4:])
        elif self._filled == len(frame):  # a large frame: double its buffer, up to its size
            frame.extend(bytes(min(len(frame), self._frame_size - len(frame))))

    # -- writing

    def _drain(self) -> None:
        """Send every answer at the head of the queue that is ready, in one go."""
        self._draining = False
        if not self.open:
            return
        chunks: list[Any] = []
        answers = self._answers
        released = False
        while answers and answers[0].chunks is not None:
            answer = answers.popleft()
            chunks += answer.chunks or ()
            released = released or answer.releases
        if chunks:
            self._write(chunks)
        if self.open and released:
            self._held = False
        if self.open and (self._backlog or not self._interest & READABLE):
            self.resume()

    def _write(self, chunks: list[Any]) -> None:
        if self._unsent:
            self._queue(chunks)
            return
        if len(chunks) == 1 or (len(chunks) <= CHUNKS_PER_SEND_MAX and not any(map(_is_region, chunks))):
            try:
                sent = self._sock.sendmsg(chunks)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self.close()
                return
            total = sum(map(len, chunks))
            if sent == total:
                return
            self._queue(_without(chunks, sent))
        else:
            self._queue(chunks)
            self._write_more()
            return
        self._watch(self._interest | WRITABLE)
        self._account()

    def _queue(self, chunks: list[Any]) -> None:
        for chunk in chunks:
            if _is_region(chunk):
                self._unsent.append([chunk, 0])
            else:
                self._unsent.append(chunk)
                self._unsent_bytes += len(chunk)

    def _write_more(self) -> None:
        self.last_active_ms = self._loop.monotonic_ms()
        try:
            while self._unsent:
                if not self._send_head():
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EWOULDBLOCK):
                self.close()
                return
        self._watch(self._interest | WRITABLE if self._unsent else self._interest & ~WRITABLE)
        self._account()
        if not self._interest & READABLE:
            self.resume()

    def _send_head(self) -> bool:
        """Send the first region, or all buffers before the next region; False when the socket takes no more."""
        head = self._unsent[0]
        if isinstance(head, list):
            region, done = head
            head[1] = done = done + region.send(self._fd, done)
            if done < region.length:
                return False
            self._unsent.popleft()
            return True
        buffers: list[Any] = []
        for item in self._unsent:
            if isinstance(item, list) or len(buffers) == CHUNKS_PER_SEND_MAX:
                break
            buffers.append(item)
        more = len(buffers) < len(self._unsent)
        sent = self._sock.sendmsg(buffers, (), socket.MSG_MORE if more else 0)
        self._unsent_bytes -= sent
        for _ in buffers:
            self._unsent.popleft()
        rest = _without(buffers, sent)
        self._unsent.extendleft(reversed(rest))
        return not rest

    def _watch(self, interest: int) -> None:
        if interest != self._interest:
            self._interest = interest
            self._loop.change(self._fd, interest)

    def _account(self) -> None:
        held = self._unsent_bytes + (len(self._frame) if self._frame is not None else 0) + len(self._backlog)
        if held != self._accounted:
            self._host.account(held - self._accounted)
            self._accounted = held

    def _unmute(self) -> None:
        self._muted = None
        self.resume()


class _Answer:
    """A place in the order of responses; `chunks` is None until the answer is known."""

    __slots__ = ("chunks", "releases")

    def __init__(self, chunks: list[Any] | None) -> None:
        self.chunks = chunks
        self.releases = False


def _is_region(chunk: object) -> bool:
    return isinstance(chunk, FileRegion)


def _without(chunks: list[Any], sent: int) -> list[Any]:
    """What is left of `chunks` after their first `sent` bytes."""
    for index, chunk in enumerate(chunks):
        if sent < len(chunk):
            return [memoryview(chunk)[sent:], *chunks[index + 1 :]]
        sent -= len(chunk)
    return []
