"""The coordinator with a log and a disk that a test holds in its hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.broker.internal import TRANSACTION_STATE
from headwater.broker.promise import Promise
from headwater.broker.transactions.driver import RETRY_INTERVAL_MS, TransactionCoordinator, start
from headwater.broker.transactions.events import Outcome
from headwater.broker.transactions.metadata import Metadata, State
from headwater.log.results import Appended, AppendRefused
from headwater.wire.batches import BatchHeader, parse_header
from headwater.wire.errors import ErrorCode

SETTINGS = {
    "transaction.max.timeout.ms": 900_000,
    "transactional.id.expiration.ms": 1_000_000_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 3_600_000,
}


class Time:
    """The loop's clock and timers, moved by hand."""

    def __init__(self) -> None:
        self._now_ms = 0
        self._timers: list[tuple[float, Callable[[], object]]] = []  # when, what

    def now_ms(self) -> int:
        return self._now_ms

    def call_later(self, delay_ms: float, callback: Callable[..., object], *arguments: Any) -> Any:
        timer = (self._now_ms + delay_ms, lambda: callback(*arguments))
        self._timers.append(timer)
        return SimpleNamespace(cancel=lambda: self._timers.remove(timer) if timer in self._timers else None)

    def advance(self, milliseconds: int) -> None:
        end = self._now_ms + milliseconds
        while due := [timer for timer in self._timers if timer[0] <= end]:
            timer = min(due, key=lambda each: each[0])
            self._timers.remove(timer)
            self._now_ms = max(self._now_ms, int(timer[0]))
            timer[1]()
        self._now_ms = end


@dataclass
class Disk:
    """Appends wait for `flush` when `slow`, and fail when `refuses`."""

    slow: bool = False
    refuses: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def append(self, store: Callable[[], None]) -> Promise[Appended]:
        promise: Promise[Appended] = Promise()
        if self.refuses:
            promise.fail(AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, "disk full"))
            return promise
        store()

        def flush() -> None:
            promise.resolve(Appended(0, 0, -1, 0))

        self.waiting.append(flush)
        if not self.slow:
            self.flush()
        return promise

    def flush(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


@dataclass
class FakePartition:
    disk: Disk
    leader_epoch: int = 4
    markers: list[tuple[int, int, bool]] = field(default_factory=list)
    refusal: ErrorCode | None = None

    def append_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int
    ) -> Promise[Appended]:
        assert coordinator_epoch == self.leader_epoch
        if self.refusal is not None:
            refused: Promise[Appended] = Promise()
            refused.fail(AppendRefused(self.refusal, "fenced"))
            return refused
        return self.disk.append(lambda: self.markers.append((producer_id, producer_epoch, commit)))


class World:
    """The services that the coordinator uses; `restart` is a crash with everything appended so far kept."""

    def __init__(self) -> None:
        self.loop = Time()
        self.disk = Disk()
        self.records: list[bytes] = []
        self.partitions: dict[tuple[str, int], FakePartition] = {
            ("orders", 0): FakePartition(self.disk),
            ("stock", 0): FakePartition(Disk()),
            (TRANSACTION_STATE, 0): FakePartition(Disk()),
            ("__consumer_offsets", 0): FakePartition(self.disk),
        }
        self.next_id = 0
        self.config = SimpleNamespace(number=SETTINGS.__getitem__, flag=lambda name: True)
        self.cluster = SimpleNamespace(reserve_producer_ids=self._reserve)
        self.logs = SimpleNamespace(
            partition=lambda topic, index: self.partitions.get((topic, index)),
            require=lambda topic, index: self.partitions[topic, index],
        )
        self.internal = SimpleNamespace(append=self._append, replay=self._replay, partition_of=lambda topic, key: 0)
        self.coordinator = self.restart()

    def restart(self) -> TransactionCoordinator:
        self.loop._timers.clear()
        self.coordinator = start(self)  # type: ignore[arg-type]
        return self.coordinator

    def _reserve(self, count: int) -> Promise[range]:
        promise: Promise[range] = Promise()
        self.next_id += count
        promise.resolve(range(self.next_id - count, self.next_id))
        return promise

    def _append(self, topic: str, partition: int, batch: bytes) -> Promise[Appended]:
        assert (topic, partition) == (TRANSACTION_STATE, 0)
        return self.disk.append(lambda: self.records.append(batch))

    def _replay(self, topic: str) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        for batch in self.records:
            yield 0, parse_header(batch), memoryview(batch)

    # -- shorthand

    def init(self, name: str = "t", timeout_ms: int = 60_000) -> Outcome:
        return self.coordinator.init_producer(name, timeout_ms, -1, -1).result()

    def add(self, *topics: str, epoch: int = 0) -> ErrorCode:
        wanted = frozenset((topic, 0) for topic in topics)
        return self.coordinator.add_partitions("t", 0, epoch, wanted, 0).result().error

    def end(self, *, commit: bool = True, epoch: int = 0) -> Promise[Outcome]:
        return self.coordinator.end("t", 0, epoch, commit=commit, version=0)

    def state(self, name: str = "t") -> State:
        metadata = self.coordinator.metadata(name)
        assert isinstance(metadata, Metadata)
        return metadata.state


@pytest.fixture
def world() -> World:
    return World()


def test_a_commit_reaches_every_partition_and_is_answered_when_it_has(world: World) -> None:
    assert world.init() == Outcome(ErrorCode.NONE, 0, 0)
    assert world.add("orders", "stock", "__consumer_offsets") is ErrorCode.NONE
    assert world.end().result().error is ErrorCode.NONE
    for topic in ("orders", "stock", "__consumer_offsets"):
        assert world.partitions[topic, 0].markers == [(0, 0, True)]
    assert world.state() is State.COMPLETE_COMMIT


def test_nothing_is_answered_before_it_is_on_disk(world: World) -> None:
    world.init()
    world.disk.slow = True
    added = world.coordinator.add_partitions("t", 0, 0, frozenset([("orders", 0)]), 0)
    assert not added.done
    world.disk.flush()
    assert added.result().error is ErrorCode.NONE


def test_a_restart_completes_what_was_decided(world: World) -> None:
    world.init()
    world.add("orders", "stock")
    world.disk.slow = True
    world.end()
    world.disk.waiting.clear()  # the machine dies here: the decision is on disk, no marker is
    world.disk.slow = False
    world.restart()
    assert world.state() is State.COMPLETE_COMMIT
    assert world.partitions["orders", 0].markers == world.partitions["stock", 0].markers == [(0, 0, True)]


def test_a_restart_keeps_open_transactions_until_they_time_out(world: World) -> None:
    world.init(timeout_ms=5_000)
    world.add("orders")
    world.restart()
    assert world.state() is State.ONGOING
    world.loop.advance(4_000)
    assert world.state() is State.ONGOING
    world.loop.advance(3_000)
    assert world.state() is State.COMPLETE_ABORT
    assert world.partitions["orders", 0].markers == [(0, 1, False)]
    assert world.end().result().error is ErrorCode.PRODUCER_FENCED


def test_only_missing_markers_are_repeated_when_a_partition_refuses(world: World) -> None:
    world.init()
    world.add("orders", "stock")
    orders = world.partitions["orders", 0]
    orders.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    assert world.end().result().error is ErrorCode.NONE, "it is decided, though not complete"
    world.loop.advance(20 * RETRY_INTERVAL_MS)
    assert world.state() is State.PREPARE_COMMIT
    assert world.add("orders") is ErrorCode.CONCURRENT_TRANSACTIONS
    orders.refusal = None
    world.loop.advance(2 * RETRY_INTERVAL_MS)
    assert world.state() is State.COMPLETE_COMMIT
    assert world.partitions["stock", 0].markers == orders.markers == [(0, 0, True)]


def test_a_partition_that_is_gone_or_was_ended_by_hand_does_not_hold_up_the_rest(world: World) -> None:
    world.init()
    world.add("orders", "stock")
    del world.partitions["orders", 0]
    world.partitions["stock", 0].refusal = ErrorCode.INVALID_PRODUCER_EPOCH
    world.end()
    assert world.state() is State.COMPLETE_COMMIT


def test_a_full_disk_refuses_and_nothing_is_lost_when_it_has_room_again(world: World) -> None:
    world.init()
    world.disk.refuses = True
    assert world.add("orders") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.init("other").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.coordinator.metadata("other") is None
    world.disk.refuses = False
    assert world.add("orders") is ErrorCode.NONE
    assert world.init("other").error is ErrorCode.NONE


def test_the_longest_time_out_is_bounded(world: World) -> None:
    for timeout_ms in (0, -1, 900_001):
        assert world.init(timeout_ms=timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert world.init(timeout_ms=900_000).error is ErrorCode.NONE


def test_unknown_ids_have_no_producer(world: World) -> None:
    unknown = Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert world.coordinator.end("x", 0, 0, commit=True, version=0).result() == unknown
    assert world.coordinator.add_partitions("x", 0, 0, frozenset(), 0).result() == unknown
    assert _admit(world, "x", adds=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def _admit(world: World, name: str = "t", *, adds: bool, epoch: int = 0) -> ErrorCode:
    answer = world.coordinator.admit_produce(name, 0, epoch, {"orders": [0]}, adds_partitions=adds)
    return answer.result() if isinstance(answer, Promise) else answer


def test_old_clients_must_have_added_a_partition_before_they_write_to_it(world: World) -> None:
    world.init()
    assert _admit(world, adds=False) is ErrorCode.INVALID_TXN_STATE
    world.add("orders")
    assert _admit(world, adds=False) is ErrorCode.NONE
    world.end()
    assert _admit(world, adds=False) is ErrorCode.INVALID_TXN_STATE, "a delayed write after the end"


def test_new_clients_add_a_partition_by_writing_to_it(world: World) -> None:
    world.init()
    assert _admit(world, adds=True) is ErrorCode.NONE
    assert world.state() is State.ONGOING
    assert _admit(world, adds=True) is ErrorCode.NONE


def test_a_zombies_batch_is_refused(world: World) -> None:
    world.init()
    world.init()
    assert _admit(world, adds=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert _admit(world, adds=False) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_while_an_end_is_under_way_batches_are_told_to_come_again(world: World) -> None:
    world.init()
    world.add("orders")
    world.disk.slow = True
    world.end()
    assert _admit(world, adds=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert _admit(world, adds=False) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_after_closing_nothing_is_appended(world: World) -> None:
    world.init()
    world.add("orders")
    written = len(world.records)
    world.coordinator.close()
    world.end()
    world.loop.advance(100_000)
    assert len(world.records) == written


def test_expired_ids_are_forgotten_with_a_tombstone(world: World) -> None:
    world.init()
    world.loop.advance(1_000_000_000 + 3_600_000)
    assert world.coordinator.metadata("t") is None
    world.restart()
    assert world.coordinator.metadata("t") is None
    assert list(world.coordinator) == []
