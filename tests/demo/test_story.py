from __future__ import annotations

from headwater.demo.devices import WRONG_CLOCKS, Devices
from headwater.demo.people import People, opening
from headwater.demo.story import TOPICS, Event, Statement


def play(seed: int, ticks: int) -> list[Event | Statement]:
    people, devices = People(seed, 1_000), Devices(seed, 0)
    told: list[Event | Statement] = []
    for tick in range(ticks):
        now = 1_000_000 + tick * 250
        told += people.step(now, 4)
        told += devices.step(now, 4)
    return told


def test_the_same_seed_tells_the_same_story() -> None:
    assert play(7, 400) == play(7, 400)
    assert play(7, 400) != play(8, 400)


def test_every_situation_occurs_within_minutes() -> None:
    events = [told for told in play(1, 1_200) if isinstance(told, Event)]
    topics = {event.topic for event in events}
    assert topics == set(TOPICS)
    searched = {event.key for event in events if event.topic == "market.searches"}
    clicked = {event.key for event in events if event.topic == "market.clicks"}
    assert clicked < searched  # some searches are never clicked, no click is without its search
    assert any(event.value is None for event in events if event.topic == "market.posts")
    assert any(event.value is None for event in events if event.topic == "market.follows")


def test_an_offline_device_sends_its_backlog_with_the_times_at_which_it_happened() -> None:
    requests = [e.value for e in play(3, 2_000) if isinstance(e, Event) and e.topic == "market.requests" and e.value]
    late = [r for r in requests if int(str(r["sent"])) - int(str(r["occurred"])) >= 10_000]
    assert late


def test_a_device_with_a_wrong_clock_is_wrong_in_all_it_says() -> None:
    devices, now = Devices(3, 0), 10_000_000
    requests = [dict(event.value or {}) for _ in range(50) for event in devices.step(now, 4)]
    for request in requests:
        assert request["sent"] == now + WRONG_CLOCKS.get(int(str(request["device_id"])[1:]), 0)
    assert {r["device_id"] for r in requests} > {f"d{number}" for number in WRONG_CLOCKS}


def test_the_shop_opens_once() -> None:
    statements = list(opening())
    assert all("ON CONFLICT DO NOTHING" in s.sql for s in statements)
    assert statements == list(opening())
