"""The changes of a view, as they come: the view's own topics through its own decoding and mapping.

A change is given out when the view has it, so whoever hears of a change can read it. Each carries the position after
it, from which a subscriber that was away goes on: nothing is missed, and after a crash of the subscriber itself only
what it had not noted comes again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headwater.client import Connection
from headwater.positions import Position
from headwater.views.applying import keys_of
from headwater.views.decoding import Decoder
from headwater.views.definition import Definition
from headwater.views.fetching import Fetcher, Records
from headwater.views.keys import KeyRule
from headwater.views.rows import Key, Row, key_text

__all__ = ["Change", "ChangeFeed"]

FETCH_WAIT_S = 0.2  # for records; stopping takes as long
COVER_PAUSE_S = 0.002  # between two looks whether the view has the changes at hand


@dataclass(frozen=True, slots=True)
class Change:
    """What a key's row is from now on (None: it is gone), and the position to go on from."""

    key: Key
    row: Row | None
    position: str
    time_ms: int


class ChangeFeed:
    """Changes after `start`, of all keys or of one; iterate until `close`, which another thread may call."""

    def __init__(
        self,
        definition: Definition,
        connection: Connection,
        start: Position,
        covered: Callable[[], Position],
        *,
        key: str | None = None,
        columns: tuple[str, ...] = (),
    ) -> None:
        self._covered, self._key, self._at = covered, key, start
        self._keys = KeyRule(definition.name, definition.key, definition.mapping.rename, columns)
        self._decoder = Decoder(definition.name, definition.format, definition.mapping, self._keys)
        self._fetcher = Fetcher(connection, definition.topics, start, f"headwater.view.{definition.name}.feed")
        self._closed = False

    def __iter__(self) -> Iterator[Change]:
        try:
            while not self._closed:
                yield from self.take()
        finally:
            self._fetcher.close()

    def take(self) -> list[Change]:
        """What has changed since; waits a little when nothing has."""
        records = self._fetcher.fetch(FETCH_WAIT_S)
        if not records.messages:
            self._at = self._at.merge(Position(records.ends))
            return []
        reached = self._at.merge(Position(records.ends))
        while not self._covered().covers(reached) and not self._closed:
            time.sleep(COVER_PAUSE_S)
        found = self._changes(records)
        self._at = reached
        return found

    def close(self) -> None:
        """End the iteration soon."""
        self._closed = True

    def _changes(self, records: Records) -> list[Change]:
        messages = records.messages
        decoded = self._decoder.decode(keys_of(messages), [m.value() for m in messages])
        offsets, done = dict(self._at.offsets), 0
        found = []
        for key, row, index in zip(decoded.keys, decoded.rows, decoded.index, strict=True):
            for message in messages[done : index + 1]:
                offsets[str(message.topic()), int(message.partition() or 0)] = int(message.offset() or 0) + 1
            done = max(done, index + 1)
            if self._key is None or key_text(key) == self._key:
                time_ms = messages[index].timestamp()[1]
                found.append(Change(key, row, Position(offsets).token(), time_ms))
        return found
