"""Whatever clients do, whatever fails, wherever it crashes: a transaction is committed or aborted, whole.

A small world around the machine: a disk that keeps what was made durable and any part of the rest, two partitions that
keep data and markers as a log does, clients of both transaction versions, among them zombies that use old epochs.
A transaction is known by the time it started, which is unique here because time moves with every step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headwater.broker.transactions.events import (
    AddPartitions,
    Effect,
    EndTransaction,
    Event,
    InitProducer,
    MarkersFailed,
    MarkersWritten,
    Outcome,
    Reply,
    Tick,
    Write,
    WriteFailed,
    WriteMarkers,
    Written,
)
from headwater.broker.transactions.machine import TransactionMachine
from headwater.broker.transactions.metadata import EPOCH_LAST_USABLE, Metadata, State, TopicPartition
from headwater.wire.errors import ErrorCode

PARTITIONS: list[TopicPartition] = [("orders", 0), ("stock", 0)]
TIMEOUT_MS = 50
EXPIRATION_MS = 10_000


@dataclass
class Datum:
    """One batch in a partition; `committed` is None until a marker says."""

    transaction: int
    producer_id: int
    epoch: int
    committed: bool | None = None


@dataclass(eq=False)
class Arriving:
    """Token of an addition: a batch that is appended once the addition is answered."""

    partition: TopicPartition
    producer_id: int
    epoch: int


class World(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.disk: list[Metadata] = []
        self.durable = 0
        self.partitions: dict[TopicPartition, list[Datum]] = {each: [] for each in PARTITIONS}
        self.partition_epochs: dict[tuple[TopicPartition, int], int] = {}
        self.promised: dict[int, bool] = {}  # transaction -> what its client was told
        self.asked: dict[object, tuple[int, bool] | None] = {}  # EndTxn token -> transaction, commit
        self.identity = (-1, -1)  # of the newest producer
        self.zombie = (-1, -1)  # of an older one
        self.version = 0
        self.next_id = 100
        self.newest: dict[int, int] = {}  # producer id -> the highest epoch seen
        self.under_way: deque[Effect] = deque()
        self.machine = TransactionMachine()

    @initialize(version=st.sampled_from([0, 2]), exhausted=st.booleans())
    def begin(self, version: int, exhausted: bool) -> None:
        self.version = version
        epoch = EPOCH_LAST_USABLE - 2 if exhausted else 0
        first = Metadata(producer_id=1, producer_epoch=epoch, timeout_ms=TIMEOUT_MS, state=State.EMPTY, updated_ms=0)
        self.disk, self.durable = [first], 1
        self.machine = TransactionMachine(first)
        self.identity = (1, epoch)

    # -- the machine's surroundings

    def step(self, event: Event) -> None:
        self.now_ms += 1
        for effect in self.machine.step(event, self.now_ms):
            match effect:
                case Reply(token, outcome):
                    self.answered(token, outcome)
                case Write(metadata):
                    self.disk.append(metadata)
                    self.under_way.append(effect)
                case WriteMarkers():
                    assert self.durable == len(self.disk), "markers before the decision is durable"
                    self.under_way.append(effect)

    def answered(self, token: object, outcome: Outcome) -> None:
        asked = self.asked.pop(token, None)
        if outcome.error is not ErrorCode.NONE:
            return
        if outcome.producer_id != -1:
            self.zombie, self.identity = self.identity, (outcome.producer_id, outcome.producer_epoch)
        if asked is not None:
            transaction, commit = asked
            assert self.promised.setdefault(transaction, commit) == commit
        if isinstance(token, Arriving):
            self.write(token.partition, token.producer_id, token.epoch)

    def write(self, partition: TopicPartition, producer_id: int, epoch: int) -> None:
        """Data arrives at a partition, as Produce admits it there."""
        if self.machine.admits(producer_id, epoch, {partition}) is not ErrorCode.NONE:
            return
        if epoch < self.partition_epochs.get((partition, producer_id), -1):
            return  # the log refuses it
        assert self.machine.current is not None
        self.partition_epochs[partition, producer_id] = epoch
        self.partitions[partition].append(Datum(self.machine.current.started_ms, producer_id, epoch))

    def mark(self, partition: TopicPartition, metadata: Metadata) -> None:
        known = self.partition_epochs.get((partition, metadata.producer_id), -1)
        assert metadata.producer_epoch >= known, "a marker that the log would refuse"
        self.partition_epochs[partition, metadata.producer_id] = metadata.producer_epoch
        for datum in self.partitions[partition]:
            if datum.producer_id == metadata.producer_id and datum.committed is None:
                assert datum.transaction == metadata.started_ms, "a marker ended another transaction's data"
                datum.committed = metadata.state is State.PREPARE_COMMIT

    # -- what clients do

    def token(self) -> object:
        return object()

    def fresh(self) -> int:
        self.next_id += 1
        return self.next_id

    @rule(goes_on=st.booleans(), zombie=st.booleans())
    def init_producer(self, goes_on: bool, zombie: bool) -> None:
        producer_id, epoch = (self.zombie if zombie else self.identity) if goes_on else (-1, -1)
        self.step(InitProducer(self.token(), TIMEOUT_MS, producer_id, epoch, self.fresh()))

    @rule(index=st.integers(0, 1), zombie=st.booleans())
    def add_and_write(self, index: int, zombie: bool) -> None:
        producer_id, epoch = self.zombie if zombie else self.identity
        token = Arriving(PARTITIONS[index], producer_id, epoch)
        self.step(AddPartitions(token, producer_id, epoch, frozenset([PARTITIONS[index]]), self.version))

    @rule(index=st.integers(0, 1), zombie=st.booleans())
    def write_late(self, index: int, zombie: bool) -> None:
        self.write(PARTITIONS[index], *(self.zombie if zombie else self.identity))

    @rule(commit=st.booleans(), zombie=st.booleans())
    def end(self, commit: bool, zombie: bool) -> None:
        producer_id, epoch = self.zombie if zombie else self.identity
        token, current = self.token(), self.machine.current
        if current is not None and current.state is State.ONGOING:
            self.asked[token] = (current.started_ms, commit)
        self.step(EndTransaction(token, producer_id, epoch, commit, self.version, self.fresh()))

    # -- what the disk and time do

    @rule()
    def disk_answers(self) -> None:
        if not self.under_way:
            return
        match self.under_way.popleft():
            case Write():
                self.durable = len(self.disk)
                self.step(Written())
            case WriteMarkers(metadata):
                for partition in metadata.partitions:
                    self.mark(partition, metadata)
                self.step(MarkersWritten())

    @rule(kept=st.booleans(), reached=st.integers(0, 2))
    def disk_refuses(self, kept: bool, reached: int) -> None:
        """`kept`: the record is in the file all the same; `reached`: how many partitions got their marker."""
        if not self.under_way:
            return
        match self.under_way.popleft():
            case Write():
                if not kept:
                    self.disk.pop()
                self.durable = min(self.durable, len(self.disk))
                self.step(WriteFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
                self.durable = len(self.disk)
            case WriteMarkers(metadata):
                for partition in sorted(metadata.partitions)[:reached]:
                    self.mark(partition, metadata)
                self.step(MarkersFailed())

    @rule(elapsed=st.sampled_from([1, TIMEOUT_MS + 1, EXPIRATION_MS + 1]))
    def time_passes(self, elapsed: int) -> None:
        self.now_ms += elapsed
        self.step(Tick(EXPIRATION_MS))

    @rule(survives=st.booleans(), reached=st.integers(0, 2))
    def crash(self, survives: bool, reached: int) -> None:
        """The record under way is in the file or not; of the markers under way some are."""
        for effect in self.under_way:
            if isinstance(effect, WriteMarkers):
                for partition in sorted(effect.metadata.partitions)[:reached]:
                    self.mark(partition, effect.metadata)
        self.under_way.clear()
        self.asked.clear()
        if not survives:
            del self.disk[self.durable :]
        self.durable = len(self.disk)
        last = self.disk[-1]
        self.machine = TransactionMachine(None if last.state is State.DEAD else last)
        self.step(Tick(EXPIRATION_MS))

    # -- what must hold

    @invariant()
    def a_transaction_is_committed_or_aborted_whole(self) -> None:
        decided: dict[int, bool] = {}
        for data in self.partitions.values():
            for datum in data:
                if datum.committed is not None:
                    assert decided.setdefault(datum.transaction, datum.committed) == datum.committed
        for transaction, commit in self.promised.items():
            assert decided.get(transaction, commit) == commit, "the client was told otherwise"

    @invariant()
    def the_epoch_of_a_producer_never_goes_back(self) -> None:
        current = self.machine.current
        if current is not None:
            assert self.newest.get(current.producer_id, -1) <= current.producer_epoch
            self.newest[current.producer_id] = current.producer_epoch

    @invariant()
    def a_transaction_that_is_over_leaves_no_partition_open(self) -> None:
        current = self.machine.current
        if current is None or not current.state.idle or self.under_way:
            return
        assert all(datum.committed is not None for data in self.partitions.values() for datum in data)

    def teardown(self) -> None:
        """Left alone, with a disk that works, everything comes to rest, and promises were kept."""
        for _ in range(6):
            while self.under_way:
                self.disk_answers()
            self.time_passes(TIMEOUT_MS + 1)
        while self.under_way:
            self.disk_answers()
        assert self.machine.gone or (self.machine.current is not None and self.machine.current.state.idle)
        self.a_transaction_that_is_over_leaves_no_partition_open()
        self.a_transaction_is_committed_or_aborted_whole()


World.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestWorld = World.TestCase
