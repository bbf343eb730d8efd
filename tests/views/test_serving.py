"""Views over HTTP, and their changes as they come."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from bench.kafka_peer import free_port

from headwater.client import Connection, Writer, ensure_topics
from headwater.testing.waiting import eventually
from headwater.views import Definition, View, ViewsRunner, create
from headwater.views.serving import create_app


class Site:
    """Two views of one topic, followed and served."""

    def __init__(self, bootstrap: str, folder: Path, name: str, stack: ExitStack) -> None:
        self.log, self.topic = Connection(bootstrap), f"flats-{name}"
        ensure_topics(self.log, [self.topic], partitions=1)
        table = Definition.of("flats", topic=self.topic, store=f"sqlite:{folder}/views.db", key=["id"])
        fields = {"title": "text", "city": "keyword"}
        index = Definition.of(
            "search", topic=self.topic, store=f"tantivy:{folder}", options={"fields": fields}, commit_interval_ms=10
        )
        self.definitions = {"flats": table, "search": index}
        for definition in self.definitions.values():
            create(definition)
        stack.enter_context(ViewsRunner(self.definitions.values(), self.log))
        self.url = stack.enter_context(_served(self))
        self.client = stack.enter_context(httpx.Client(base_url=self.url, timeout=30))

    def put(self, *rows: dict[str, Any], gone: int | None = None) -> str:
        with Writer(self.log) as writer:
            for row in rows:
                writer.write(self.topic, json.dumps(row).encode(), key=b'{"id":%d}' % row["id"])
            if gone is not None:
                writer.write(self.topic, None, key=b'{"id":%d}' % gone)
            return writer.flush()

    def get(self, path: str, *, status: int = 200, **asked: Any) -> Any:
        found = self.client.get(path, params=asked)
        assert found.status_code == status, found.text
        return found.json()


class _served:
    def __init__(self, site: Site, token: str = "") -> None:
        self._port = free_port()
        app = create_app(site.definitions, site.log, token=token)
        self._server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=self._port, log_level="error"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        eventually(lambda: self._server.started)
        return f"http://127.0.0.1:{self._port}"

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)


@pytest.fixture
def site(bootstrap: str, unique: str, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(bootstrap, tmp_path, unique, stack)


def test_rows_queries_and_searches_say_which_position_they_are_of(site: Site) -> None:
    token = site.put({"id": 1, "title": "by the river", "city": "Basel"}, {"id": 2, "title": "garden", "city": "Bern"})
    row = site.get("/views/flats/rows/1", at_least=token, timeout=20)
    assert row == {
        "row": {"id": 1, "title": "by the river", "city": "Basel"},
        "position": token,
        "version": 1,
        "stale": False,
    }
    assert site.get("/views/flats/rows/9", status=404)["row"] is None
    assert len(site.get("/views/flats/rows", limit=1)["rows"]) == 1
    found = site.client.post(
        "/views/flats/query", json={"sql": "SELECT city FROM flats WHERE id = ?", "parameters": [2]}
    )
    assert found.json()["rows"] == [{"city": "Bern"}]
    found = site.get("/views/search/search", q="river", facets="city", at_least=token, timeout=20)
    assert (found["total"], found["facets"]) == (1, {"city": {"Basel": 1}})
    assert found["hits"][0]["highlights"] == {"title": "by the <b>river</b>"}
    assert {each["name"] for each in site.get("/views")["views"]} == {"flats", "search"}
    assert site.get("/views/flats")["versions"][0]["rows"] == 2


@pytest.mark.parametrize(
    ("path", "asked", "status", "complaint"),
    [
        ("/views/none/rows/1", {}, 404, "no view"),
        ("/views/flats/rows/1", {"at_least": "nonsense"}, 400, "token"),
        ("/views/flats/rows/1", {"timeout": "soon"}, 400, "seconds"),
        ("/views/flats/rows", {"limit": "-1"}, 400, "number"),
        ("/views/flats/search", {"q": "x"}, 400, "no search"),
        ("/views/search/search", {"q": "title:("}, 400, "not a query"),
    ],
)
def test_mistakes_are_answered_with_what_is_wrong(
    site: Site, path: str, asked: dict[str, str], status: int, complaint: str
) -> None:
    assert complaint in site.get(path, status=status, **asked)["error"]


def test_a_position_that_is_not_reached_in_time_is_a_504_or_stale(site: Site) -> None:
    from headwater.positions import Position

    ahead = Position({(site.topic, 0): 1_000}).token()
    assert "not reached" in site.get("/views/flats/rows/1", status=504, at_least=ahead, timeout=0.1)["error"]
    found = site.get("/views/flats/rows/1", status=404, at_least=ahead, timeout=0.1, otherwise="stale")
    assert found["stale"] is True


def test_a_query_cannot_write(site: Site) -> None:
    site.get("/views/flats/rows/1", status=404)
    found = site.client.post("/views/flats/query", json={"sql": "DELETE FROM headwater_views"})
    assert (found.status_code, "readonly" in found.json()["error"]) == (400, True)


def _events(lines: Iterator[str], count: int) -> list[dict[str, Any]]:
    found = []
    for line in lines:
        if line.startswith("data: "):
            found.append(json.loads(line.removeprefix("data: ")))
            if len(found) == count:
                return found
    raise AssertionError(f"the stream ended after {found}")


def test_subscribers_hear_of_changes_that_they_can_read(site: Site) -> None:
    with site.client.stream("GET", "/views/flats/changes") as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": subscribed"
        site.put({"id": 1, "title": "a", "city": "x"}, {"id": 2, "title": "b", "city": "y"}, gone=1)
        first, second, third = _events(lines, 3)
        assert [(e["key"], e["row"] and e["row"]["title"]) for e in (first, second, third)] == [
            (1, "a"),
            (2, "b"),
            (1, None),
        ]
        assert site.get("/views/flats/rows/2")["row"]["title"] == "b"
    with site.client.stream("GET", "/views/flats/changes", headers={"Last-Event-ID": first["position"]}) as stream:
        assert [e["key"] for e in _events(stream.iter_lines(), 2)] == [2, 1]
    with site.client.stream("GET", "/views/flats/changes", params={"from": first["position"], "key": "2"}) as stream:
        lines = stream.iter_lines()
        assert _events(lines, 1)[0]["row"]["title"] == "b"
        site.put({"id": 2, "title": "c", "city": "y"})
        assert _events(lines, 1)[0]["row"]["title"] == "c"


def test_changes_are_an_iterator_in_python_too(site: Site) -> None:
    with View(site.definitions["flats"], site.log) as view:
        feed = view.changes()
        site.put({"id": 5, "title": "five", "city": "z"})
        for change in feed:
            assert (change.key, change.row) == (5, {"id": 5, "title": "five", "city": "z"})
            assert view.get(5) == change.row
            break
        feed.close()


def test_whoever_is_not_this_machine_needs_the_token(site: Site) -> None:
    assert site.client.get("/views", headers={"Host": "evil.example"}).status_code == 401
    with _served(site, token="letmein") as url:
        assert httpx.get(f"{url}/views").status_code == 401
        assert httpx.get(f"{url}/views", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert httpx.get(f"{url}/views", headers={"Authorization": "Bearer letmein"}).status_code == 200
