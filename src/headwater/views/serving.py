"""Views over HTTP: rows by key, queries, searches, and their changes as server-sent events. A Starlette app.

    GET  /views                                {"views": [{"name", "topics", "store"}]}
    GET  /views/{view}                         {"versions": [status of each, as `headwater view status --json`]}
    GET  /views/{view}/rows?limit=100          {"rows": [...], "position", "version", "stale"}
    GET  /views/{view}/rows/{key}              {"row": {...}|null, ...}; 404 when there is no such row
    POST /views/{view}/query                   {"sql": ..., "parameters": [...]} → {"rows": [...], "truncated", ...}
    GET  /views/{view}/search?q=...            {"total", "hits": [{"row", "score", "highlights"}], "facets", ...};
                                               limit, offset, facets=a,b, order_by
    GET  /views/{view}/changes?from=TOKEN      text/event-stream of {"key", "row", "position", "time_ms"}; the event's
         &key=KEY                              id is its position, so browsers go on where they were (Last-Event-ID)

Reads take `at_least=TOKEN`, `timeout=SECONDS`, `otherwise=fail|stale` and `version=N`, and say which `position` was
served. A key of several columns is a JSON array. Errors are {"error": what, where, what to do}: 400 a bad request, 401
no token, 404 no such view or row, 503 the store or the log does not answer or too many subscribers, 504 not covered in
time.

Callers on this machine need no token, and their Host must be this machine's name; any other needs
`Authorization: Bearer TOKEN`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from headwater.client import Connection
from headwater.errors import BadInput, HeadwaterError
from headwater.views.definition import Definition
from headwater.views.errors import BadView, NotCovered
from headwater.views.feed import Change, ChangeFeed
from headwater.views.rows import key_from_text
from headwater.views.view import Answer, View

__all__ = ["LOOPBACK", "create_app"]

ROWS_MAX = 10_000  # of one answer
ROWS_DEFAULT = 100
TIMEOUT_DEFAULT_S, TIMEOUT_MAX_S = 5.0, 30.0  # to wait for a position
SUBSCRIBERS_MAX = 64  # each reads the log itself
CHANGES_QUEUED_MAX = 1_000  # for a subscriber that is slower than the view: then it is waited for
HEARTBEAT_S = 15.0  # a comment in the stream, so that a subscriber that is gone is noticed
BODY_BYTES_MAX = 1 << 20

LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")

Endpoint = Callable[[Request, View], Awaitable[Response]]


def create_app(definitions: Mapping[str, Definition], connection: Connection, *, token: str = "") -> Starlette:
    """The app; mount it or serve it. `token`: asked of every caller, unless it is empty."""
    server = _Server(dict(definitions), connection, token)
    routes = [
        Route("/views", server.listing),
        Route("/views/{view}", server.endpoint(_status)),
        Route("/views/{view}/rows", server.endpoint(_rows)),
        Route("/views/{view}/rows/{key:path}", server.endpoint(_row)),
        Route("/views/{view}/query", server.endpoint(_query), methods=["POST"]),
        Route("/views/{view}/search", server.endpoint(_search)),
        Route("/views/{view}/changes", server.endpoint(server.changes)),
    ]
    return Starlette(routes=routes, lifespan=server.lifespan)


class _Server:
    """Opens views when they are asked for, and checks who asks."""

    def __init__(self, definitions: dict[str, Definition], connection: Connection, token: str) -> None:
        self._definitions, self._connection, self._token = definitions, connection, token
        self._views: dict[tuple[str, int | None], View] = {}
        self._opening = threading.Lock()
        self._subscribers = 0

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        yield
        for view in self._views.values():
            view.close()

    def endpoint(self, answer: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            refused = self._refusal(request)
            if refused is not None:
                return refused
            try:
                view = await run_in_threadpool(self._view, request.path_params["view"], _number(request, "version"))
                if view is None:
                    return _error(404, f"there is no view {request.path_params['view']!r}")
                return await answer(request, view)
            except NotCovered as error:
                return _error(504, str(error))
            except BadInput as error:
                return _error(400, str(error))
            except HeadwaterError as error:
                return _error(503, str(error))

        return respond

    async def listing(self, request: Request) -> Response:
        refused = self._refusal(request)
        if refused is not None:
            return refused
        found = [
            {"name": d.name, "topics": list(d.topics), "store": d.shown_store()} for d in self._definitions.values()
        ]
        return _answer({"views": found})

    async def changes(self, request: Request, view: View) -> Response:
        if self._subscribers >= SUBSCRIBERS_MAX:
            return _error(503, f"there are {SUBSCRIBERS_MAX} subscribers already: try again later")
        start = request.headers.get("last-event-id") or request.query_params.get("from")
        key = request.query_params.get("key")
        feed = await run_in_threadpool(_feed, view, start, key)
        self._subscribers += 1
        return StreamingResponse(
            self._events(feed), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _events(self, feed: ChangeFeed) -> AsyncIterator[bytes]:
        try:
            yield b": subscribed\n\n"
            async with _queued(feed) as queue:
                while True:
                    try:
                        found = await asyncio.wait_for(queue.get(), HEARTBEAT_S)
                    except TimeoutError:
                        yield b": still here\n\n"
                        continue
                    if isinstance(found, Exception):
                        yield b"event: error\ndata: " + _json({"error": str(found)}) + b"\n\n"
                        return
                    body = _json(dataclasses.asdict(found))
                    yield b"id: " + found.position.encode() + b"\nevent: change\ndata: " + body + b"\n\n"
        finally:
            self._subscribers -= 1

    def _view(self, name: str, version: int | None) -> View | None:
        with self._opening:
            if name not in self._definitions:
                return None
            place = (name, version)
            if place not in self._views:
                self._views[place] = View(self._definitions[name], self._connection, version=version)
            return self._views[place]

    def _refusal(self, request: Request) -> Response | None:
        if self._token:
            given = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
            if not hmac.compare_digest(given, self._token.encode()):
                return _error(401, "say who you are: Authorization: Bearer TOKEN")
            return None
        host = request.headers.get("host", "").rsplit(":", 1)[0]
        if host not in LOOPBACK:  # a page elsewhere whose name was made to mean this machine
            return _error(
                401, f"this server is for {', '.join(LOOPBACK[:2])}, not {host!r}; give it a token to be asked"
            )
        return None


@contextlib.asynccontextmanager
async def _queued(feed: ChangeFeed) -> AsyncIterator[asyncio.Queue[Change | Exception]]:
    """The feed read by a thread of its own, which waits when the queue is full."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[Change | Exception](CHANGES_QUEUED_MAX)

    def put(found: Change | Exception) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(found), loop).result()

    def read() -> None:
        try:
            for change in feed:
                put(change)
        except Exception as error:
            with contextlib.suppress(RuntimeError):  # the server has ended
                put(error)

    thread = threading.Thread(target=read, name="view-changes", daemon=True)
    thread.start()
    try:
        yield queue
    finally:
        feed.close()
        while thread.is_alive():  # it may wait for room in the queue
            while not queue.empty():
                queue.get_nowait()
            await asyncio.sleep(0.01)


def _feed(view: View, start: str | None, key: str | None) -> ChangeFeed:
    columns = view.key_columns()
    return view.changes(start=start, key=None if key is None else key_from_text(key, columns))


async def _status(_: Request, view: View) -> Response:
    found = await run_in_threadpool(view.status)
    shown = view.definition.shown_store()
    return _answer({"versions": [{**dataclasses.asdict(each), "store": shown} for each in found]})


async def _row(request: Request, view: View) -> Response:
    def get(answer: Answer) -> dict[str, Any]:
        return {"row": answer.get(key_from_text(request.path_params["key"], answer.bookmark.key))}

    body = await run_in_threadpool(_read, request, view, get)
    return _answer(body, 200 if body["row"] is not None else 404)


async def _rows(request: Request, view: View) -> Response:
    limit = min(_number(request, "limit") or ROWS_DEFAULT, ROWS_MAX)
    return _answer(await run_in_threadpool(_read, request, view, lambda a: {"rows": list(islice(a.scan(), limit))}))


async def _query(request: Request, view: View) -> Response:
    body = await request.body()
    if len(body) > BODY_BYTES_MAX:
        raise BadView(f"a query has at most {BODY_BYTES_MAX} bytes")
    try:
        asked = json.loads(body)
        sql, parameters = str(asked["sql"]), asked.get("parameters", [])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadView('send {"sql": "SELECT ...", "parameters": [...]}') from error

    def query(answer: Answer) -> dict[str, Any]:
        rows = answer.query(sql, parameters)
        return {"rows": rows[:ROWS_MAX], "truncated": len(rows) > ROWS_MAX}

    return _answer(await run_in_threadpool(_read, request, view, query))


async def _search(request: Request, view: View) -> Response:
    asked = request.query_params
    how: dict[str, Any] = {"limit": min(_number(request, "limit") or 10, ROWS_MAX)}
    if asked.get("facets"):
        how["facets"] = asked["facets"].split(",")
    if asked.get("offset"):
        how["offset"] = _number(request, "offset")
    if asked.get("order_by"):
        how["order_by"] = asked["order_by"]

    def search(answer: Answer) -> dict[str, Any]:
        try:
            found = answer.search(asked.get("q", ""), **how)
        except TypeError as error:
            raise BadView(f"this view's store cannot search so: {error}") from error
        return dataclasses.asdict(found) if dataclasses.is_dataclass(found) else {"answer": found}  # type: ignore[arg-type]

    return _answer(await run_in_threadpool(_read, request, view, search))


def _read(request: Request, view: View, read: Callable[[Answer], dict[str, Any]]) -> dict[str, Any]:
    asked = request.query_params
    try:
        timeout = min(float(asked.get("timeout", TIMEOUT_DEFAULT_S)), TIMEOUT_MAX_S)
    except ValueError as error:
        raise BadView(f"timeout is {asked['timeout']!r}; it is a number of seconds") from error
    otherwise: Any = asked.get("otherwise", "fail")
    with view.read(at_least=asked.get("at_least"), timeout=timeout, otherwise=otherwise) as answer:
        body = read(answer)
        return {**body, "position": answer.position, "version": answer.version, "stale": answer.stale}


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not text.isdigit():
        raise BadView(f"{name} is {text[:40]!r}; it is a number")
    return int(text)


def _answer(body: Mapping[str, Any], status: int = 200) -> Response:
    return Response(_json(body), status, media_type="application/json")


def _error(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status)


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, default=_plain, ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """What databases return and JSON does not have."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else str(value)
