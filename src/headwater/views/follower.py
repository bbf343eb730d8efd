"""The follower of one version of a view: from the log into the store until stopped, fenced or out of records.

It starts where the store's bookmark says. When the store or the log does not answer it starts over from there, with
the same epoch: a newer follower that has started meanwhile fences it all the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from confluent_kafka import KafkaException, Message

from headwater.client import Connection
from headwater.clock import Clock, SystemClock
from headwater.errors import HeadwaterError
from headwater.positions import Position
from headwater.views.applying import Refusal, apply, prepare
from headwater.views.bookmark import Bookmark
from headwater.views.collecting import collector_held_back
from headwater.views.decoding import Decoder
from headwater.views.definition import Definition
from headwater.views.errors import Fenced, RecordRefused, StoreUnavailable
from headwater.views.fetching import METADATA_INTERVAL_S, Fetcher
from headwater.views.keys import KeyRule
from headwater.views.letters import DeadLetters
from headwater.views.pace import Pace
from headwater.views.stores import Store, Writer

__all__ = ["Follower", "State"]

State = Literal["starting", "following", "retrying", "stopped", "fenced", "failed"]

STOP_TIMEOUT_S = 30.0  # for the batch in hand to be committed
FENCE_INTERVAL_MS = 500.0  # an idle follower looks this often whether a newer one has taken over
RATE_WINDOW_MS = 2_000.0  # over which the rate is measured

_log = logging.getLogger("headwater.views")


@dataclass(slots=True)
class _Held:
    """Records read and not yet applied, and the position after them."""

    messages: list[Message] = field(default_factory=list)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)


class Follower:
    """`run()` in this thread, or `start()` in one of its own."""

    def __init__(
        self,
        definition: Definition,
        connection: Connection,
        store: Store,
        version: int,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.definition, self.version = definition, version
        self.state: State = "starting"
        self.bookmark = Bookmark()
        self.error: Exception | None = None
        self._connection, self._store = connection, store
        self._clock = clock or SystemClock()
        self._letters = DeadLetters(connection, f"view:{definition.name}", self._clock)
        self._epoch: int | None = None
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._rate_from = (0.0, 0)

    def start(self) -> Follower:
        self._thread = threading.Thread(target=self._run_quietly, name=f"view-{self.definition.name}", daemon=True)
        self._thread.start()
        return self

    def request_stop(self) -> None:
        """Have it end, without waiting for it."""
        self._stopping.set()

    def stop(self) -> None:
        """Commit the batch in hand and end."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)

    def __enter__(self) -> Follower:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self) -> None:
        """Until stopped; raises what ends it for good: `Fenced`, `RecordsLost`, a definition that cannot work."""
        pace = Pace(self.definition.limits(self._store), self._clock.monotonic_ms())
        try:
            while not self._stopping.is_set():
                try:
                    self._follow(pace)
                except (StoreUnavailable, KafkaException, OSError) as error:
                    self._note("retrying", error)
                    _log.warning("view %s: %s; trying again", self.definition.name, error)
                    self._stopping.wait(pace.failed() / 1_000)
            self._note("stopped")
        except Exception as error:
            self._note("fenced" if isinstance(error, Fenced) else "failed", error)
            raise
        finally:
            self._letters.close()

    def wait_until(self, position: Position, timeout_s: float) -> bool:
        """Whether this follower has committed `position` within the time; False also when it ends before."""
        ended = ("stopped", "fenced", "failed")
        with self._changed:
            self._changed.wait_for(lambda: self.bookmark.position.covers(position) or self.state in ended, timeout_s)
            return self.bookmark.position.covers(position)

    def _run_quietly(self) -> None:
        try:
            self.run()
        except HeadwaterError as error:  # kept in `error`; whoever started the thread asks
            _log.warning("%s", error)

    def _follow(self, pace: Pace) -> None:
        writer = self._store.writer(self.version, self._epoch)
        try:
            self._epoch = writer.epoch
            self.bookmark = writer.bookmark()
            fetcher = Fetcher(
                self._connection,
                self.definition.topics,
                self.bookmark.position,
                f"headwater.view.{self.definition.name}",
            )
            try:
                self._note("following")
                self._loop(pace, writer, fetcher)
            finally:
                fetcher.close()
        finally:
            writer.close()

    def _loop(self, pace: Pace, writer: Writer, fetcher: Fetcher) -> None:
        definition, now = self.definition, self._clock.monotonic_ms()
        keys = KeyRule(definition.name, definition.key, definition.mapping.rename, self.bookmark.key)
        decoder = Decoder(definition.name, definition.format, definition.mapping, keys, texts=writer.wants.texts)
        held, looked_ms, checked_ms = _Held(), now, now
        self._rate_from = (now, self.bookmark.applied)
        while not self._stopping.is_set():
            records = fetcher.fetch(pace.wait_ms(now) / 1_000)
            held.messages += records.messages
            held.ends.update(records.ends)
            now = self._clock.monotonic_ms()
            pace.add(len(records.messages), records.size_bytes, now, at_end=records.at_end)
            if pace.due(now, waiting=records.waiting) or (not held.messages and self._moved(held)):
                with collector_held_back():
                    self._commit(writer, decoder, keys, held)
                held, now = _Held(), self._clock.monotonic_ms()
                pace.committed(now)
                checked_ms = now
            if now - checked_ms >= FENCE_INTERVAL_MS:
                writer.begin()  # is it still ours to write?
                writer.abort()
                checked_ms = now
            if now - looked_ms >= METADATA_INTERVAL_S * 1_000:
                fetcher.look_for_partitions()
                looked_ms = now
        if held.messages:
            self._commit(writer, decoder, keys, held)

    def _moved(self, held: _Held) -> bool:
        """Whether the end of a partition was reached over what holds no records: markers of transactions, gaps."""
        stored = self.bookmark.position.offsets
        return any(offset > stored.get(where, 0) for where, offset in held.ends.items())

    def _commit(self, writer: Writer, decoder: Decoder, keys: KeyRule, held: _Held) -> None:
        work = prepare(decoder, lambda: keys.columns, held.messages, writer.wants)
        refused = [Refusal(held.messages[i], reason) for i, reason in work.refused]
        self._set_aside(refused)

        def refuse(index: int, reason: str) -> None:
            refused.append(Refusal(held.messages[index], reason))
            self._set_aside(refused[-1:])

        def bookmark(_: int) -> Bookmark:
            return self._advanced(held, keys.columns, refused)

        apply(writer, work, bookmark, refuse)
        with self._changed:
            self.bookmark = self._advanced(held, keys.columns, refused)
            self.state = "following"
            self._changed.notify_all()

    def _set_aside(self, refused: Sequence[Refusal]) -> None:
        if not refused:
            return
        if self.definition.on_error == "stop":
            message, reason = refused[0].message, refused[0].reason
            raise RecordRefused(
                f"view {self.definition.name} stops at {message.topic()}-{message.partition()} offset "
                f"{message.offset()}: {reason}"
            )
        self._letters.write([(refusal.message, refusal.reason) for refusal in refused])

    def _advanced(self, held: _Held, key: tuple[str, ...], refused: Sequence[Refusal]) -> Bookmark:
        old, now = self.bookmark, self._clock.monotonic_ms()
        applied = old.applied + len(held.messages)
        since, before = self._rate_from
        rate = old.rate
        if now - since >= RATE_WINDOW_MS:
            rate = round((applied - before) * 1_000 / (now - since), 1)
            self._rate_from = (now, applied)
        newest = max((message.timestamp()[1] for message in held.messages[-1:]), default=0)
        return replace(
            old,
            position=old.position.merge(Position(held.ends)),
            key=key,
            applied=applied,
            refused=old.refused + len(refused),
            record_time_ms=max(old.record_time_ms, newest),
            commit_time_ms=self._clock.now_ms(),
            rate=rate,
            error=refused[-1].reason if refused else old.error,
        )

    def _note(self, state: State, error: Exception | None = None) -> None:
        with self._changed:
            self.state = state
            self.error = error if error is not None else (None if state == "following" else self.error)
            self._changed.notify_all()
