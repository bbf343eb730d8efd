"""The marketplace's vocabulary: what its people and devices do, as events, and where each is written.

    topic               key            value (JSON)
    market.searches     search_id      {search_id, user_id, text, occurred}
    market.clicks       search_id      {click_id, search_id, user_id, item_id, occurred}
    market.requests     device_id      {device_id, sequence, path, occurred, sent}      device clocks: may be wrong
    market.taxes        region         {region, version, rate, valid_from}              versions of a tax rate
    market.posts        {post_id}      {post_id, sender_id, text, occurred}, null when deleted
    market.follows      {follower_id, followee_id}      the same and since, null when unfollowed

The shop's database leads for the rest; capture turns its tables into `shop.public.items`, `.profiles`, `.orders`.
All times are milliseconds since 1970.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["DATABASE_SCHEMA", "DATABASE_TABLES", "TOPICS", "Event", "Statement", "Written", "key_of"]

# topic -> its configuration; partitions are the broker's default
TOPICS: dict[str, dict[str, str]] = {
    "market.searches": {},
    "market.clicks": {},
    "market.requests": {},
    "market.taxes": {},  # every version is kept: sales are taxed as of their time
    "market.posts": {"cleanup.policy": "compact"},
    "market.follows": {"cleanup.policy": "compact"},
}

DATABASE_TABLES = ("public.items", "public.profiles", "public.orders")

DATABASE_SCHEMA = """
CREATE TABLE IF NOT EXISTS items (
    item_id bigint PRIMARY KEY, title text NOT NULL, description text NOT NULL, price_cents bigint NOT NULL);
CREATE TABLE IF NOT EXISTS profiles (
    user_id bigint PRIMARY KEY, name text NOT NULL, region text NOT NULL);
CREATE TABLE IF NOT EXISTS orders (
    order_id bigint PRIMARY KEY, user_id bigint NOT NULL, item_id bigint NOT NULL, region text NOT NULL,
    amount_cents bigint NOT NULL, sold_at bigint NOT NULL, status text NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Event:
    """A record for a topic; no value is a tombstone."""

    topic: str
    key: str  # text, or a JSON object whose names are sorted
    value: Mapping[str, object] | None

    def encoded(self) -> tuple[bytes, bytes | None]:
        body = None if self.value is None else json.dumps(self.value, separators=(",", ":")).encode()
        return self.key.encode(), body


@dataclass(frozen=True, slots=True)
class Statement:
    """A change of the shop's database."""

    sql: str
    parameters: tuple[object, ...]


Written = Event | Statement


def key_of(**columns: object) -> str:
    """A key of several columns, as the pipelines read it."""
    return json.dumps(columns, separators=(",", ":"), sort_keys=True)
