"""What the broker counts. Counting is a dictionary update; turning it into text is done when somebody asks.

Declared together, so that what can be observed is one list:

    requests, request_bytes, request_ns    by API
    errors                                 by kind: names of errors and Kafka error codes
    bytes_in, bytes_out, records           by topic: produced, fetched
    connections_opened, connections_open, connections_refused
"""

from __future__ import annotations

from collections import Counter

from headwater.wire.apis import APIS

__all__ = ["Metrics"]


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
        self.connections_opened = 0
        self.connections_open = 0
        self.connections_refused: Counter[str] = Counter()

    def request(self, api_key: int, size: int, elapsed_ns: int) -> None:
        self.requests[api_key] += 1
        self.request_bytes[api_key] += size
        self.request_ns[api_key] += elapsed_ns

    def error(self, kind: str) -> None:
        self.errors[kind] += 1
