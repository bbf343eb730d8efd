"""One broker: its parts put together, started and stopped. This is what handlers see as `Services`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.broker.cluster import Cluster
from headwater.broker.configs import BrokerConfig, Parsed
from headwater.broker.configs.group import GROUP_KEYS
from headwater.broker.fetch_sessions import Sessions
from headwater.broker.internal import CONSUMER_OFFSETS, TRANSACTION_STATE, InternalTopics
from headwater.broker.listeners import Listener, parse_listeners
from headwater.broker.loop import Loop
from headwater.broker.maintenance import Maintenance
from headwater.broker.metrics import Metrics, TimedFilesystem
from headwater.broker.partitions import Partition, Partitions
from headwater.broker.quotas import Quotas
from headwater.broker.server import Server
from headwater.broker.topics import TopicChange
from headwater.clock import SystemClock
from headwater.log.compaction import CompactionSettings
from headwater.log.directory import LogDirectory
from headwater.log.groupcommit import GroupCommit

if TYPE_CHECKING:
    from headwater.broker.metrics_http import MetricsServer
    from headwater.broker.services import Groups, Transactions
    from headwater.filesystem import Filesystem

__all__ = ["Runtime"]

_log = logging.getLogger("headwater.broker")


class Runtime:
    """Built on any thread; from `run` on it belongs to the thread that runs it, until `run` returns."""

    def __init__(
        self,
        data: str,
        static: Mapping[str, str],
        *,
        metrics: str = "",
        filesystem: Filesystem | None = None,
        open_files_max: int | None = None,
    ) -> None:
        """Opens the data directory (recovering it if need be) and the sockets; `metrics` is HOST:PORT or empty."""
        self.loop = Loop()
        self.config = BrokerConfig({**static, "log.dirs": data})
        self.metrics = Metrics()
        self._groups: Groups | None = None
        self._transactions: Transactions | None = None
        filesystem = filesystem or TimedFilesystem(self.metrics.sync_times)
        clock = SystemClock()
        self.commits = GroupCommit(self.loop.call_soon_threadsafe, filesystem)
        self.directory = LogDirectory(
            data,
            filesystem=filesystem,
            clock=clock,
            cluster_id=_new_cluster_id(),
            node_id=self.config.number("node.id"),
            commits=self.commits,
            open_files_max=open_files_max,
            compaction=CompactionSettings(
                enable=self.config.flag("log.cleaner.enable"),
                backoff_ms=self.config.number("log.cleaner.backoff.ms"),
                dedupe_buffer_bytes=self.config.number("log.cleaner.dedupe.buffer.size"),
            ),
        )
        self.logs = Partitions(self.commits)
        self.cluster = Cluster(self.config, self.directory, self.logs, clock)
        self.internal = InternalTopics(self.cluster, self.logs)
        self.quotas = Quotas(self.cluster, self.config, self.loop)
        self.logs.on_marker(self._transaction_ended)
        self.cluster.watch(self._topic_changed)
        self.fetch_sessions = Sessions(self)
        self.server = Server(self)
        self._load_coordinators()
        self._maintenance = Maintenance(
            self.loop, self.directory, self.config.number("log.retention.check.interval.ms")
        )
        self._observer: MetricsServer | None = None
        self.listeners = self._listen()
        if metrics:
            self._observer = self._observe(metrics)

    # -- life

    def run(self) -> None:
        """Serve until `stop`; then leave the data directory clean."""
        self._maintenance.start()
        try:
            self.loop.run()
        finally:
            self._close()

    def stop(self) -> None:
        """From any thread."""
        self.loop.stop()

    def _close(self) -> None:
        for coordinator in (self._groups, self._transactions):
            if coordinator is not None:
                coordinator.close()
        self._maintenance.stop()
        self.server.close()
        if self._observer is not None:
            self._observer.close()
        self.commits.close()
        self.directory.close()
        self.loop.close()

    def _listen(self) -> tuple[Listener, ...]:
        wanted = parse_listeners("listeners", self.config.words("listeners"))
        told = parse_listeners("advertised.listeners", self.config.words("advertised.listeners"))
        advertised = {listener.security: (listener.host, listener.port) for listener in told}
        try:
            return tuple(self.server.listen(listener, advertised.get(listener.security)) for listener in wanted)
        except Exception:
            self._close()
            raise

    def _observe(self, address: str) -> MetricsServer:
        from headwater.broker.metrics_http import MetricsServer

        try:
            return MetricsServer(self, address)
        except Exception:
            self._close()
            raise

    @property
    def metrics_address(self) -> str:
        """HOST:PORT of the metrics, or empty."""
        return self._observer.address if self._observer is not None else ""

    # -- coordinators

    @property
    def groups(self) -> Groups:
        if self._groups is None:
            from headwater.broker.groups import driver

            self._groups = driver.start(self)
        return self._groups

    @property
    def transactions(self) -> Transactions:
        if self._transactions is None:
            from headwater.broker.transactions import driver

            self._transactions = driver.start(self)
        return self._transactions

    @property
    def groups_if_started(self) -> Groups | None:
        return self._groups

    def _load_coordinators(self) -> None:
        """Their state is rebuilt before the first client is served."""
        if self.internal.exists(TRANSACTION_STATE):
            _ = self.transactions
        if self.internal.exists(CONSUMER_OFFSETS):
            _ = self.groups

    def _topic_changed(self, change: TopicChange) -> None:
        if change.after is None and change.before is not None and self._groups is not None:
            self._groups.topics_deleted([change.before.name])

    def _transaction_ended(self, partition: Partition, producer_id: int, epoch: int, committed: bool) -> None:
        if partition.topic == CONSUMER_OFFSETS:
            self.groups.transaction_ended(partition.index, producer_id, epoch, committed=committed)

    # -- the rest of what handlers may ask

    def group_config(self, group: str, name: str) -> Parsed:
        effective = self.config.explain_group(self.cluster.group_configs(group), name)
        assert effective.text is not None
        return GROUP_KEYS[name].parse(effective.text)


def _new_cluster_id() -> str:
    """16 random bytes as Kafka writes them: base64 for URLs, 22 characters."""
    import base64
    import os

    return base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
