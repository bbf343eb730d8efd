"""Views as a search index on a server: `opensearch:http://HOST:9200` (https too).

Version 3 of the view `users` is the index `users-v3`; `users` is an alias of the active version, so every client
searches the view by its name. Options: `settings` and `mappings` of the indexes that are made.

A column is indexed as the kind its first row had; a number that is none is kept and not indexed, and a row whose column
is an object where others have text, or a list of both, is refused.

OpenSearch has no transactions, so rows are applied again until the bookmark says that they were: each document has the
offset of its record as its external version, and older ones are refused. That compares offsets of one key, which
therefore has to come from one partition always: a topic keyed as the view is. A snapshot's rows are as new as its
bookmark, or newer. Deleted keys are remembered for an hour (`index.gc_deletes`), longer than any request can be late.
The index `headwater-views` holds each view's catalog and each version's epoch and bookmark, changed only by whoever
knows the state before (`if_seq_no`): a follower that has been overtaken cannot move the bookmark.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from headwater.views.bookmark import Bookmark
from headwater.views.errors import BadView, Fenced, RecordRefused, StoreUnavailable
from headwater.views.pace import BATCH_RECORDS
from headwater.views.rows import Batch, Row, key_text, normalise_key
from headwater.views.stores import Catalog, Wants, check_options

__all__ = ["OpenSearchSnapshot", "OpenSearchStore", "open_store"]

REQUEST_TIMEOUT_S = 60.0
COMMIT_INTERVAL_MS = 500  # a commit refreshes the index
BULK_BYTES_MAX = 5 << 20  # of one request
KEY_BYTES_MAX = 512  # OpenSearch's own limit of document names
SCAN_ROWS = 1_000
CATALOG_ATTEMPTS_MAX = 100

META_INDEX = "headwater-views"
_SETTINGS = {
    "index": {
        "gc_deletes": "1h",
        "refresh_interval": "-1",
        "number_of_replicas": 0,
        "mapping": {"ignore_malformed": True},
    }
}
_NAME = "_headwater_key"  # the document's name again, as something to sort by

_encode = msgspec.json.Encoder().encode


def open_store(address: str, view: str, options: dict[str, Any]) -> OpenSearchStore:
    check_options(view, "opensearch", options, ("settings", "mappings"))
    url = urllib.parse.urlsplit(address.removeprefix("opensearch:"))
    if url.scheme not in ("http", "https") or not url.hostname:
        raise BadView(f"view {view}: say where the server is: opensearch:http://HOST:9200")
    if view != view.lower() or view[:1] in "_-":
        raise BadView(f"view {view}: OpenSearch's names are in lower case and start with a letter")
    return OpenSearchStore(_Server(url), view, options)


class OpenSearchStore:
    """One view's indexes."""

    commit_interval_ms = COMMIT_INTERVAL_MS
    batch_records = BATCH_RECORDS

    def __init__(self, server: _Server, view: str, options: Mapping[str, Any]) -> None:
        self.server, self.view, self._options = server, view, options
        meta = {"mappings": {"enabled": False}, "settings": {"index": {"number_of_replicas": 0}}}
        server.make_index(META_INDEX, meta)

    def catalog(self) -> Catalog:
        return Catalog.from_json(self.server.document(self._catalog_name())[0].get("catalog"))

    def change_catalog(self, change: Callable[[Catalog], Catalog]) -> Catalog:
        for _ in range(CATALOG_ATTEMPTS_MAX):
            body, state = self.server.document(self._catalog_name())
            old = Catalog.from_json(body.get("catalog"))
            new = change(old)
            if new.active != old.active:
                self._show(new.active)
            if self.server.replace(self._catalog_name(), {"catalog": new.to_json()}, state) is not None:
                return new
        raise StoreUnavailable(f"view {self.view}: its catalog is being changed by others all the time")

    def writer(self, version: int, epoch: int | None = None) -> OpenSearchWriter:
        self._make(version)
        return OpenSearchWriter(self, version, epoch)

    def reader(self, version: int | None = None) -> OpenSearchReader:
        return OpenSearchReader(self, version)

    def drop(self, version: int) -> None:
        self.server.call("DELETE", f"/{self.index(version)}?ignore_unavailable=true")
        self.server.call("DELETE", f"/{META_INDEX}/_doc/{self.bookmark_name(version)}?refresh=true", missing=True)
        if not self.catalog().versions:
            self.server.call("DELETE", f"/{META_INDEX}/_doc/{self._catalog_name()}?refresh=true", missing=True)

    def close(self) -> None:
        self.server.close()

    def index(self, version: int) -> str:
        return f"{self.view}-v{version}"

    def bookmark_name(self, version: int) -> str:
        return f"{self.view}-v{version}"

    def _catalog_name(self) -> str:
        return f"{self.view}-catalog"

    def _make(self, version: int) -> None:
        settings = {"index": {**_SETTINGS["index"], **self._options.get("settings", {})}}
        mappings = dict(self._options.get("mappings", {}))
        mappings["properties"] = {**mappings.get("properties", {}), _NAME: {"type": "keyword"}}
        self.server.make_index(self.index(version), {"settings": settings, "mappings": mappings})

    def _show(self, version: int) -> None:
        """One request that takes the alias away and gives it: searches see the one index or the other."""
        actions: list[dict[str, Any]] = [{"remove": {"index": "*", "alias": self.view, "must_exist": False}}]
        if version:
            self._make(version)
            actions.append({"add": {"index": self.index(version), "alias": self.view}})
        self.server.call("POST", "/_aliases", {"actions": actions}, missing=not version)


class OpenSearchWriter:
    """Sends rows as they come, and the bookmark when they are all there and searchable."""

    wants = Wants(offsets=True)

    def __init__(self, store: OpenSearchStore, version: int, epoch: int | None) -> None:
        self._server, self._index = store.server, store.index(version)
        self._name, self._view, self._version = store.bookmark_name(version), store.view, version
        for _ in range(CATALOG_ATTEMPTS_MAX):
            body, state = self._server.document(self._name)
            stored = int(body.get("epoch", 0))
            if epoch is not None and stored > epoch:
                raise self._fenced()
            self.epoch = stored + 1 if epoch is None else epoch
            self._bookmark = Bookmark.from_json(body.get("bookmark"))
            claimed = {"epoch": self.epoch, "bookmark": self._bookmark.to_json()}
            self._state = self._server.replace(self._name, claimed, state)
            if self._state is not None:
                return
        raise StoreUnavailable(f"view {store.view}: others claim it all the time")

    def bookmark(self) -> Bookmark:
        return self._bookmark

    def begin(self) -> None:
        if int(self._server.document(self._name)[0].get("epoch", 0)) != self.epoch:
            raise self._fenced()

    def delete(self, batch: Batch) -> None:
        lines = [
            _encode({"delete": {"_id": name, "version": offset, "version_type": "external_gte"}})
            for name, offset in zip(_names(batch), batch.offsets, strict=True)
        ]
        self._bulk([line + b"\n" for line in lines])

    def upsert(self, batch: Batch) -> None:
        items = []
        for name, offset, row in zip(_names(batch), batch.offsets, batch.rows, strict=True):
            head = _encode({"index": {"_id": name, "version": offset, "version_type": "external_gte"}})
            items.append(head + b"\n" + _encode({**row, _NAME: name}) + b"\n")
        self._bulk(items)

    def commit(self, bookmark: Bookmark) -> None:
        self._server.call("POST", f"/{self._index}/_refresh")
        assert self._state is not None  # since the claim
        body = {"epoch": self.epoch, "bookmark": bookmark.to_json()}
        self._state = self._server.replace(self._name, body, self._state)
        if self._state is None:
            raise self._fenced()
        self._bookmark = bookmark

    def abort(self) -> None:
        """What was sent is there; it is sent again, and then replaced or left as it is by its offset."""

    def close(self) -> None:
        """The connections are the store's."""

    def _bulk(self, items: Sequence[bytes]) -> None:
        start = 0
        while start < len(items):
            size, end = 0, start
            while end < len(items) and (size == 0 or size + len(items[end]) <= BULK_BYTES_MAX):
                size += len(items[end])
                end += 1
            self._send(b"".join(items[start:end]))
            start = end

    def _send(self, body: bytes) -> None:
        found = self._server.call("POST", f"/{self._index}/_bulk?filter_path=errors,items.*.status,items.*.error", body)
        for item in found.get("items", []) if found.get("errors") else []:
            (outcome,) = item.values()
            if outcome["status"] in (200, 201, 404, 409):  # 409: a newer one is there
                continue
            if outcome["status"] in (429, 503):
                raise StoreUnavailable(f"OpenSearch is overloaded: {outcome.get('error')}")
            raise RecordRefused(f"OpenSearch refused the row: {_reason(outcome.get('error'))}")

    def _fenced(self) -> Fenced:
        return Fenced(
            f"view {self._view}: a newer follower of version {self._version} has taken over, or it was dropped"
        )


class OpenSearchReader:
    """Asks the server."""

    poll_s = 0.02

    def __init__(self, store: OpenSearchStore, version: int | None) -> None:
        self._store, self._version = store, version

    def bookmark(self) -> Bookmark:
        return self._found()[1]

    @contextmanager
    def snapshot(self) -> Iterator[OpenSearchSnapshot]:
        version, bookmark = self._found()
        yield OpenSearchSnapshot(self._store, version, bookmark)

    def close(self) -> None:
        """The connections are the store's."""

    def _found(self) -> tuple[int, Bookmark]:
        version = self._store.catalog().active if self._version is None else self._version
        body, _ = self._store.server.document(self._store.bookmark_name(version))
        return version, Bookmark.from_json(body.get("bookmark"))


class OpenSearchSnapshot:
    """One version; rows are as new as its bookmark, or newer."""

    def __init__(self, store: OpenSearchStore, version: int, bookmark: Bookmark) -> None:
        self.bookmark, self.version = bookmark, version
        self._server, self._index = store.server, store.index(version)

    def get(self, key: object) -> Row | None:
        name = urllib.parse.quote(key_text(normalise_key(key, self.bookmark.key)), safe="")
        if not name:
            return None
        found = self._server.call("GET", f"/{self._index}/_doc/{name}", missing=True)
        return _row(found) if found.get("found") else None

    def scan(self) -> Iterator[Row]:
        after: Any = None
        while True:
            body: dict[str, Any] = {"size": SCAN_ROWS, "query": {"match_all": {}}, "sort": [{_NAME: "asc"}]}
            if after is not None:
                body["search_after"] = after
            hits = self._search(body).get("hits", {}).get("hits", [])
            yield from map(_row, hits)
            if len(hits) < SCAN_ROWS:
                return
            after = hits[-1]["sort"]

    def count(self) -> int:
        return int(self._server.call("GET", f"/{self._index}/_count", missing=True).get("count", 0))

    def search(self, text: str = "", *, body: Mapping[str, Any] | None = None, limit: int = 10) -> dict[str, Any]:
        """OpenSearch's own answer: to a query string (`title:rust AND country:CH`), or to a whole request body."""
        asked = dict(body) if body is not None else {"query": {"query_string": {"query": text or "*"}}, "size": limit}
        return self._search(asked)

    def _search(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._server.call("POST", f"/{self._index}/_search", dict(body), missing=True)


class _Server:
    """A keep-alive connection for each thread."""

    def __init__(self, url: urllib.parse.SplitResult) -> None:
        self._url, self._own = url, threading.local()
        self._headers = {"Content-Type": "application/json"}
        if url.username:
            login = f"{urllib.parse.unquote(url.username)}:{urllib.parse.unquote(url.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | bytes | None = None, *, missing: bool = False
    ) -> dict[str, Any]:
        """The answer; `missing`: 404 is an answer too."""
        status, found = self.ask(method, path, body)
        if status < 300 or (missing and status == 404):
            return found
        if status == 400:
            raise BadView(f"OpenSearch refused {method} {path}: {_reason(found.get('error'))}")
        raise StoreUnavailable(f"OpenSearch answered {method} {path} with {status}: {_reason(found.get('error'))}")

    def ask(self, method: str, path: str, body: Mapping[str, Any] | bytes | None = None) -> tuple[int, dict[str, Any]]:
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        fresh = getattr(self._own, "connection", None) is None
        try:
            return self._exchange(method, path, sent)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if fresh or method == "POST":
                raise StoreUnavailable(f"OpenSearch: {error or type(error).__name__}") from error
        try:  # the server had closed an idle connection
            return self._exchange(method, path, sent)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise StoreUnavailable(f"OpenSearch: {error or type(error).__name__}") from error

    def document(self, name: str) -> tuple[dict[str, Any], tuple[int, int] | None]:
        """A document of the meta index, and what it takes to replace exactly this state of it."""
        found = self.call("GET", f"/{META_INDEX}/_doc/{name}", missing=True)
        if not found.get("found"):
            return {}, None
        return found["_source"], (int(found["_seq_no"]), int(found["_primary_term"]))

    def replace(self, name: str, body: Mapping[str, Any], state: tuple[int, int] | None) -> tuple[int, int] | None:
        """The new state; None when the document is no longer as it was."""
        how = "op_type=create" if state is None else f"if_seq_no={state[0]}&if_primary_term={state[1]}"
        status, found = self.ask("PUT", f"/{META_INDEX}/_doc/{name}?{how}", body)
        if status == 409:
            return None
        if status >= 300:
            raise StoreUnavailable(f"OpenSearch answered {status}: {_reason(found.get('error'))}")
        return int(found["_seq_no"]), int(found["_primary_term"])

    def make_index(self, name: str, body: Mapping[str, Any]) -> None:
        status, found = self.ask("PUT", f"/{name}", body)
        kind = found.get("error", {}).get("type", "") if status >= 300 else ""
        if kind and kind != "resource_already_exists_exception":
            message = f"OpenSearch cannot make the index {name}: {_reason(found.get('error'))}"
            raise BadView(message) if status == 400 else StoreUnavailable(message)

    def close(self) -> None:
        connection: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()
            self._own.connection = None

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, dict[str, Any]]:
        connection: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is None:
            kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
            port = self._url.port or 9200
            connection = self._own.connection = kind(self._url.hostname or "", port, timeout=REQUEST_TIMEOUT_S)
        connection.request(method, self._url.path.rstrip("/") + path, body, self._headers)
        answer = connection.getresponse()
        text = answer.read()
        found = json.loads(text) if text else {}
        return answer.status, found if isinstance(found, dict) else {"answer": found}


def _names(batch: Batch) -> list[str]:
    names = list(map(key_text, batch.keys))
    for name in names:
        if not 0 < len(name.encode()) <= KEY_BYTES_MAX:
            raise RecordRefused(f"OpenSearch keeps keys of 1 to {KEY_BYTES_MAX} bytes")
    return names


def _row(found: Mapping[str, Any]) -> Row:
    return {name: value for name, value in found["_source"].items() if name != _NAME}


def _reason(error: Any) -> str:
    if isinstance(error, Mapping):
        cause = error.get("caused_by") or {}
        return f"{error.get('reason')}" + (f" ({cause.get('reason')})" if cause else "")
    return str(error)
