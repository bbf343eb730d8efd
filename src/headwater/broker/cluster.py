"""What the cluster consists of: this broker, its topics and the dynamic settings, kept in the metadata log.

Creating a topic is: append the fact, make the folders, be visible; the client is answered when the fact is on disk. A
crash in between leaves folders that the next start adopts as the topic they were to become. Deleting is: append
`deleted`, be invisible, remove the folders, forget; a crash in between is finished at the next start.

Leader epochs: as in a real cluster, each start of the broker is a new term, so a partition's leader epoch is the
number of starts since its topic was created. A client that read records which a power cut then took from a topic with
relaxed flushing notices it by that (OffsetForLeaderEpoch), instead of silently skipping what was written in their
place.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.broker.configs import BrokerConfig
from headwater.broker.internal import CONSUMER_OFFSETS, TRANSACTION_STATE
from headwater.broker.metadata_log import CLUSTER_METADATA, Key, MetadataLog
from headwater.broker.promise import Promise
from headwater.broker.topics import Topic, TopicChange, log_settings
from headwater.log.settings import LogSettings

if TYPE_CHECKING:
    from headwater.broker.partitions import Partitions
    from headwater.clock import Clock
    from headwater.log.directory import LogDirectory
    from headwater.log.results import Appended

__all__ = ["INTERNAL_TOPICS", "Cluster"]

INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, CLUSTER_METADATA})

_METADATA_SETTINGS = LogSettings(
    cleanup_compact=True, cleanup_delete=False, segment_bytes=1 << 20, min_cleanable_dirty_ratio=0.5
)
_log = logging.getLogger("headwater.broker")


class Cluster:
    """Topics by name and id. Everything here happens on the loop's thread."""

    def __init__(self, config: BrokerConfig, directory: LogDirectory, logs: Partitions, clock: Clock) -> None:
        self.cluster_id = directory.cluster_id
        self.node_id = config.number("node.id")
        self.topics: dict[str, Topic] = {}
        self._ids: dict[uuid.UUID, Topic] = {}
        self._config = config
        self._directory = directory
        self._logs = logs
        self._clock = clock
        self._watchers: list[Callable[[TopicChange], object]] = []
        self.facts = self._open_metadata()
        self.starts = self._count_start()
        self._open_topics()
        self._load_dynamic()
        config.watch(self._reconfigure)

    # -- reading

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._ids.get(topic_id)

    def leader_epoch(self, topic: Topic) -> int:
        return self.starts - topic.born

    def watch(self, callback: Callable[[TopicChange], object]) -> None:
        """Called after each change of a topic, once it is in effect."""
        self._watchers.append(callback)

    # -- topics

    def create(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> Promise[Appended]:
        """A topic whose name and settings have been checked; visible at once, kept when it is on disk."""
        topic = Topic(
            name=name,
            id=_random_topic_id(),
            partitions=partitions,
            born=self.starts,
            internal=name in INTERNAL_TOPICS,
            configs=dict(configs or {}),
        )
        saved = self._save(topic)
        self._make_partitions(topic, 0)
        self._set(topic)
        return saved

    def create_internal(self, name: str) -> Topic:
        """One of the coordinators' topics, with as many partitions as the settings say."""
        prefix = "offsets.topic" if name == CONSUMER_OFFSETS else "transaction.state.log"
        configs = {"cleanup.policy": "compact", "segment.bytes": self._config.text(f"{prefix}.segment.bytes")}
        self.create(name, self._config.number(f"{prefix}.num.partitions"), configs)
        return self.topics[name]

    def add_partitions(self, topic: Topic, count: int) -> Promise[Appended]:
        """Grow to `count` partitions."""
        grown = replace(topic, partitions=count)
        saved = self._save(grown)
        self._make_partitions(grown, topic.partitions)
        self._set(grown)
        return saved

    def configure(self, topic: Topic, configs: Mapping[str, str]) -> Promise[Appended]:
        """Replace the topic's own settings, which have been checked."""
        changed = replace(topic, configs=dict(configs))
        saved = self._save(changed)
        self._apply_settings(changed)
        self._set(changed)
        return saved

    def delete(self, topic: Topic) -> Promise[Appended]:
        """Gone at once; kept when it stays gone after a crash."""
        key = ("topic", topic.name)
        saved = self._put({key: {"deleted": str(topic.id)}})
        del self.topics[topic.name]
        del self._ids[topic.id]
        self._logs.remove(topic.name)
        self._tell(TopicChange(topic, None))

        def forget(_: Promise[Appended]) -> None:
            if topic.name in self.topics:  # created anew meanwhile, by its own fact
                return
            self._put({key: None})

        for index in range(topic.partitions):
            self._directory.delete(topic.name, index)
        saved.then(forget)
        return saved

    # -- settings and other facts

    def set_broker_configs(self, name: str, configs: Mapping[str, str]) -> Promise[Appended]:
        """Dynamic settings of every broker (name "") or of this one, already checked."""
        saved = self._put({("configs", "broker", name): dict(configs)})
        self._load_dynamic()
        return saved

    def set_group_configs(self, group: str, configs: Mapping[str, str]) -> Promise[Appended]:
        return self._put({("configs", "group", group): dict(configs) or None})

    def group_configs(self, group: str) -> Mapping[str, str]:
        return self.facts.get("configs", "group", group) or {}

    def reserve_producer_ids(self, count: int) -> Promise[range]:
        """Producer ids nobody has or will get; kept when that is on disk."""
        first = int((self.facts.get("producer-ids") or {"next": 0})["next"])
        reserved: Promise[range] = Promise()

        def on_disk(saved: Promise[Appended]) -> None:
            try:
                saved.result()
            except Exception as error:
                reserved.fail(error)
            else:
                reserved.resolve(range(first, first + count))

        self._put({("producer-ids",): {"next": first + count}}).then(on_disk)
        return reserved

    def put(self, facts: Mapping[Key, Mapping[str, Any] | None]) -> Promise[Appended]:
        """Facts of other parts (quotas, credentials)."""
        return self._put(facts)

    # -- inside

    def _open_metadata(self) -> MetadataLog:
        log = self._directory.get(CLUSTER_METADATA, 0)
        if log is None:
            log = self._directory.create(CLUSTER_METADATA, 0, _METADATA_SETTINGS, uuid.UUID(int=1))
        log.settings = _METADATA_SETTINGS
        return MetadataLog(self._logs.add(log, 0))

    def _count_start(self) -> int:
        starts = int((self.facts.get("cluster") or {"starts": 0})["starts"]) + 1
        self._put({("cluster",): {"starts": starts}})
        return starts

    def _open_topics(self) -> None:
        """Topics as the facts have them; folders without a fact are adopted, unfinished deletions finished."""
        deleted = set()
        for key, value in list(self.facts.of_kind("topic")):
            if "deleted" in value:
                deleted.add(value["deleted"])
                self._put({key: None})
                continue
            self._set(_topic(key[1], value))
        self._sort_strays(deleted)
        for topic in self.topics.values():
            self._make_partitions(topic, 0)

    def _sort_strays(self, deleted: set[str]) -> None:
        strays: dict[str, list[int]] = {}
        ids: dict[str, uuid.UUID] = {}
        for log in list(self._directory):
            known = self.topics.get(log.topic)
            if log.topic == CLUSTER_METADATA or (known is not None and log.partition < known.partitions):
                continue
            if str(log.topic_id) in deleted:
                self._directory.delete(log.topic, log.partition)
            elif known is None:
                strays.setdefault(log.topic, []).append(log.partition)
                ids[log.topic] = log.topic_id
        for name, indexes in strays.items():
            _log.warning("adopting topic %s: its folders are here but nothing was said about it", name)
            configs = {"cleanup.policy": "compact"} if name in INTERNAL_TOPICS else {}
            topic = Topic(name, ids[name], max(indexes) + 1, self.starts, name in INTERNAL_TOPICS, configs)
            self._save(topic)
            self._set(topic)

    def _make_partitions(self, topic: Topic, first: int) -> None:
        settings = log_settings(self._config, topic.configs)
        epoch = self.leader_epoch(topic)
        for index in range(first, topic.partitions):
            log = self._directory.create(topic.name, index, settings, topic.id)
            self._logs.add(log, max(epoch, log.leader_epoch))

    def _apply_settings(self, topic: Topic) -> None:
        settings = log_settings(self._config, topic.configs)
        for partition in self._logs.of_topic(topic.name):
            partition.log.settings = settings

    def _reconfigure(self) -> None:
        for topic in self.topics.values():
            self._apply_settings(topic)

    def _load_dynamic(self) -> None:
        cluster_wide = self.facts.get("configs", "broker", "") or {}
        this_broker = self.facts.get("configs", "broker", str(self.node_id)) or {}
        self._config.replace_dynamic(this_broker=this_broker, cluster_wide=cluster_wide)

    def _save(self, topic: Topic) -> Promise[Appended]:
        fact = {
            "id": str(topic.id),
            "partitions": topic.partitions,
            "born": topic.born,
            "internal": topic.internal,
            "configs": dict(topic.configs),
        }
        return self._put({("topic", topic.name): fact})

    def _put(self, facts: Mapping[Key, Mapping[str, Any] | None]) -> Promise[Appended]:
        return self.facts.put(facts, self._clock.now_ms())

    def _set(self, topic: Topic) -> None:
        before = self.topics.get(topic.name)
        self.topics[topic.name] = topic
        self._ids[topic.id] = topic
        self._tell(TopicChange(before, topic))

    def _tell(self, change: TopicChange) -> None:
        for watcher in self._watchers:
            watcher(change)


def _topic(name: str, fact: Mapping[str, Any]) -> Topic:
    return Topic(
        name, uuid.UUID(fact["id"]), fact["partitions"], fact["born"], bool(fact["internal"]), dict(fact["configs"])
    )


def _random_topic_id() -> uuid.UUID:
    """Random, and none of those that Kafka reserves (0 and 1)."""
    while True:
        chosen = uuid.uuid4()
        if chosen.int > 99:
            return chosen
