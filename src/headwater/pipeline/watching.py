"""Watching pipelines: a listener on a SparkSession, its figures as JSON, for Prometheus, and over HTTP.

    with watch(spark, port=0) as watching:
        ...                       # queries of this session, started before or after
        watching.as_json()        # {"queries": [...]}: rows, late rows per producer, low watermarks, state, times, lag
        watching.url              # http://127.0.0.1:PORT: /watch.json for a page to poll, /metrics for Prometheus

Times in JSON that end in `_us` are microseconds since 1970. `ms.read`, `ms.step` and `ms.write` are the slowest task's:
waiting for its rows, in the step with its state, and making the state durable (of the batch before). `lag` and
`backfill` are there where the source is Kafka.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from headwater.pipeline.stateful.spark import defined_states
from headwater.pipeline.watching_exposition import expose
from headwater.pipeline.watching_operators import OperatorReader
from headwater.pipeline.watching_queries import WatchedQuery

__all__ = ["Watch", "watch"]

QUERIES_MAX = 100  # queries that are remembered; the one that ended longest ago is forgotten


class Watch(StreamingQueryListener):
    """The queries of a session. Thread-safe: Spark calls from one thread, readers from others."""

    def __init__(self) -> None:
        self._queries: dict[str, WatchedQuery] = {}  # by run
        self._reader = OperatorReader()
        self._lock = threading.Lock()
        self.url: str | None = None

    def as_json(self) -> dict[str, Any]:
        with self._lock:
            return {"queries": [query.as_json() for query in self._queries.values()]}

    def metrics(self) -> str:
        """The same figures in Prometheus' text format."""
        with self._lock:
            return expose(self._queries.values())

    def onQueryStarted(self, event: Any) -> None:
        with self._lock:
            self._query(str(event.id), str(event.runId), event.name)

    def onQueryProgress(self, event: Any) -> None:
        report = json.loads(event.progress.json)
        operators = self._reader.read(defined_states(), report["id"], report["batchId"])
        with self._lock:
            self._query(report["id"], report["runId"], report.get("name")).progress(report, operators)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing came: nothing changes."""

    def onQueryTerminated(self, event: Any) -> None:
        with self._lock:
            query = self._queries.get(str(event.runId))
            if query is not None:
                query.end(event.exception)

    def _query(self, query_id: str, run: str, name: str | None) -> WatchedQuery:
        if run not in self._queries:
            self._queries[run] = WatchedQuery(query_id, run, name)
            ended = [one.run for one in self._queries.values() if one.status != "running"]
            if len(self._queries) > QUERIES_MAX and ended:
                del self._queries[ended[0]]
        return self._queries[run]


@contextmanager
def watch(spark: SparkSession, *, host: str = "127.0.0.1", port: int | None = None) -> Iterator[Watch]:
    """Watch the session's queries until the block ends; with a `port` (0: any) also serve what is seen over HTTP."""
    watching = Watch()
    spark.streams.addListener(watching)
    server = None if port is None else _serve(watching, host, port)
    try:
        yield watching
    finally:
        spark.streams.removeListener(watching)
        if server is not None:
            server.shutdown()
            server.server_close()


def _serve(watching: Watch, host: str, port: int) -> ThreadingHTTPServer:
    pages: dict[str, tuple[str, Callable[[], str]]] = {
        "/watch.json": ("application/json", lambda: json.dumps(watching.as_json())),
        "/metrics": ("text/plain; version=0.0.4; charset=utf-8", watching.metrics),
    }

    class Handler(BaseHTTPRequestHandler):
        """GET of the pages above."""

        def do_GET(self) -> None:
            kind, page = pages.get(self.path.partition("?")[0], ("text/plain", None))
            body = f"there are {', '.join(pages)}\n".encode() if page is None else page().encode()
            self.send_response(404 if page is None else 200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Requests are not diagnostics."""

    server = ThreadingHTTPServer((host, port), Handler)
    threading.Thread(target=server.serve_forever, name="headwater-watch", daemon=True).start()
    watching.url = f"http://{host}:{server.server_address[1]}"
    return server
