"""Nexmark's events, seeded by event id: event n is the same whoever generates it, in whatever pieces.

Event n with r = n mod 50: r = 0 is a person, 1 to 3 an auction, the rest bids. Ids follow from n; everything else is
drawn from a hash of (n, what is drawn), so there is no generator state. Times are BASE + n / rate.

The rules are those of Nexmark's published generator: three quarters of the bidders and sellers are the hot person of
their hundred, half of the bids go to the hot auction of its hundred, prices are log-uniform over six decades, an
auction lasts up to two times the time that 1,666 events take. Ids start at 1000, for people and for auctions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["BASE_US", "KINDS", "events"]

BASE_US = 1_767_225_600_000_000  # 2026-01-01 00:00 UTC, microseconds
KINDS = ("person", "auction", "bid")
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PEOPLE, AUCTIONS_BEHIND, AHEAD = 1000, 100, 10
HOT_PEOPLE, HOT_AUCTIONS = 100, 100  # one of so many is hot at a time
EVENTS_PER_AUCTION_LIFE = 1666
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000

Numbers = npt.NDArray[np.int64]
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def chance(number: Numbers, what: int) -> npt.NDArray[np.float64]:
    """For each event a number in [0, 1) that only depends on the event and on what it is drawn for (splitmix64)."""
    with np.errstate(over="ignore"):
        bits = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(what * 0xD1342543DE82EF95 % 2**64)
        for mix, shift in zip(_MIX, (30, 27), strict=True):
            bits = (bits ^ (bits >> np.uint64(shift))) * mix
        bits ^= bits >> np.uint64(31)
    return (bits >> np.uint64(11)).astype(np.float64) / (1 << 53)


def below(number: Numbers, what: int, bound: Numbers | int) -> Numbers:
    """A whole number in [0, bound)."""
    return (chance(number, what) * bound).astype(np.int64)


def events(count: int, rate: int, piece: int = 100_000) -> Iterator[dict[str, pa.Table]]:
    """The first `count` events, `rate` a second of event time, in pieces: kind -> rows."""
    for start in range(0, count, piece):
        number = np.arange(start, min(start + piece, count))
        kind = np.where(number % 50 == 0, 0, np.where(number % 50 <= 3, 1, 2))
        yield {
            "person": people(number[kind == 0], rate),
            "auction": auctions(number[kind == 1], rate),
            "bid": bids(number[kind == 2], rate),
        }


def times(number: Numbers, rate: int) -> Numbers:
    return BASE_US + number * 1_000_000 // rate


def last_person(number: Numbers) -> Numbers:
    return number // 50


def last_auction(number: Numbers) -> Numbers:
    """The newest auction's number at an event, itself among them; -1 before the first."""
    rest = number % 50
    return number // 50 * 3 + np.where(rest == 0, -1, np.minimum(rest - 1, 2))


def people(number: Numbers, rate: int) -> pa.Table:
    named = [_pick(FIRST_NAMES, number, 1), _pick(LAST_NAMES, number, 2)]
    names = [f"{first} {last}" for first, last in zip(*named, strict=True)]
    return pa.table(
        {
            "id": FIRST_ID + last_person(number),
            "name": names,
            "email": [f"{name.lower().replace(' ', '.')}@example.org" for name in names],
            "card": [f"{one:016d}" for one in below(number, 3, 10**16).tolist()],
            "city": _pick(CITIES, number, 4),
            "state": _pick(STATES, number, 5),
            "date_time": _at(number, rate),
            "extra": _extra(number, 200 - 90),
        }
    )


def auctions(number: Numbers, rate: int) -> pa.Table:
    initial = price(number, 10)
    life = EVENTS_PER_AUCTION_LIFE * 1_000_000 // rate
    return pa.table(
        {
            "id": FIRST_ID + last_auction(number),
            "item": [f"item {one}" for one in below(number, 11, 10_000).tolist()],
            "description": [f"a fine thing of {one}" for one in below(number, 12, 300).tolist()],
            "initial": initial,
            "reserve": initial + price(number, 13),
            "date_time": _at(number, rate),
            "expires": pa.array(times(number, rate) + 1_000 + below(number, 14, 2 * life)).view(pa.timestamp("us")),
            "seller": FIRST_ID + _person(number, 15, hot=0),
            "category": FIRST_CATEGORY + below(number, 17, CATEGORIES),
            "extra": _extra(number, 500 - 130),
        }
    )


def bids(number: Numbers, rate: int) -> pa.Table:
    newest = last_auction(number)
    oldest = np.maximum(newest - AUCTIONS_BEHIND, 0)
    cold = oldest + below(number, 21, newest - oldest + 1 + AHEAD)
    hot = chance(number, 20) < 0.5
    channel, url = _channels(number)
    return pa.table(
        {
            "auction": FIRST_ID + np.where(hot, newest // HOT_AUCTIONS * HOT_AUCTIONS, cold),
            "bidder": FIRST_ID + _person(number, 22, hot=1),
            "price": price(number, 24),
            "channel": channel,
            "url": url,
            "date_time": _at(number, rate),
            "extra": _extra(number, 40),
        }
    )


def price(number: Numbers, what: int) -> Numbers:
    """Cents, log-uniform between 1 and a million units."""
    return np.round(10 ** (chance(number, what) * 6) * 100).astype(np.int64)


def _person(number: Numbers, what: int, *, hot: int) -> Numbers:
    """The hot person of the newest hundred (its number in it: `hot`), or one of the active people and some to come."""
    newest = last_person(number)
    active = np.minimum(newest + 1, ACTIVE_PEOPLE)
    cold = newest - active + 1 + below(number, what + 1, active + AHEAD)
    return np.where(chance(number, what) < 0.75, newest // HOT_PEOPLE * HOT_PEOPLE + hot, cold)


def _channels(number: Numbers) -> tuple[list[str], list[str]]:
    known, which, has_id = chance(number, 25) < 0.5, below(number, 26, len(HOT_CHANNELS)), chance(number, 28) < 0.9
    other, folder = below(number, 27, CHANNELS), below(number, 29, 1_000)
    channels, urls = [], []
    for hot, name, one, tagged, path in zip(*(c.tolist() for c in (known, which, other, has_id, folder)), strict=True):
        channel = HOT_CHANNELS[name] if hot else f"channel-{one}"
        tail = f"&channel_id={one}" if not hot and tagged else ""
        channels.append(channel)
        urls.append(f"https://www.nexmark.com/{path % 10}/{path // 10 % 10}/item.htm?query=1{tail}")
    return channels, urls


def _pick(words: tuple[str, ...], number: Numbers, what: int) -> list[str]:
    return [words[one] for one in below(number, what, len(words)).tolist()]


def _extra(number: Numbers, mean: int) -> list[str]:
    """Filler of the mean length, give or take a fifth."""
    lengths = mean * 4 // 5 + below(number, 30, max(mean * 2 // 5, 1))
    letters = below(number, 31, 26)
    return [chr(97 + letter) * length for length, letter in zip(lengths.tolist(), letters.tolist(), strict=True)]


def _at(number: Numbers, rate: int) -> pa.Array:
    return pa.array(times(number, rate)).view(pa.timestamp("us"))
