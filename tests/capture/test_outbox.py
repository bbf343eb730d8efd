"""Rows of an outbox table become events of the topic, key and headers that they name."""

from __future__ import annotations

import json

import pytest
from tests.capture.support import DEADLINE_S, Capturing, Database, events

from headwater.capture.outbox import outbox_record
from headwater.errors import BadInput
from headwater.testing import eventually


def test_our_layout_says_everything_literally() -> None:
    row = {"id": b"1", "topic": b"orders", "key": b"7", "value": b"{}", "headers": b'{"a": "b", "n": 1, "z": null}'}
    assert outbox_record("t", row) == ("orders", b"7", b"{}", [("a", b"b"), ("n", b"1"), ("z", None)])


def test_debeziums_layout_is_routed_by_the_aggregate() -> None:
    row = {"id": b"5", "aggregatetype": b"order", "aggregateid": b"7", "type": b"Paid", "payload": b"x"}
    assert outbox_record("t", row) == ("outbox.event.order", b"7", b"x", [("id", b"5"), ("eventType", b"Paid")])


def test_a_null_payload_is_a_tombstone() -> None:
    assert outbox_record("t", {"topic": b"a", "key": b"k", "value": None}) == ("a", b"k", None, None)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"x": b"1"}, "neither a column"),
        ({"topic": b"a b", "value": b""}, "cannot be a topic's name"),
        ({"topic": None, "value": b""}, "cannot be a topic's name"),
        ({"topic": b"a", "value": b"", "headers": b"[1]"}, "not a JSON object"),
    ],
)
def test_a_row_that_cannot_be_routed_says_why(row: dict[str, bytes | None], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        outbox_record("public.t", row)


def test_events_come_in_commit_order_although_their_rows_are_gone(
    database: Database, capturing: Capturing, bootstrap: str, unique: str
) -> None:
    database.run("CREATE TABLE outbox (id int PRIMARY KEY, topic text, key text, value jsonb, headers jsonb)")
    capturing.start(outbox_tables=["public.outbox"])
    for i in range(5):
        database.together(
            f"INSERT INTO outbox VALUES ({i}, 'orders-{unique}', 'k', '{{\"n\": {i}}}', '{{\"by\": \"test\"}}')",
            "DELETE FROM outbox",
        )
    topic = f"orders-{unique}"
    found = eventually(lambda: len(events(bootstrap, topic)) == 5 and events(bootstrap, topic), deadline_s=DEADLINE_S)
    assert sorted(e.value["n"] for e in found) == [0, 1, 2, 3, 4]
    assert [e.value["n"] for e in found] == [0, 1, 2, 3, 4]
    assert found[0].headers == {"by": b"test"}
    assert capturing.events("outbox") == []


def test_a_row_that_cannot_be_routed_stops_nothing(
    database: Database, capturing: Capturing, bootstrap: str, unique: str
) -> None:
    """It is kept in the dead letters, with the reason."""
    database.run("CREATE TABLE outbox (id int PRIMARY KEY, topic text, key text, value jsonb)")
    capturing.start(outbox_tables=["public.outbox"])
    database.run("INSERT INTO outbox VALUES (1, 'no such name!', '3', '{}')")
    database.run(f"INSERT INTO outbox VALUES (2, 'orders-{unique}', '4', '{{}}')")
    eventually(lambda: events(bootstrap, f"orders-{unique}"), deadline_s=DEADLINE_S)
    (dead,) = capturing.until("public.outbox.dead", 1)
    assert dead.value["key"] == "3"
    assert json.loads(dead.value["value"]) == {}
    assert b"cannot be a topic's name" in dead.headers["headwater.reason"]
    assert dead.headers["headwater.stage"] == f"capture:{capturing.name}".encode()
