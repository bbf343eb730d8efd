"""Simulated people: they search, click (or not), buy, move, post, delete, follow and unfollow.

Pure and seeded: `step(now_ms)` says what happens in one tick; the same seed and ticks give the same story. Identifiers
start from `first_id`, so that a second start continues rather than repeats.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from headwater.demo.story import Event, Statement, Written, key_of

__all__ = ["REGIONS", "People", "opening"]

REGIONS = ("north", "south", "east", "west")
USERS = 60
ITEMS = 200
CLICK_DELAY_MS = (200, 20_000)  # from search to click
CLICK_SHARE = 0.45  # of searches: the others are "not clicked"
OPEN_CLICKS_MAX = 5_000  # clicks still to come: the story forgets the oldest beyond this
POSTS_KEPT_MAX = 400  # posts that may still be deleted

_ADJECTIVES = ("red", "quiet", "folding", "wooden", "tiny", "electric", "second-hand", "waterproof", "vintage", "spare")
_NOUNS = ("lamp", "bicycle", "kettle", "tent", "radio", "chair", "camera", "notebook", "guitar", "clock")
_REMARKS = ("just listed a", "looking for a", "sold my", "repaired a", "who has a")


def opening() -> Iterator[Statement]:
    """The catalogue and the profiles that the shop opens with; harmless when they are there already."""
    chance = random.Random("opening")
    for item in range(1, ITEMS + 1):
        title = f"{chance.choice(_ADJECTIVES)} {chance.choice(_NOUNS)}"
        text = f"A {title}, {chance.choice(_ADJECTIVES)} like a {chance.choice(_NOUNS)}, number {item}."
        sql = "INSERT INTO items VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
        yield Statement(sql, (item, title, text, chance.randrange(500, 50_000)))
    for user in range(1, USERS + 1):
        sql = "INSERT INTO profiles VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
        yield Statement(sql, (user, f"user {user}", chance.choice(REGIONS)))


class People:
    """Everybody on the marketplace."""

    def __init__(self, seed: int, first_id: int) -> None:
        self._chance = random.Random(seed)
        self._next_id = first_id
        self._clicks: list[tuple[int, Event]] = []  # due time, click
        self._posts: list[str] = []
        self._tax_version = first_id

    def step(self, now_ms: int, searches: int) -> Iterator[Written]:
        """What happens in this tick, with about `searches` searches in it."""
        yield from self._due_clicks(now_ms)
        for _ in range(searches):
            yield self._search(now_ms)
        if self._chance.random() < 0.6:
            yield from self._buy(now_ms)
        if self._chance.random() < 0.15:
            yield self._change_shop()
        if self._chance.random() < 0.5:
            yield from self._feed(now_ms)
        if self._chance.random() < 0.03:
            yield self._new_tax(now_ms)

    def first_taxes(self, now_ms: int) -> Iterator[Event]:
        for region in REGIONS:
            yield self._tax(region, now_ms)

    def _id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _user(self) -> int:
        return self._chance.randint(1, USERS)

    def _search(self, now_ms: int) -> Event:
        search = f"s{self._id()}"
        user = self._user()
        words = f"{self._chance.choice(_ADJECTIVES)} {self._chance.choice(_NOUNS)}"
        if self._chance.random() < CLICK_SHARE and len(self._clicks) < OPEN_CLICKS_MAX:
            due = now_ms + self._chance.randint(*CLICK_DELAY_MS)
            self._clicks.append((due, self._click(search, user, due)))
        value = {"search_id": search, "user_id": user, "text": words, "occurred": now_ms}
        return Event("market.searches", search, value)

    def _click(self, search: str, user: int, due: int) -> Event:
        item = self._chance.randint(1, ITEMS)
        value = {"click_id": f"c{self._id()}", "search_id": search, "user_id": user, "item_id": item, "occurred": due}
        return Event("market.clicks", search, value)

    def _due_clicks(self, now_ms: int) -> Iterator[Event]:
        yield from (click for due, click in self._clicks if due <= now_ms)
        self._clicks = [(due, click) for due, click in self._clicks if due > now_ms]

    def _buy(self, now_ms: int) -> Iterator[Statement]:
        order, user, item = self._id(), self._user(), self._chance.randint(1, ITEMS)
        sql = (
            "INSERT INTO orders SELECT %s, user_id, item_id, region, price_cents, %s, 'paid'"
            " FROM items, profiles WHERE item_id = %s AND user_id = %s"
        )
        yield Statement(sql, (order, now_ms, item, user))
        if self._chance.random() < 0.1:  # a correction is a new fact, not a rewritten one
            yield Statement("UPDATE orders SET status = 'cancelled' WHERE order_id = %s", (order,))

    def _change_shop(self) -> Statement:
        if self._chance.random() < 0.5:
            sql = "UPDATE items SET price_cents = %s WHERE item_id = %s"
            return Statement(sql, (self._chance.randrange(500, 50_000), self._chance.randint(1, ITEMS)))
        sql = "UPDATE profiles SET region = %s WHERE user_id = %s"
        return Statement(sql, (self._chance.choice(REGIONS), self._user()))

    def _feed(self, now_ms: int) -> Iterator[Event]:
        what = self._chance.random()
        if what < 0.6 or not self._posts:
            yield self._post(now_ms)
        elif what < 0.7:
            gone = self._posts.pop(self._chance.randrange(len(self._posts)))
            yield Event("market.posts", key_of(post_id=gone), None)
        else:
            follower, followee = self._user(), self._user()
            value = {"follower_id": follower, "followee_id": followee, "since": now_ms}
            pair = key_of(followee_id=followee, follower_id=follower)
            yield Event("market.follows", pair, None if what < 0.78 else value)

    def _post(self, now_ms: int) -> Event:
        post = f"p{self._id()}"
        self._posts = [*self._posts, post][-POSTS_KEPT_MAX:]
        text = f"{self._chance.choice(_REMARKS)} {self._chance.choice(_ADJECTIVES)} {self._chance.choice(_NOUNS)}"
        value = {"post_id": post, "sender_id": self._user(), "text": text, "occurred": now_ms}
        return Event("market.posts", key_of(post_id=post), value)

    def _new_tax(self, now_ms: int) -> Event:
        return self._tax(self._chance.choice(REGIONS), now_ms)

    def _tax(self, region: str, now_ms: int) -> Event:
        self._tax_version += 1
        rate = self._chance.choice((0.05, 0.07, 0.1, 0.19, 0.21))
        value = {"region": region, "version": self._tax_version, "rate": rate, "valid_from": now_ms}
        return Event("market.taxes", region, value)
