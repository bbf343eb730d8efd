"""Who gets in: this machine without a token, anybody else with it; no other web page on behalf of its visitor.

On loopback the Host header must name loopback, so that a foreign name pointed at 127.0.0.1 reaches nothing. Elsewhere
every request needs the token: as `Authorization: Bearer`, or as `?token=`, which is kept in a cookie. What changes
things also needs the header `X-Headwater`, which a foreign page cannot send without being asked first.
"""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.errors import SettingError

__all__ = ["Access", "is_loopback"]

COOKIE = "headwater_token"

_POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Access:
    """ASGI middleware in front of everything."""

    def __init__(self, app: ASGIApp, host: str, token: str = "") -> None:
        if not token and not is_loopback(host):
            raise SettingError(
                f"the console would listen on {host}, which others can reach: set console.token, or listen on 127.0.0.1"
            )
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refusal(scope, headers)
        if refused is not None:
            await refused(scope, receive, send)
            return
        if self._token:  # what stands behind this may ask for it too
            others = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
            scope["headers"] = [*others, (b"authorization", f"Bearer {self._token}".encode())]
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                out = MutableHeaders(scope=message)
                out["Content-Security-Policy"] = _POLICY
                out["X-Content-Type-Options"] = "nosniff"
                if self._token and given:
                    out.append("Set-Cookie", f"{COOKIE}={given}; HttpOnly; SameSite=Strict; Path=/")
            await send(message)

        await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        if self._token:
            if not self._knows_token(scope, headers):
                return JSONResponse({"error": "the token is missing or wrong: open /?token=..."}, status_code=401)
        elif not is_loopback(headers.get("host", "").rsplit(":", 1)[0]):
            return JSONResponse({"error": "this console answers only to names of this machine"}, status_code=403)
        if scope["method"] not in ("GET", "HEAD") and "x-headwater" not in headers:
            return JSONResponse({"error": "changing things needs the header X-Headwater"}, status_code=403)
        return None

    def _knows_token(self, scope: Scope, headers: Headers) -> bool:
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        query = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        return any(hmac.compare_digest(each.encode(), self._token.encode()) for each in (bearer, cookie, query))
