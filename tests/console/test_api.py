"""The console's JSON API over a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from headwater.client import Writer, ensure_topics
from headwater.console.actions import ACTIONS_TOPIC
from headwater.console.app import application
from headwater.console.cluster import Cluster
from headwater.deadletters import DeadLetter, dead_letter_topic
from headwater.errors import SettingError
from headwater.status import Reporter
from headwater.testing.waiting import eventually

from .conftest import Console


@pytest.fixture
def api(console: Console) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=console.address, timeout=20) as client:
        yield client


def fill(console: Console, topic: str, count: int) -> None:
    ensure_topics(console.connection, [topic], partitions=2)
    with Writer(console.connection) as writer:
        for number in range(count):
            writer.write(topic, json.dumps({"n": number}).encode(), key=str(number).encode())
        writer.flush()


def in_overview(api: httpx.Client, kind: str, name: str, **expected: Any) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = [one for one in api.get("/api/overview").json()[kind] if one["name"] == name]
        return found[0] if found and all(found[0][key] == value for key, value in expected.items()) else None

    return eventually(look, what=f"{name} in the overview as {expected}")  # type: ignore[return-value]


def test_the_overview_counts_topics_records_and_partitions(console: Console, api: httpx.Client, unique: str) -> None:
    fill(console, f"counted-{unique}", 30)
    topic = in_overview(api, "topics", f"counted-{unique}", records=30)
    assert topic["partitions"] == 2
    offsets = api.get(f"/api/topics/counted-{unique}").json()["offsets"]
    assert sum(end - start for _, start, end in offsets) == 30
    assert api.get("/api/topics/nowhere").status_code == 404


def test_a_groups_lag_is_what_it_has_not_committed(console: Console, api: httpx.Client, unique: str) -> None:
    fill(console, f"read-{unique}", 20)
    consumer = console.connection.consumer(f"reader-{unique}")
    consumer.subscribe([f"read-{unique}"])
    messages = consumer.consume(20, timeout=20)
    assert len(messages) == 20
    consumer.commit(asynchronous=False)
    consumer.close()
    fill(console, f"read-{unique}", 5)
    in_overview(api, "groups", f"reader-{unique}", lag=5)
    group = api.get(f"/api/groups/reader-{unique}").json()
    assert sum(lag for *_, lag in group["offsets"]) == 5


def test_records_are_found_from_the_end_an_offset_a_time_and_by_what_they_contain(
    console: Console, api: httpx.Client, unique: str
) -> None:
    topic = f"browsed-{unique}"
    fill(console, topic, 40)
    tail = api.get("/api/records", params={"topic": topic, "tail": 10, "limit": 10}).json()
    assert len(tail["records"]) == 10
    first = api.get("/api/records", params={"topic": topic, "partition": 0, "offset": 3, "limit": 2}).json()
    assert [record["offset"] for record in first["records"]] == [3, 4]
    assert first["next"] == {"0": 5}
    timed = api.get("/api/records", params={"topic": topic, "time": 0, "limit": 500}).json()
    assert len(timed["records"]) == 40
    assert timed["end"]
    found = api.get("/api/records", params={"topic": topic, "contains": '"n": 17'}).json()["records"]
    assert [record["value"] for record in found] == [{"form": "json", "data": {"n": 17}}]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({}, "say which topic"),
        ({"topic": "nowhere"}, "there is no topic 'nowhere'"),
        ({"topic": "t", "offset": "x"}, "offset is 'x'"),
        ({"topic": "t", "offset": "1"}, "say which"),
        ({"topic": "t", "color": "1"}, "there is no parameter 'color'"),
    ],
)
def test_a_wrong_query_is_refused_with_a_reason(api: httpx.Client, query: dict[str, str], says: str) -> None:
    answer = api.get("/api/records", params=query)
    assert answer.status_code == 400
    assert says in answer.json()["error"]


def test_a_part_that_reports_is_shown_and_one_that_ended_badly_is_an_alert(
    console: Console, api: httpx.Client, unique: str
) -> None:
    reporter = Reporter(console.connection, "view", lambda: {f"v-{unique}": {"rows": 7, "error": "disk"}})
    reporter.__enter__()
    assert in_overview(api, "parts", f"v-{unique}", state="running")["details"]["rows"] == 7
    reporter.__exit__(RuntimeError)
    in_overview(api, "parts", f"v-{unique}", state="failed")
    alerts = [alert["what"] for alert in api.get("/api/overview").json()["alerts"]]
    assert f"view v-{unique} failed: disk" in alerts


def test_a_group_is_reset_only_when_confirmed_and_it_is_recorded(
    console: Console, api: httpx.Client, unique: str
) -> None:
    topic, group = f"again-{unique}", f"g-{unique}"
    fill(console, topic, 12)
    in_overview(api, "topics", topic, records=12)
    arguments = {"group": group, "topic": topic, "to": "latest"}
    headers = {"X-Headwater": "1"}
    assert api.post("/api/actions/reset-group", json={**arguments, "confirm": True}).status_code == 403
    assert "confirm" in api.post("/api/actions/reset-group", json=arguments, headers=headers).json()["error"]
    done = api.post("/api/actions/reset-group", json={**arguments, "confirm": True}, headers=headers).json()["done"]
    assert sum(done["offsets"].values()) == 12
    records = api.get("/api/records", params={"topic": ACTIONS_TOPIC, "contains": group}).json()["records"]
    assert records[0]["value"]["data"]["arguments"] == arguments


def test_a_dead_letter_goes_back_to_where_it_came_from_as_it_was(
    console: Console, api: httpx.Client, unique: str
) -> None:
    origin = f"orders-{unique}"
    ensure_topics(console.connection, [origin, dead_letter_topic(origin)], partitions=1)
    letter = DeadLetter("view:orders", "not JSON", origin, 0, 4, 1_000, b"k", b"{", (("trace", b"t1"),))
    with Writer(console.connection) as writer:
        writer.write(dead_letter_topic(origin), letter.value, key=letter.key, headers=letter.record_headers())
        writer.flush()
    body = {"topic": dead_letter_topic(origin), "partition": 0, "offset": 0, "confirm": True}
    done = api.post("/api/actions/replay-dead-letter", json=body, headers={"X-Headwater": "1"}).json()
    assert done["done"]["topic"] == origin
    (record,) = api.get("/api/records", params={"topic": origin}).json()["records"]
    assert (record["key"]["data"], record["value"]["data"], record["headers"]) == ("k", "{", {"trace": "t1"})


def test_events_bring_a_new_overview_after_every_sample(console: Console, api: httpx.Client) -> None:
    times = []
    with api.stream("GET", "/api/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                times.append(json.loads(line.removeprefix("data: "))["time_ms"])
            if len(times) == 3:
                break
    assert times == sorted(set(times))


def test_a_host_that_others_reach_needs_a_token(console: Console) -> None:
    app = application(console.cluster, host="0.0.0.0")
    with pytest.raises(SettingError, match=r"console\.token"):
        TestClient(app).get("/api/overview")


def test_without_the_token_nobody_gets_in_and_with_it_a_cookie_is_enough(console: Console) -> None:
    app = application(Cluster(console.connection), host="0.0.0.0", token="s3cret")
    with TestClient(app) as client:
        assert client.get("/api/overview").status_code == 401
        assert client.get("/api/overview?token=wrong").status_code == 401
        assert client.get("/api/overview", headers={"Authorization": "Bearer s3cret"}).status_code == 200
        assert client.get("/?token=s3cret").status_code == 200
        assert client.get("/api/overview").status_code == 200


def test_a_foreign_name_for_this_machine_reaches_nothing(api: httpx.Client) -> None:
    assert api.get("/api/overview", headers={"Host": "evil.example"}).status_code == 403
