"""What only some stores can do: full text, facets and highlights; history in a warehouse; tables to migrate."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.views.stores import ALL, Servers

from headwater.positions import Position
from headwater.views.bookmark import Bookmark
from headwater.views.errors import BadView, RecordRefused, StoreUnavailable
from headwater.views.life import add_version
from headwater.views.rows import Batch, Row
from headwater.views.stores import Store, open_store

FLATS = [
    {"id": 1, "title": "Bright flat by the running river", "city": "Basel", "rooms": 3, "rent": 1500.5},
    {"id": 2, "title": "Flat with a garden", "city": "Bern", "rooms": 4, "rent": 1900.0},
    {"id": 3, "title": "House by the river", "city": "Basel", "rooms": 5, "rent": 2500.0},
]


def fill(store: Store, rows: list[Row], *, offset: int = 0, deleted: tuple[Any, ...] = (), time_ms: int = 0) -> None:
    writer = store.writer(1)
    size = len(rows)
    end = offset + size + len(deleted)
    writer.begin()
    gone = list(range(offset + size, end))
    writer.delete(Batch(("id",), list(deleted), [], gone, None, [time_ms] * len(deleted)))
    keys = [row["id"] for row in rows]
    writer.upsert(Batch(("id",), keys, rows, list(range(offset, offset + size)), None, [time_ms] * size))
    writer.commit(Bookmark(Position({("t", 0): end}), key=("id",), applied=end))
    writer.close()


def opened(address: str, **options: Any) -> Store:
    store = open_store(address, "flats", options)
    store.change_catalog(lambda catalog: catalog if catalog.versions else add_version(catalog, "d", 0))
    return store


@pytest.fixture
def flats(tmp_path: Path) -> Any:
    fields = {"title": "text", "city": "keyword", "rooms": "int", "rent": "float"}
    store = opened(f"tantivy:{tmp_path}", fields=fields, language="english")
    fill(store, FLATS)
    with store.reader().snapshot() as found:
        yield found


def ids(result: Any) -> list[int]:
    return [hit.row["id"] for hit in result.hits]


def test_words_are_found_in_any_form_and_shown_where_they_stand(flats: Any) -> None:
    found = flats.search("rivers run")
    assert found.total == 2
    assert ids(found)[0] == 1
    assert found.hits[0].highlights["title"] == "Bright flat by the <b>running</b> <b>river</b>"


def test_queries_name_fields_ranges_and_phrases(flats: Any) -> None:
    assert ids(flats.search("city:Basel", order_by="rent")) == [3, 1]
    assert ids(flats.search("rooms:[4 TO 5]", order_by="rooms")) == [3, 2]
    assert ids(flats.search('"by the river"')) == [3]
    assert ids(flats.search("-city:Basel +flat")) == [2]
    assert flats.search("").total == 3


def test_facets_count_all_that_match(flats: Any) -> None:
    found = flats.search("river flat", limit=1, facets=["city"])
    assert (found.total, len(found.hits), found.facets) == (3, 1, {"city": {"Basel": 2, "Bern": 1}})


@pytest.mark.parametrize("ask", [{"text": "title:("}, {"text": "a", "facets": ["title"]}, {"text": "nofield:x"}])
def test_a_bad_search_is_explained(flats: Any, ask: dict[str, Any]) -> None:
    with pytest.raises(BadView, match="view flats"):
        flats.search(**ask)


def test_without_fields_all_texts_are_searched(tmp_path: Path) -> None:
    store = opened(f"tantivy:{tmp_path}")
    fill(store, [{"id": 1, "a": {"b": ["deep words"]}}, {"id": 2, "a": "other"}])
    with store.reader().snapshot() as found:
        assert [hit.row["id"] for hit in found.search("deep").hits] == [1]  # type: ignore[attr-defined]


def test_a_row_that_does_not_fit_its_field_is_refused(tmp_path: Path) -> None:
    store = opened(f"tantivy:{tmp_path}", fields={"rooms": "int"})
    with pytest.raises(RecordRefused, match="cannot be indexed"):
        fill(store, [{"id": 1, "rooms": "three"}])


def test_a_warehouse_keeps_every_row_with_the_time_it_was_in_force(tmp_path: Path) -> None:
    store = opened(f"delta:{tmp_path}", mode="history")
    fill(store, [{"id": 1, "rent": 10}], time_ms=1_000)
    fill(store, [{"id": 1, "rent": 12}], offset=1, time_ms=2_000)
    fill(store, [], offset=2, deleted=(1,), time_ms=3_000)
    with store.reader().snapshot() as found:
        history = [
            (r["_op"], r["rent"], r["_valid_from"].timestamp(), r["_valid_to"] and r["_valid_to"].timestamp())
            for r in found.history(1)  # type: ignore[attr-defined]
        ]
        assert history == [("u", 10, 1.0, 2.0), ("u", 12, 2.0, 3.0), ("d", None, 3.0, None)]
        assert found.count() == 0
        as_of = "SELECT rent FROM flats_history WHERE _valid_from <= make_timestamp(2500000) AND _op = 'u' " + (
            "AND (_valid_to IS NULL OR _valid_to > make_timestamp(2500000))"
        )
        assert found.query(as_of) == [{"rent": 12}]  # type: ignore[attr-defined]


def test_a_warehouse_is_queried_in_sql_and_reaches_nothing_else(tmp_path: Path) -> None:
    store = opened(f"delta:{tmp_path}")
    fill(store, list(FLATS))
    with store.reader().snapshot() as found:
        query: Any = found.query  # type: ignore[attr-defined]
        assert query("SELECT city, sum(rent) AS rent FROM flats GROUP BY city ORDER BY city") == [
            {"city": "Basel", "rent": 4000.5},
            {"city": "Bern", "rent": 1900.0},
        ]
        with pytest.raises(BadView):
            query("SELECT * FROM read_csv('/etc/passwd')")


def test_other_delta_readers_see_the_position_as_an_application_transaction(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    store = opened(f"delta:{tmp_path}")
    fill(store, list(FLATS))
    table = DeltaTable(tmp_path / "flats" / "v1")
    assert table.transaction_version("headwater") == 3
    assert table.to_pyarrow_table().num_rows == 3


def test_an_optimize_by_somebody_else_is_not_taken_for_a_newer_follower(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    store = opened(f"delta:{tmp_path}")
    writer = store.writer(1)
    for number in range(3):
        writer.begin()
        writer.upsert(Batch(("id",), [number], [{"id": number}], [number]))
        writer.commit(Bookmark(Position({("t", 0): number + 1}), key=("id",), applied=number + 1))
        DeltaTable(tmp_path / "flats" / "v1").optimize.compact()
    with store.reader().snapshot() as found:
        assert (found.count(), found.bookmark.applied) == (3, 3)


def test_any_sqlite_client_reads_the_view_by_its_name(tmp_path: Path) -> None:
    store = opened(f"sqlite:{tmp_path}/views.db")
    fill(store, list(FLATS))
    fill(store, [{"id": 4, "title": None, "city": "Chur", "balcony": True}], offset=3)
    with sqlite3.connect(tmp_path / "views.db") as db:
        assert db.execute("SELECT city, balcony FROM flats WHERE id = 4").fetchall() == [("Chur", 1)]
    with store.reader().snapshot() as found:
        query: Any = found.query  # type: ignore[attr-defined]
        assert query("SELECT count(*) AS n FROM flats WHERE rent > ?", [1600]) == [{"n": 2}]
        with pytest.raises(BadView, match="readonly"):
            query("DELETE FROM flats__v1")


def test_redis_that_lost_its_newest_writes_is_not_written_on_as_if_it_had_them(
    servers: Servers, tmp_path: Path, unique: str
) -> None:
    import redis

    (kind,) = (each for each in ALL if each.name == "redis")
    store = servers.store(kind, tmp_path, f"v{unique}")
    writer = store.writer(1)
    client = redis.Redis.from_url(servers.address("redis", tmp_path))
    names = [f"headwater:v{unique}:1:bookmark", f"v{unique}:1:1"]
    before: Any = client.mget(names)
    writer.begin()
    writer.upsert(Batch(("id",), [1], [{"id": 1}], []))
    writer.commit(Bookmark(Position({("t", 0): 1}), key=("id",), applied=1))
    for name, value in zip(names, before, strict=True):  # what a crash takes back
        client.delete(name) if value is None else client.set(name, value)
    with pytest.raises(StoreUnavailable, match="lost writes"):
        writer.begin()
    again = store.writer(1, writer.epoch)
    assert again.bookmark() == Bookmark()
    again.begin()
    again.abort()
