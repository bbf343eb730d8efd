"""Records that a view refused, written to their topics' dead letters, and brought back from there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from confluent_kafka import KafkaError, Message, Producer, TopicPartition

from headwater.client import REQUEST_TIMEOUT_S, Connection, ensure_topics, partitions_of
from headwater.clock import Clock
from headwater.deadletters import DeadLetter, dead_letter_topic
from headwater.positions import Position
from headwater.views.errors import StoreUnavailable
from headwater.views.tail import ends_of, read_topic

__all__ = ["DeadLetters", "read_dead_letters", "replay_dead_letters"]


class DeadLetters:
    """Acknowledged before the view's position passes them; after a crash in between they are written again."""

    def __init__(self, connection: Connection, stage: str, clock: Clock) -> None:
        self._connection, self._stage, self._clock = connection, stage, clock
        self._producer: Producer | None = None
        self._topics: set[str] = set()
        self._failed: list[KafkaError] = []

    def write(self, refused: Sequence[tuple[Message, str]]) -> None:
        producer = self._open()
        for message, reason in refused:
            letter = self._letter(message, reason)
            topic = dead_letter_topic(letter.topic)
            if topic not in self._topics:
                ensure_topics(self._connection, [topic])
                self._topics.add(topic)
            producer.produce(
                topic, letter.value, letter.key, headers=list(letter.record_headers()), on_delivery=self._delivered
            )
            producer.poll(0)
        left = producer.flush(REQUEST_TIMEOUT_S)
        if left or self._failed:
            why = str(self._failed[0]) if self._failed else f"{left} unacknowledged"
            self._failed.clear()
            raise StoreUnavailable(f"dead letters cannot be written: {why}")

    def close(self) -> None:
        if self._producer is not None:
            self._producer.flush(REQUEST_TIMEOUT_S)
            self._producer = None

    def _open(self) -> Producer:
        if self._producer is None:
            self._producer = self._connection.producer(linger_ms=0)
        return self._producer

    def _letter(self, message: Message, reason: str) -> DeadLetter:
        return DeadLetter(
            stage=self._stage,
            reason=reason,
            topic=str(message.topic()),
            partition=int(message.partition() or 0),
            offset=int(message.offset() or 0),
            time_ms=self._clock.now_ms(),
            key=message.key(),
            value=message.value(),
            headers=tuple(message.headers() or ()),  # type: ignore[arg-type]
        )

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)


def read_dead_letters(
    connection: Connection, view: str, topics: Sequence[str], start: Position | None = None
) -> Iterator[DeadLetter]:
    """The view's refused records up to now, from `start`; one that was refused twice comes once."""
    seen: set[tuple[str, int, int]] = set()
    stage = f"view:{view}"
    for topic in map(dead_letter_topic, topics):
        for message in read_topic(connection, topic, start or Position(), f"headwater.view.{view}"):
            letter = DeadLetter.from_record(message.key(), message.value(), message.headers() or ())  # type: ignore[arg-type]
            where = (letter.topic, letter.partition, letter.offset)
            if letter.stage == stage and where not in seen:
                seen.add(where)
                yield letter


def replay_dead_letters(connection: Connection, view: str, topics: Sequence[str]) -> int:
    """Produce the view's dead letters to their own topics again, each once over all replays; how many.

    They come after whatever has been written since: a row that has changed meanwhile goes back to what the dead letter
    says. Where that matters, correct the definition and rebuild the view instead, which reads everything in order.
    """
    group = f"headwater.view.{view}.replay"
    letters = [dead_letter_topic(topic) for topic in topics]
    start, ends = _replayed(connection, group, letters), ends_of(connection, letters)
    producer, count = connection.producer(), 0
    for letter in read_dead_letters(connection, view, topics, start):
        producer.produce(letter.topic, letter.value, letter.key, headers=list(letter.headers))
        producer.poll(0)
        count += 1
    if producer.flush(REQUEST_TIMEOUT_S):
        raise StoreUnavailable("the replayed records were not all acknowledged; replay again")
    consumer = connection.consumer(group)
    try:
        if ends.offsets:
            consumer.commit(offsets=[TopicPartition(t, p, o) for t, p, o in ends], asynchronous=False)
    finally:
        consumer.close()
    return count


def _replayed(connection: Connection, group: str, topics: Sequence[str]) -> Position:
    consumer = connection.consumer(group)
    try:
        where = [TopicPartition(t, p) for t in topics for p in partitions_of(connection, t)]
        found = consumer.committed(where, REQUEST_TIMEOUT_S) if where else []
        return Position({(place.topic, place.partition): place.offset for place in found if place.offset >= 0})
    finally:
        consumer.close()
