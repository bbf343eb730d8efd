"""The partitions this broker leads: a log each, who waits for its next records, and durability as promises.

Every append is followed by a request to the group commit, also one whose client does not wait: readers see a record
when it is durable, so it must become durable. When a high watermark moves, whoever watches the partition is told at
once; nothing polls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headwater.broker.promise import Promise
from headwater.errors import InvariantViolated
from headwater.log.results import Appended, AppendRefused, StorageFailed
from headwater.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headwater.filesystem import Buffer
    from headwater.log.groupcommit import GroupCommit
    from headwater.log.partition import PartitionLog
    from headwater.wire.batches import BatchHeader

__all__ = ["Partition", "Partitions"]

MarkerListener = Callable[["Partition", int, int, bool], object]


class Partition:
    """One log with those who wait for it. `leader_epoch` is constant while the broker runs."""

    __slots__ = (
        "_commits",
        "_markers",
        "gone",
        "index",
        "leader_epoch",
        "log",
        "topic",
        "watchers",
    )

    def __init__(
        self, log: PartitionLog, leader_epoch: int, commits: GroupCommit, markers: list[MarkerListener]
    ) -> None:
        self.log = log
        self.topic = log.topic
        self.index = log.partition
        self.leader_epoch = leader_epoch
        self.watchers: set[Callable[[Partition], object]] = set()  # told when more can be read, or it is gone
        self.gone = False  # its topic was deleted
        self._commits = commits
        self._markers = markers

    def append(self, batches: Buffer, *, client: bool = True) -> Appended:
        """Append; the caller then waits with `durable`, or `commit`s when nobody waits. AppendRefused: not appended."""
        return self.log.append(batches, leader_epoch=self.leader_epoch, client=client)

    def commit(self, last_offset: int) -> None:
        """Make it durable, with nobody waiting for it."""
        self._commits.request(self.log, last_offset + 1, _ignore)

    def when_durable(self, last_offset: int, callback: Callable[[StorageFailed | None], object]) -> None:
        """Call back once everything to `last_offset` is on disk (now, if it is), or with why it is not."""
        self._commits.request(self.log, last_offset + 1, callback)

    def append_durably(self, batches: Buffer, *, client: bool = False) -> Promise[Appended]:
        """Append the broker's own batches; kept when they are on disk, failed with AppendRefused when they are not."""
        promise: Promise[Appended] = Promise()
        try:
            appended = self.append(batches, client=client)
        except (AppendRefused, StorageFailed) as error:
            promise.fail(_refusal(error))
        else:
            self._resolve_when_durable(promise, appended)
        return promise

    def append_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int
    ) -> Promise[Appended]:
        """End a producer's transaction here; kept when the marker is on disk."""
        promise: Promise[Appended] = Promise()
        try:
            appended = self.log.append_marker(
                producer_id,
                producer_epoch,
                commit=commit,
                coordinator_epoch=coordinator_epoch,
                leader_epoch=self.leader_epoch,
            )
        except (AppendRefused, StorageFailed) as error:
            promise.fail(_refusal(error))
            return promise

        def tell(done: Promise[Appended]) -> None:
            done.result()
            for listener in self._markers:
                listener(self, producer_id, producer_epoch, commit)

        if self._markers:
            promise.then(tell)
        self._resolve_when_durable(promise, appended)
        return promise

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Everything kept, oldest first."""
        return self.log.batches()

    def advanced(self) -> None:
        """More can be read (or the partition is gone): tell who watches."""
        for watcher in tuple(self.watchers):
            watcher(self)

    def _resolve_when_durable(self, promise: Promise[Appended], appended: Appended) -> None:
        def durable(error: StorageFailed | None) -> None:
            if error is None:
                promise.resolve(appended)
            else:
                promise.fail(_refusal(error))

        self._commits.request(self.log, appended.last_offset + 1, durable)


class Partitions:
    """Every partition by topic and number."""

    def __init__(self, commits: GroupCommit) -> None:
        self._commits = commits
        self._by_topic: dict[str, list[Partition]] = {}
        self._markers: list[MarkerListener] = []
        commits.on_advance(self._advanced)

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self._by_topic.get(topic)
        return found[index] if found is not None and 0 <= index < len(found) else None

    def require(self, topic: str, index: int) -> Partition:
        """One that must exist, because the broker itself made it."""
        found = self.partition(topic, index)
        if found is None:
            raise InvariantViolated(f"partition {topic}-{index} is used but does not exist")
        return found

    def of_topic(self, topic: str) -> list[Partition]:
        return self._by_topic.get(topic, [])

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_topic.values():
            yield from partitions

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def add(self, log: PartitionLog, leader_epoch: int) -> Partition:
        """The next partition of its topic (partitions come in order, starting with 0)."""
        partitions = self._by_topic.setdefault(log.topic, [])
        if log.partition != len(partitions):
            raise InvariantViolated(f"{log.topic}-{log.partition} was added after {len(partitions)} partitions")
        partition = Partition(log, leader_epoch, self._commits, self._markers)
        partitions.append(partition)
        return partition

    def remove(self, topic: str) -> None:
        """The topic is deleted: nobody finds its partitions any more, and who waits for them is told."""
        for partition in self._by_topic.pop(topic, []):
            partition.gone = True
            partition.advanced()

    def on_marker(self, listener: MarkerListener) -> None:
        """`listener(partition, producer_id, producer_epoch, committed)` once a marker is durable, in any partition."""
        self._markers.append(listener)

    def _advanced(self, log: PartitionLog) -> None:
        partition = self.partition(log.topic, log.partition)
        if partition is not None and partition.watchers:
            partition.advanced()


def _ignore(_: StorageFailed | None) -> None:
    """Nobody waits: the next append to that log meets the error itself."""


def _refusal(error: AppendRefused | StorageFailed) -> AppendRefused:
    if isinstance(error, AppendRefused):
        return error
    return AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
