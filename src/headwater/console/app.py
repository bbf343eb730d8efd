"""The console's web application: one page, its JSON API, and what happens live by server-sent events.

    GET  /api/overview                       the latest sample: topics, groups, parts, alerts; and a history of rates
    GET  /api/topics/{name}                  a topic's partitions and its history of rates
    GET  /api/groups/{name}                  a group's offsets and lag by partition, and its history of lag
    GET  /api/records?topic=...              records: partition, offset | time | tail, limit, contains
    GET  /api/config                         the effective settings and where they come from
    GET  /api/events                         server-sent events: `overview` after every sample
    GET  /api/follow?topic=...               server-sent events: `record` as they come; partition, contains
    POST /api/actions/{action}               {"confirm": true, ...}: see `actions`; needs the header X-Headwater
    /api/stores/views...                     the declared views themselves: see `headwater.views.serving`

Errors are {"error": "what, where, what to do"} with status 400 (the request), 401 (the token), 403 (the caller's
origin), 404, 503 (the log). Everything is JSON; times are milliseconds since 1970 unless a name ends in `_s`.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from headwater import __version__
from headwater.console.access import Access
from headwater.console.actions import act
from headwater.console.alerts import alerts
from headwater.console.cluster import Cluster, Snapshot
from headwater.console.records import Query, browse, follow
from headwater.errors import BadInput, HeadwaterError

__all__ = ["application"]

STATIC = Path(__file__).parent / "static"
EVENT_TIMEOUT_S = 15.0  # without a new sample for so long, the last one is sent again: it keeps connections alive
BODY_BYTES_MAX = 64 * 1024


def application(
    cluster: Cluster,
    *,
    host: str,
    token: str = "",
    settings: Callable[[], Any] = dict,
    views: Starlette | None = None,
) -> Starlette:
    """The application for one log; `settings()` is what /api/config answers, `views` serves the declared views."""
    api = _Api(cluster, settings)
    stores = [] if views is None else [Mount("/api/stores", views)]
    routes = [
        Route("/api/overview", api.overview),
        Route("/api/topics/{name}", api.topic),
        Route("/api/groups/{name:path}", api.group),
        Route("/api/records", api.records),
        Route("/api/config", api.config),
        Route("/api/events", api.events),
        Route("/api/follow", api.follow),
        Route("/api/actions/{action}", api.action, methods=["POST"]),
        *stores,
        Mount("/", StaticFiles(directory=STATIC, html=True)),
    ]
    lifespan = None if views is None else views.router.lifespan_context
    handlers: Any = {HeadwaterError: _refused, KafkaException: _unreachable}
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.add_middleware(Access, host=host, token=token)
    return app


class _Api:
    """The endpoints."""

    def __init__(self, cluster: Cluster, settings: Callable[[], Any]) -> None:
        self._cluster, self._settings = cluster, settings

    async def overview(self, _: Request) -> Response:
        return JSONResponse({**_overview(self._cluster.snapshot()), "history": self._cluster.history()})

    async def topic(self, request: Request) -> Response:
        name = request.path_params["name"]
        topic = self._cluster.snapshot().topics.get(name)
        if topic is None:
            return _absent(f"there is no topic {name!r}")
        partitions = [[p, topic.earliest.get(p, 0), end] for p, end in topic.latest.items()]
        history = self._cluster.topic_history(name)
        return JSONResponse({**topic.as_json(), "offsets": partitions, "history": history})

    async def group(self, request: Request) -> Response:
        name = request.path_params["name"]
        group = self._cluster.snapshot().groups.get(name)
        if group is None:
            return _absent(f"there is no group {name!r}")
        offsets = [[t, p, offset, group.lag.get((t, p))] for (t, p), offset in sorted(group.committed.items())]
        return JSONResponse({**group.as_json(), "offsets": offsets, "history": self._cluster.group_history(name)})

    async def records(self, request: Request) -> Response:
        query = Query.parse(dict(request.query_params))
        return JSONResponse(await run_in_threadpool(browse, self._cluster.connection, query))

    async def config(self, _: Request) -> Response:
        return JSONResponse(self._settings())

    async def events(self, request: Request) -> Response:
        return _stream(self._overviews(request))

    async def follow(self, request: Request) -> Response:
        query = Query.parse(dict(request.query_params))
        return _stream(self._records(request, query))

    async def action(self, request: Request) -> Response:
        body = await request.body()
        try:
            arguments = json.loads(body) if len(body) <= BODY_BYTES_MAX else None
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            raise BadInput(f"an action takes a JSON object of at most {BODY_BYTES_MAX} bytes")
        done = await run_in_threadpool(act, self._cluster, request.path_params["action"], arguments)
        return JSONResponse({"done": done})

    async def _overviews(self, request: Request) -> AsyncIterator[str]:
        seen = 0.0
        while not await request.is_disconnected():
            snapshot = await run_in_threadpool(self._cluster.wait_for_next, seen, EVENT_TIMEOUT_S)
            seen = snapshot.time_s
            yield _event("overview", _overview(snapshot))

    async def _records(self, request: Request, query: Query) -> AsyncIterator[str]:
        async for record in iterate_in_threadpool(follow(self._cluster.connection, query)):
            if await request.is_disconnected():
                return
            yield ": nothing new\n\n" if record is None else _event("record", record)


def _overview(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "version": __version__,
        "time_ms": int(snapshot.time_s * 1000),
        "now_ms": time.time_ns() // 1_000_000,
        "error": snapshot.error,
        "topics": [topic.as_json() for topic in snapshot.topics.values()],
        "groups": [group.as_json() for group in snapshot.groups.values()],
        "parts": list(snapshot.parts),
        "alerts": alerts(snapshot),
    }


def _event(kind: str, body: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(body, separators=(',', ':'))}\n\n"


def _stream(events: AsyncIterator[str]) -> StreamingResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _absent(what: str) -> JSONResponse:
    return JSONResponse({"error": what}, status_code=404)


async def _refused(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=400 if isinstance(error, BadInput) else 503)


async def _unreachable(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"the log does not answer: {error.args[0].str()}"}, status_code=503)
