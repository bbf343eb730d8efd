"""What a handler is given, and how it answers.

A handler is a module `headwater/broker/handlers/<api>.py`, named as the API in `wire/messages`, with

    API_KEY = 12
    def handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse | Awaitable[HeartbeatResponse] | None

It is imported when the API is first asked for. `handle` runs on the loop's thread and must not block. It answers in
one of three ways: the response itself (the hot path); a `Promise` of it, or an `async def` that awaits promises;
`None` for the one case in which the protocol has no answer (Produce with acks=0). The server keeps the order of
responses of a connection.

An exception that escapes a handler is ours: it is logged with its trace, counted, and closes that connection only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headwater.broker.services import Services
    from headwater.wire.frames import RequestHeader

__all__ = ["ANONYMOUS", "Call", "Disconnect", "Peer"]

ANONYMOUS = "User:ANONYMOUS"  # the principal of everybody: connections do not authenticate


class Disconnect(Exception):
    """The protocol's only answer here is to close the connection (a failed Produce with acks=0)."""


class Peer:
    """Who is at the other end of a connection; one object for its whole life."""

    __slots__ = (
        "abandoned",
        "endpoint",
        "host",
        "id",
        "port",
        "principal",
        "software",
    )

    def __init__(self, connection_id: int, host: str, port: int, *, endpoint: tuple[str, int]) -> None:
        self.id = connection_id
        self.host = host  # as Kafka shows it in DescribeGroups, without the slash
        self.port = port
        self.endpoint = endpoint  # where this client is told to find the broker
        self.abandoned: Callable[[], object] | None = None  # called if it goes away while its request waits
        self.principal = ANONYMOUS
        self.software = ("unknown", "unknown")  # name and version, from ApiVersions 3+

    def __repr__(self) -> str:
        return f"{self.host}:{self.port}#{self.id}"


class Call(NamedTuple):
    """One request's surroundings. `header` has api_key, api_version, correlation_id and client_id (maybe None)."""

    broker: Services
    header: RequestHeader
    peer: Peer
    now_ms: int  # wall clock at arrival
