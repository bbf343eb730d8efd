"""What handlers and coordinators may ask of the broker: its parts, as attributes of one object.

    loop           `loop.now_ms()`, `loop.monotonic_ms()`, `loop.call_later(ms, f, *args)` (a Timer with `cancel()`)
    config         effective settings: `config.number("group.max.size")`, `.text()`, `.flag()`, `.words()`
    group_config   `group_config(group, "consumer.session.timeout.ms")`: a GROUP setting's effective value
    cluster        `cluster.topic(name)`, `cluster.topic_by_id(uuid)`, `cluster.topics`, `cluster.watch(callback)`
    logs           partitions: `logs.partition(topic, index) -> Partition | None`
    internal       the coordinators' own topics: create on first use, append durably, replay at start
    groups         the group coordinator's driver, `headwater.broker.groups.driver.start(services)`
    transactions   the transaction coordinator's driver, `headwater.broker.transactions.driver.start(services)`
    quotas, metrics

The two coordinators are imported at first use: by the first request for one of their APIs, or while starting if their
internal topic has records (then `start` is called before the first connection is accepted, and must finish its replay
before it returns). Everything here is used on the loop's thread only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headwater.broker.cluster import Cluster
    from headwater.broker.configs import BrokerConfig, Parsed
    from headwater.broker.fetch_sessions import Sessions
    from headwater.broker.internal import InternalTopics
    from headwater.broker.loop import Loop
    from headwater.broker.metrics import Metrics
    from headwater.broker.partitions import Partitions
    from headwater.broker.quotas import Quotas
    from headwater.wire.errors import ErrorCode

__all__ = ["Groups", "Services", "Transactions"]


class Groups(Protocol):
    """What the core asks of the group coordinator (all of it; the rest is between it and its handlers)."""

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """Drop the committed offsets of topics that are gone (with tombstones)."""
        ...

    def transaction_ended(self, partition: int, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """A marker is durable in `__consumer_offsets-partition`: its pending offset commits count now, or never."""
        ...

    def committed_offsets(self) -> Iterator[tuple[str, str, int, int]]:
        """(group, topic, partition, offset) of every committed offset, for lag metrics and the like."""
        ...

    def close(self) -> None:
        """Settle every waiting promise (COORDINATOR_NOT_AVAILABLE) and cancel timers; nothing is appended any more."""
        ...


class Transactions(Protocol):
    """What the core asks of the transaction coordinator."""

    def admit_produce(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Mapping[str, Iterable[int]],
        *,
        adds_partitions: bool,
    ) -> ErrorCode | Awaitable[ErrorCode]:
        """May this transactional batch be appended? Called once a Produce request, before its appends, and only for
        partitions in which the producer has no open transaction yet.

        `adds_partitions` is true for Produce 12+ (TV2): the partitions join the transaction here and the answer waits
        until that is durable. Otherwise they must already be part of it (`AddPartitionsToTxn`).
        """
        ...

    def close(self) -> None: ...


class Services(Protocol):
    """The broker as its handlers see it."""

    @property
    def loop(self) -> Loop: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def cluster(self) -> Cluster: ...
    @property
    def logs(self) -> Partitions: ...
    @property
    def internal(self) -> InternalTopics: ...
    @property
    def groups(self) -> Groups: ...
    @property
    def transactions(self) -> Transactions: ...
    @property
    def fetch_sessions(self) -> Sessions: ...
    @property
    def quotas(self) -> Quotas: ...
    @property
    def metrics(self) -> Metrics: ...

    def group_config(self, group: str, name: str) -> Parsed:
        """The effective value of a GROUP setting (`consumer.session.timeout.ms`): the group's own or the default."""
        ...
