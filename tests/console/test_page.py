"""The page in a real headless Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from headwater.client import Writer, ensure_topics
from headwater.testing.waiting import eventually

from .conftest import Console

FIRST_PAINT_MS_MAX = 1_000
WAIT_MS = 15_000
PAGES = ["overview", "topics", "groups", "captures", "pipelines", "views", "windows", "dead", "settings"]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own; anything that the browser complains of fails the test."""
    made = browser.new_page(viewport={"width": 1200, "height": 900})
    complaints: list[str] = []
    made.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    made.on("pageerror", lambda error: complaints.append(str(error)))
    yield made
    made.close()
    assert not complaints


def sampled(console: Console, topic: str) -> None:
    """Until the console knows the topic: what it does not know is a 404, which the browser complains of."""
    eventually(lambda: topic in console.cluster.snapshot().topics, what=f"{topic} in a sample")


@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens_without_a_complaint_and_has_one_heading(console: Console, page: Page, name: str) -> None:
    page.goto(f"{console.address}/#/{name}")
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("nav a[aria-current=page]")).to_have_count(1)


def test_the_first_paint_takes_less_than_a_second(console: Console, page: Page) -> None:
    page.goto(f"{console.address}/#/overview")
    page.wait_for_selector("svg.path", timeout=WAIT_MS)
    paint = page.evaluate("performance.getEntriesByType('paint').map(entry => entry.startTime)")
    assert paint
    assert max(paint) < FIRST_PAINT_MS_MAX


def test_new_records_appear_while_the_topic_is_followed(console: Console, page: Page, unique: str) -> None:
    topic = f"followed-{unique}"
    ensure_topics(console.connection, [topic], partitions=1)
    sampled(console, topic)
    page.goto(f"{console.address}/#/topic/{topic}")
    page.get_by_role("button", name="Follow").click()
    with Writer(console.connection) as writer:
        # the browser's request is on its way: repeated until it is seen
        while not page.locator("td", has_text="hello").count():
            writer.write(topic, b'{"greeting": "hello"}', key=b"again")
            writer.flush()
            page.wait_for_timeout(100)
    page.locator("tr", has_text="hello").first.click()
    expect(page.locator("pre")).to_contain_text('"greeting": "hello"')


def test_a_correction_replaces_the_bar_and_says_so(console: Console, page: Page, unique: str) -> None:
    topic = f"per_minute_{unique}"
    ensure_topics(console.connection, [topic], partitions=1)
    with Writer(console.connection) as writer:
        for start, count in ((0, 10), (60_000, 20), (0, 12)):
            row = json.dumps({"window_start": start, "requests": count}).encode()
            writer.write(topic, row, key=str(start).encode())
        writer.flush()
    page.goto(f"{console.address}/#/windows/{topic}")
    expect(page.locator("g.bar.corrected")).to_have_count(1, timeout=WAIT_MS)
    expect(page.locator("ol")).to_contain_text("10 → 12")


def test_a_view_is_looked_into_and_asked(console: Console, page: Page) -> None:
    ensure_topics(console.connection, ["people"], partitions=1)
    with Writer(console.connection) as writer:
        for number, name in ((1, "ada"), (2, "bob")):
            writer.write("people", json.dumps({"id": number, "name": name}).encode(), key=str(number).encode())
        token = writer.flush()
    with httpx.Client(base_url=console.address) as client:  # until the view has it
        assert client.get("/api/stores/views/people/rows", params={"at_least": token, "timeout": 30}, timeout=60)
    page.goto(f"{console.address}/#/view/people")
    expect(page.locator("tbody")).to_contain_text("ada")
    page.get_by_label("Query").fill("SELECT name FROM people WHERE id = 2")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("tbody")).not_to_contain_text("ada")
    expect(page.locator("tbody")).to_contain_text("bob")


def test_ten_thousand_partitions_do_not_freeze_the_page(console: Console, page: Page, unique: str) -> None:
    rows = [[number, 0, number] for number in range(10_000)]
    body = {
        "name": "wide",
        "partitions": 10_000,
        "records": 1,
        "rate": 0,
        "bytes": None,
        "offsets": rows,
        "history": [],
    }
    page.route("**/api/topics/wide", lambda route: route.fulfill(json=body))
    ensure_topics(console.connection, ["wide"], partitions=1)
    sampled(console, "wide")
    page.goto(f"{console.address}/#/topic/wide")
    partitions = page.get_by_role("region", name="Partitions")
    expect(partitions.locator("tbody tr").nth(5)).to_be_attached(timeout=WAIT_MS)
    assert partitions.locator("tbody tr").count() < 200
    partitions.evaluate("place => place.scrollTop = place.scrollHeight")
    expect(partitions).to_contain_text("9,999")


def test_the_log_being_away_is_said_and_the_page_recovers(console: Console, page: Page) -> None:
    page.goto(f"{console.address}/#/overview")
    page.wait_for_selector("#link.live", timeout=WAIT_MS)
    page.route("**/api/events", lambda route: route.abort())
    page.evaluate(
        "import('./js/api.js').then(({ live }) => live.take({...live.overview, error: 'the log cannot be reached'}))"
    )
    expect(page.locator("#notice")).to_be_visible()
    expect(page.locator("#notice")).to_be_hidden(timeout=WAIT_MS)


def test_the_theme_is_switched_and_remembered(console: Console, page: Page) -> None:
    page.goto(f"{console.address}/#/overview")
    before = page.evaluate("document.documentElement.dataset.theme")
    page.get_by_role("button", name="Switch between light and dark").click()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") != before


def test_the_keyboard_reaches_the_pages(console: Console, page: Page) -> None:
    page.goto(f"{console.address}/#/overview")
    page.wait_for_selector("nav a")
    reached = []
    for _ in range(6):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent"))
    assert "Skip to the page" in reached[0]
    assert "Topics" in reached
