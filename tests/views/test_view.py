"""Reading a view: waiting for a position, through pipelines, or not."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from headwater.client import Connection, Writer, ensure_topics
from headwater.positions import COVERAGE_TOPIC, Coverage, Position
from headwater.testing.waiting import eventually
from headwater.views import (
    BadView,
    Definition,
    NotCovered,
    View,
    ViewsRunner,
    create,
    declare,
    drop,
    load_definitions,
    rebuild,
    status,
    swap,
)


@pytest.fixture
def log(bootstrap: str) -> Connection:
    return Connection(bootstrap)


@pytest.fixture
def users(log: Connection, unique: str, tmp_path: Path) -> Definition:
    topic = f"users-{unique}"
    ensure_topics(log, [topic], partitions=2)
    definition = Definition.of(f"users_{unique}", topic=topic, store=f"sqlite:{tmp_path}/views.db")
    create(definition)
    return definition


def put(log: Connection, topic: str, *rows: dict[str, object]) -> str:
    with Writer(log) as writer:
        for row in rows:
            writer.write(topic, json.dumps(row).encode(), key=json.dumps({"id": row["id"]}).encode())
        return writer.flush()


def test_a_reader_sees_its_own_write(log: Connection, users: Definition) -> None:
    with ViewsRunner([users], log), View(users, log) as view, Writer(log) as writer:
        for n in range(50):
            row = {"id": n % 3, "n": n}
            writer.write(users.topics[0], json.dumps(row).encode(), key=b'{"id":%d}' % row["id"])
            token = writer.flush()
            with view.read(at_least=token, timeout=10) as answer:
                assert answer.get(n % 3) == {"id": n % 3, "n": n}
                assert not answer.stale
                assert Position.from_token(answer.position).covers(Position.from_token(token))


def test_without_a_follower_the_read_fails_or_says_that_it_is_stale(log: Connection, users: Definition) -> None:
    token = put(log, users.topics[0], {"id": 1})
    with View(users, log) as view:
        started = time.monotonic()
        with pytest.raises(NotCovered, match="is its follower running"):
            view.get(1, at_least=token, timeout=0.2)
        assert 0.2 <= time.monotonic() - started < 2
        with view.read(at_least=token, timeout=0.1, otherwise="stale") as answer:
            assert (answer.stale, answer.get(1), Position.from_token(answer.position)) == (True, None, Position())
        assert view.get(1) is None


def test_the_wait_ends_with_the_position_not_with_the_timeout(log: Connection, users: Definition) -> None:
    token = put(log, users.topics[0], {"id": 1})
    with View(users, log) as view:
        found: list[float] = []
        waiter = threading.Thread(target=lambda: found.append(_timed(lambda: view.get(1, at_least=token, timeout=30))))
        waiter.start()
        with ViewsRunner([users], log):
            waiter.join(30)
    assert found
    assert found[0] < 10


def _timed(action: object) -> float:
    started = time.monotonic()
    assert callable(action)
    assert action() == {"id": 1}
    return time.monotonic() - started


def test_a_token_of_the_source_works_against_a_view_behind_a_pipeline(
    log: Connection, users: Definition, unique: str
) -> None:
    source, derived = f"source-{unique}", users.topics[0]
    ensure_topics(log, [source], partitions=1)
    ensure_topics(log, [COVERAGE_TOPIC], partitions=1)
    token = put(log, source, {"id": 1})
    with ViewsRunner([users], log), View(users, log) as view:
        with pytest.raises(NotCovered, match=source):
            view.get(1, at_least=token, timeout=0.3)
        output = Position.from_token(put(log, derived, {"id": 1, "derived": True}))
        covered = Coverage(f"q-{unique}", 0, 1, 0, Position.from_token(token), output)
        with Writer(log) as writer:
            writer.write(COVERAGE_TOPIC, covered.value(), key=covered.key(), partition=0)
            writer.flush()
        assert view.get(1, at_least=token, timeout=10) == {"id": 1, "derived": True}


def test_a_damaged_token_is_refused(log: Connection, users: Definition) -> None:
    from headwater.errors import BadInput

    with View(users, log) as view, pytest.raises(BadInput, match="token"):
        view.get(1, at_least="hw1.!!!")


def test_a_rebuild_swaps_when_it_has_caught_up_and_readers_see_one_or_the_other(
    log: Connection, users: Definition
) -> None:
    from dataclasses import replace

    from headwater.views.mapping import RowMapping

    topic = users.topics[0]
    token = put(log, topic, *({"id": i, "of": "old"} for i in range(200)))
    changed = replace(users, mapping=RowMapping(compute={"of": "'new'"}))
    with ViewsRunner([users], log) as runner, View(users, log) as view:
        view.wait_until(token, 20)
        mixtures, reading = [], threading.Event()

        def read() -> None:
            while not reading.is_set():
                with view.read() as answer:
                    mixtures.append((answer.version, frozenset(row["of"] for row in answer.scan()), answer.count()))

        reader = threading.Thread(target=read)
        reader.start()
        seen: list[float] = []
        catalog = rebuild(changed, log, progress=lambda at: seen.append(at.percent))
        eventually(lambda: mixtures[-1][0] == 2)
        reading.set()
        reader.join()
        assert set(mixtures) == {(1, frozenset({"old"}), 200), (2, frozenset({"new"}), 200)}
        assert (catalog.active, list(catalog.versions), seen[-1]) == (2, [2], 100.0)
        token = put(log, topic, {"id": 7, "of": "later"})
        assert view.get(7, at_least=token, timeout=20) == {"id": 7, "of": "new"}  # by the version's own definition
        assert [(each.version, each.state) for each in runner.running()] == [(2, "following")]


def test_two_versions_serve_at_once_until_the_old_one_is_dropped(log: Connection, users: Definition) -> None:
    from dataclasses import replace

    from headwater.views.mapping import RowMapping

    topic, changed = users.topics[0], replace(users, mapping=RowMapping(compute={"of": "'new'"}))
    with ViewsRunner([users], log), View(users, log) as view:
        view.wait_until(put(log, topic, {"id": 1, "of": "old"}), 20)
        rebuild(changed, log, swap_when_ready=False)
        token = put(log, topic, {"id": 2, "of": "old"})
        with View(users, log, version=2) as newer:
            assert newer.get(2, at_least=token, timeout=20) == {"id": 2, "of": "new"}
        assert view.get(2, at_least=token, timeout=20) == {"id": 2, "of": "old"}
        swap(users)
        assert view.get(2) == {"id": 2, "of": "new"}
        with pytest.raises(BadView, match="is the one that readers get"):
            drop(users, 2)
        drop(users, 1)
        assert [(each.version, each.active) for each in status(users, log)] == [(2, True)]


def test_status_says_where_every_version_is(log: Connection, users: Definition) -> None:
    topic = users.topics[0]
    with ViewsRunner([users], log), View(users, log) as view:
        view.wait_until(put(log, topic, {"id": 1}, {"id": 2}), 20)
    put(log, topic, {"id": 3})
    (found,) = status(users, log)
    assert (found.rows, found.applied, found.lag_records, found.active, found.outdated) == (2, 2, 1, True, False)
    assert found.lag_s is not None
    assert found.lag_s >= 0
    assert Position.from_token(found.token).as_topics() == found.position


def test_what_is_declared_is_what_was_defined(tmp_path: Path) -> None:
    file = tmp_path / "views.toml"
    first = Definition.of("a", topic="t", store="sqlite:a.db", key="id", compute={"x": "n + 1"}, filter='name != "ü"')
    second = Definition.of("b", topics=["t", "u"], store="lmdb:b", select="a", rename={"a b": "c"}, on_error="stop")
    declare(first, file)
    declare(second, file)
    assert load_definitions(file) == {"a": first, "b": second}
    assert load_definitions(file)["a"].digest() == first.digest()
    with pytest.raises(BadView, match="already"):
        declare(first, file)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[v]\nstore = "sqlite:x"', "follows no topic"),
        ('[v]\ntopic = "t"', "has no `store`"),
        ('[v]\ntopic = "t"\nstore = "sqlite:x"\nkeys = ["a"]', "there is no 'keys'"),
        ('[v]\ntopic = "t"\nstore = "sqlite:x"\nfilter = "a +"', "not an expression"),
        ('[v]\ntopic = "t"\nstore = "sqlite:x"\nformat = "xml"', "format is 'xml'"),
        ('[v]\ntopic = "t"\nstore = "sqlite:x"\nfunction = "no.such:thing"', "cannot load function"),
        ('["a b"]\ntopic = "t"\nstore = "sqlite:x"', "cannot be called"),
        ("v = 1", "is not a view"),
        ("[", "TOML"),
    ],
)
def test_a_bad_declaration_says_what_is_wrong(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "views.toml"
    file.write_text(text)
    with pytest.raises(BadView, match=complaint):
        load_definitions(file)
