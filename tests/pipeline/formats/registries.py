"""A schema registry for tests: the part of Confluent's REST API that readers use, over HTTP on a free port."""

from __future__ import annotations

import base64
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headwater.pipeline.formats import Registry


class Schemas:
    """Subjects and their versions; `url` once it is served."""

    def __init__(self) -> None:
        self.subjects: dict[str, list[dict[str, Any]]] = {}
        self.numbers: dict[int, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.authorization: str | None = None
        self.url = ""

    @property
    def registry(self) -> Registry:
        return Registry(self.url)

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: tuple[dict[str, Any], ...] = ()) -> int:
        """The number it gets. Protobuf: the serialised file descriptor."""
        text = base64.b64encode(schema).decode() if isinstance(schema, bytes) else json.dumps(schema)
        number = len(self.numbers) + 1
        body = {"id": number, "schemaType": kind, "schema": text, "references": list(references)}
        self.numbers[number] = body
        self.subjects.setdefault(subject, []).append(body)
        return number

    def answer(self, path: str) -> dict[str, Any] | None:
        parts = path.split("?", maxsplit=1)[0].strip("/").split("/")
        if parts[:2] == ["schemas", "ids"]:
            return self.numbers.get(int(parts[2]))
        versions = self.subjects.get(parts[1], [])
        wanted = len(versions) if parts[3] == "latest" else int(parts[3])
        return versions[wanted - 1] if 0 < wanted <= len(versions) else None


@contextmanager
def serving() -> Iterator[Schemas]:
    schemas = Schemas()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            schemas.requests.append(self.path)
            schemas.authorization = self.headers.get("Authorization")
            found = schemas.answer(self.path)
            body = json.dumps(found or {"error_code": 40401, "message": "not found"}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Tests look at `requests` instead."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    schemas.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield schemas
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def framed(number: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + body
