"""What the broker counts. Counting is a dictionary update; turning it into text (`exposition`) happens when somebody
asks.

Declared together, so that what can be observed is one list:

    requests, request_bytes, request_ns    by API
    errors                                 by kind: names of errors and Kafka error codes
    bytes_in, bytes_out                    by topic: produced, fetched
    throttled_ms                           by quota
    append_times, sync_times               how long appending a Produce request and syncing a file took
    connections_opened, connections_open, connections_refused
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING

from headwater.filesystem import SystemFilesystem
from headwater.wire.apis import APIS

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

__all__ = ["Metrics", "TimedFilesystem", "Times"]


class Times:
    """Durations in classes that double from 1 µs up: one shift and one addition to count."""

    __slots__ = ("_counts", "total_ns")

    CLASSES = 26  # the last one holds everything from 2^24 µs (17 s) up

    def __init__(self) -> None:
        self._counts = [0] * self.CLASSES
        self.total_ns = 0

    def add(self, elapsed_ns: int) -> None:
        self.total_ns += elapsed_ns
        self._counts[min((elapsed_ns // 1000).bit_length(), self.CLASSES - 1)] += 1

    @property
    def count(self) -> int:
        return sum(self._counts)

    def upto(self) -> Iterator[tuple[float, int]]:
        """(seconds, how many took less), rising."""
        below = 0
        for power, count in enumerate(self._counts[:-1]):
            below += count
            yield (1 << power) / 1e6, below


class Metrics:
    """Plain counters; all of them only grow, but for `connections_open`."""

    def __init__(self) -> None:
        self.requests = dict.fromkeys(APIS, 0)
        self.request_bytes = dict.fromkeys(APIS, 0)
        self.request_ns = dict.fromkeys(APIS, 0)
        self.errors: Counter[str] = Counter()
        self.bytes_in: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()
        self.throttled_ms: Counter[str] = Counter()
        self.append_times = Times()
        self.sync_times = Times()
        self.connections_opened = 0
        self.connections_open = 0
        self.connections_refused: Counter[str] = Counter()

    def request(self, api_key: int, size: int, elapsed_ns: int) -> None:
        self.requests[api_key] += 1
        self.request_bytes[api_key] += size
        self.request_ns[api_key] += elapsed_ns

    def error(self, kind: str) -> None:
        self.errors[kind] += 1


class TimedFilesystem(SystemFilesystem):
    """The real disk, with the time of each sync counted (on several threads, hence the lock)."""

    def __init__(self, times: Times) -> None:
        super().__init__()
        self._times = times
        self._lock = threading.Lock()

    def datasync(self, fd: FileDescriptorLike) -> None:
        started = perf_counter_ns()
        super().datasync(fd)
        elapsed = perf_counter_ns() - started
        with self._lock:
            self._times.add(elapsed)
