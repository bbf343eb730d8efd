"""From a frame to its handler, and from the handler's answer to bytes.

Handlers are found by API key in `headwater.broker.handlers`, under the module name of the API's messages, and imported
when first needed: a broker that only produces and fetches never loads group management.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from time import perf_counter_ns, time_ns
from typing import TYPE_CHECKING, Any

from headwater.broker import handlers
from headwater.broker.call import Call, Disconnect
from headwater.broker.complaints import Complaints
from headwater.broker.promise import Promise, spawn
from headwater.wire.apis import API_VERSIONS, APIS
from headwater.wire.errors import UnsupportedVersion, WireError
from headwater.wire.fields import Struct
from headwater.wire.frames import RequestHeader, decode_header, decode_request, encode_response

if TYPE_CHECKING:
    from headwater.broker.connection import Connection
    from headwater.broker.services import Services

__all__ = ["Dispatcher", "Handler", "supported_apis"]

Handler = Callable[[Call, Any], Any]

_log = logging.getLogger("headwater.broker")


@cache
def supported_apis() -> frozenset[int]:
    """The keys of the APIs that have a handler: what is advertised."""
    names = {module.name for module in iter_modules(handlers.__path__)}
    return frozenset(key for key, api in APIS.items() if api.module in names)


class Dispatcher:
    """Serves whole frames. Errors of a client close its connection; errors of ours do too, and are logged with a
    trace."""

    def __init__(self, broker: Services, complaints: Complaints) -> None:
        self._broker = broker
        self._complaints = complaints
        self._metrics = broker.metrics
        self._handlers: dict[int, Handler] = {}

    def serve(self, connection: Connection, frame: memoryview) -> None:
        """Answer the request in `frame` now, or have the connection wait for the answer."""
        started = perf_counter_ns()
        try:
            header, position = decode_header(frame)
            request = decode_request(header, frame, position)
        except UnsupportedVersion as error:
            self._unsupported(connection, frame, error)
            return
        except WireError as error:
            self._refuse(connection, error)
            return
        key = header.api_key
        handler = self._handlers.get(key) or self._load(key)
        if handler is None:
            self._refuse(connection, WireError(f"{APIS[key].name} is not supported by this broker"))
            return
        call = Call(self._broker, header, connection.peer, time_ns() // 1_000_000)
        try:
            answer = handler(call, request)
            if isinstance(answer, Struct):
                self._answer(connection, header, answer)
            elif answer is not None:
                self._answer_later(connection, header, answer)
        except Exception as error:
            self._failed(connection, header, error)
        self._metrics.request(key, len(frame), perf_counter_ns() - started)
        if self._broker.quotas.limits_requests:
            self._charge(connection, header, perf_counter_ns() - started)

    def _answer(self, connection: Connection, header: RequestHeader, response: Struct) -> None:
        connection.send(encode_response(header, response))
        self._throttle(connection, header, response)

    def _throttle(self, connection: Connection, header: RequestHeader, response: Struct) -> None:
        """A client that was told to wait is not read for as long (KIP-219)."""
        throttled_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttled_ms:
            self._metrics.throttled_ms[APIS[header.api_key].name] += throttled_ms
            connection.mute(throttled_ms)

    def _answer_later(self, connection: Connection, header: RequestHeader, answer: Any) -> None:
        promise: Promise[Any] = spawn(answer) if isinstance(answer, Coroutine) else answer

        def encode(promise: Promise[Any]) -> list[Any] | None:
            try:
                response = promise.result()
                if response is None:
                    return None
                chunks = encode_response(header, response)
            except Exception as error:
                self._failed(connection, header, error)
                return None
            self._throttle(connection, header, response)
            return chunks

        connection.later(promise, encode)

    def _charge(self, connection: Connection, header: RequestHeader, elapsed_ns: int) -> None:
        """Request quotas: time spent for a client beyond its share is time its socket is not read."""
        muted_ms = self._broker.quotas.charge_request(header.client_id, elapsed_ns)
        if muted_ms and connection.open:
            connection.mute(muted_ms)

    def _load(self, key: int) -> Handler | None:
        if key not in supported_apis():
            return None
        handler: Handler = import_module(f"headwater.broker.handlers.{APIS[key].module}").handle
        self._handlers[key] = handler
        return handler

    def _unsupported(self, connection: Connection, frame: memoryview, error: UnsupportedVersion) -> None:
        """A client may ask for its versions in a version we do not know: it is told ours (KIP-511)."""
        if error.api_key != API_VERSIONS:
            self._refuse(connection, error)
            return
        from headwater.broker.handlers.api_versions import unsupported_version

        header, _ = decode_header(frame)
        connection.send(encode_response(header, unsupported_version()))

    def _refuse(self, connection: Connection, error: WireError) -> None:
        self._metrics.error(type(error).__name__)
        self._complaints.warn("closing the connection of %s: %s", connection.peer, error)
        connection.close()

    def _failed(self, connection: Connection, header: RequestHeader, error: Exception) -> None:
        if isinstance(error, Disconnect):
            self._metrics.error("Disconnect")
            _log.info("closing the connection of %s: %s", connection.peer, error)
            connection.close()
            return
        self._metrics.error("HandlerFailed")
        what = f"{APIS[header.api_key].name} version {header.api_version}"
        _log.error("%s of %s failed; closing its connection", what, connection.peer, exc_info=error)
        connection.close()
