"""What the log looks like now and how it got there: topics, groups, parts, with rates and a short history.

One thread samples the log through a Kafka client, so the console works against our broker and any Kafka. What a sample
costs grows with the partitions; the pause between samples grows with what the last one cost, so that looking never
takes more than a small share of the broker. Pages read `snapshot()`; nothing a page does waits for the log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from headwater.client import REQUEST_TIMEOUT_S, Connection
from headwater.console.offsets import offsets
from headwater.console.sizes import Sizes
from headwater.deadletters import SUFFIX
from headwater.status import StatusBoard

__all__ = ["Cluster", "GroupState", "Snapshot", "TopicState"]

SAMPLE_INTERVAL_S = 1.0
PAUSE_FACTOR = 4  # the pause is at least so many times what the sample took: at most a fifth of the time is sampling
EARLIEST_EVERY = 10  # samples between two looks at the first offsets: only retention and deletion move them
HISTORY_POINTS = 600  # ten minutes at the usual interval
HISTORY_TOPICS_MAX = 500  # with a history; beyond, only the present is shown
GROUPS_MAX = 300  # groups whose offsets are looked up in one sample
STOP_TIMEOUT_S = 10.0

_log = logging.getLogger("headwater.console")

Point = tuple[float, float]  # time (seconds since 1970), value


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic at the last sample; offsets by partition."""

    name: str
    earliest: Mapping[int, int]
    latest: Mapping[int, int]
    rate: float  # records a second
    bytes: int | None  # on disk, where the broker's metrics say it

    @property
    def records(self) -> int:
        return sum(end - self.earliest.get(partition, 0) for partition, end in self.latest.items())

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "partitions": len(self.latest),
            "records": self.records,
            "rate": round(self.rate, 1),
            "bytes": self.bytes,
            "dead_letters": self.name.endswith(SUFFIX),
        }


@dataclass(frozen=True, slots=True)
class GroupState:
    """A consumer group at the last sample."""

    name: str
    state: str
    committed: Mapping[tuple[str, int], int]
    lag: Mapping[tuple[str, int], int]
    rate: float  # records a second by which its positions moved

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "state": self.state,
            "topics": sorted({topic for topic, _ in self.committed}),
            "lag": sum(self.lag.values()),
            "rate": round(self.rate, 1),
        }


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One sample, whole."""

    time_s: float = 0.0
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    parts: tuple[dict[str, Any], ...] = ()
    error: str | None = None

    @property
    def earliest(self) -> dict[tuple[str, int], int]:
        return {(name, p): offset for name, topic in self.topics.items() for p, offset in topic.earliest.items()}


class Cluster:
    """Samples until it is closed; use it as a context manager."""

    def __init__(self, connection: Connection, metrics_address: str = "") -> None:
        self.connection = connection
        self.admin: AdminClient = connection.admin()
        self._sizes = Sizes(metrics_address)
        self._snapshot = Snapshot()
        self._board: StatusBoard | None = None
        self._topic_history: dict[str, deque[Point]] = {}
        self._group_history: dict[str, deque[Point]] = {}
        self._history: deque[Point] = deque(maxlen=HISTORY_POINTS)
        self._samples = 0
        self._ended = threading.Event()
        self._fresh = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="console sampler", daemon=True)

    def __enter__(self) -> Cluster:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(STOP_TIMEOUT_S)
        if self._board is not None:
            self._board.close()

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def wait_for_next(self, than_s: float, timeout_s: float) -> Snapshot:
        """The first snapshot newer than `than_s`, or the present one after the timeout."""
        with self._fresh:
            self._fresh.wait_for(lambda: self._snapshot.time_s > than_s, timeout_s)
            return self._snapshot

    def history(self) -> list[Point]:
        """Records a second over all topics."""
        return list(self._history)

    def topic_history(self, name: str) -> list[Point]:
        return list(self._topic_history.get(name, ()))

    def group_history(self, name: str) -> list[Point]:
        return list(self._group_history.get(name, ()))

    def _run(self) -> None:
        while not self._ended.is_set():
            started = time.monotonic()
            self._publish(self._sample())
            took = time.monotonic() - started
            self._ended.wait(max(SAMPLE_INTERVAL_S - took, took * PAUSE_FACTOR))

    def _publish(self, snapshot: Snapshot) -> None:
        with self._fresh:
            self._snapshot = snapshot
            self._fresh.notify_all()

    def _sample(self) -> Snapshot:
        before, now = self._snapshot, time.time()
        try:
            topics = self._sample_topics(before, now)
            groups = self._sample_groups(before, topics, now)
            parts = [_with_lag(part, topics) for part in self._sample_parts(now)]
        except Exception as error:  # the log is away: pages say so and show what was last known
            _log.debug("no sample: %s", error)
            what = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            return Snapshot(now, before.topics, before.groups, before.parts, f"the log cannot be reached: {what}")
        self._samples += 1
        if before.topics:
            self._history.append((round(now, 2), round(sum(topic.rate for topic in topics.values()), 2)))
        self._remember(self._topic_history, {name: topic.rate for name, topic in topics.items()}, now)
        lags = {name: float(sum(group.lag.values())) for name, group in groups.items()}
        self._remember(self._group_history, lags, now)
        return Snapshot(now, topics, groups, tuple(parts))

    def _sample_topics(self, before: Snapshot, now: float) -> dict[str, TopicState]:
        found = self.admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        partitions = [(name, p) for name, topic in found.items() for p in topic.partitions]
        latest = offsets(self.admin, partitions, "latest")
        due = self._samples % EARLIEST_EVERY == 0
        known = before.earliest
        earliest = offsets(self.admin, [each for each in partitions if due or each not in known], "earliest")
        sizes, passed = self._sizes.by_topic(), max(now - before.time_s, 0.001)
        topics = {}
        for name in sorted(found):
            ends = {p: latest[name, p] for p in sorted(found[name].partitions) if (name, p) in latest}
            starts = {p: earliest.get((name, p), known.get((name, p), 0)) for p in ends}
            earlier = before.topics[name].latest if name in before.topics else ends
            moved = sum(end - earlier.get(p, end) for p, end in ends.items())
            topics[name] = TopicState(name, starts, ends, max(moved, 0) / passed, sizes.get(name))
        return topics

    def _sample_groups(self, before: Snapshot, topics: Mapping[str, TopicState], now: float) -> dict[str, GroupState]:
        listed = self.admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result(REQUEST_TIMEOUT_S).valid
        groups = {}
        for each in sorted(listed, key=lambda group: group.group_id)[:GROUPS_MAX]:
            committed = self._committed(each.group_id)
            groups[each.group_id] = _group(
                each.group_id, each.state.name.lower(), committed, topics=topics, before=before, now=now
            )
        return groups

    def _committed(self, group: str) -> dict[tuple[str, int], int]:
        asked = self.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_TIMEOUT_S
        )
        found = asked[group].result(REQUEST_TIMEOUT_S).topic_partitions
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def _sample_parts(self, now: float) -> list[dict[str, Any]]:
        if self._board is None:
            self._board = StatusBoard(self.connection)
        self._board.poll(0.05)
        return self._board.all(int(now * 1000))

    def _remember(self, histories: dict[str, deque[Point]], values: Mapping[str, float], now: float) -> None:
        for gone in histories.keys() - values.keys():
            del histories[gone]
        for name, value in values.items():
            if name not in histories and len(histories) >= HISTORY_TOPICS_MAX:
                continue
            histories.setdefault(name, deque(maxlen=HISTORY_POINTS)).append((round(now, 2), round(value, 2)))


def _group(
    name: str,
    state: str,
    committed: Mapping[tuple[str, int], int],
    *,
    topics: Mapping[str, TopicState],
    before: Snapshot,
    now: float,
) -> GroupState:
    lag = {}
    for (topic, partition), offset in committed.items():
        end = topics[topic].latest.get(partition) if topic in topics else None
        if end is not None:
            lag[topic, partition] = max(0, end - offset)
    known = before.groups.get(name)
    moved = 0 if known is None else sum(o - known.committed.get(where, o) for where, o in committed.items())
    return GroupState(name, state, committed, lag, max(moved, 0) / max(now - before.time_s, 0.001))


def _with_lag(part: dict[str, Any], topics: Mapping[str, TopicState]) -> dict[str, Any]:
    """A part that says its position is so many records behind the ends of its topics."""
    position = part["details"].get("position")
    if not isinstance(position, dict):
        return part
    behind = 0
    for topic, reached in position.items():
        ends = topics[topic].latest if topic in topics else {}
        behind += sum(max(0, end - int(reached.get(str(p), 0))) for p, end in ends.items())
    return {**part, "details": {**part["details"], "behind": behind}}
