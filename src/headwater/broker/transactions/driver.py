"""The transaction coordinator: machines, one per transactional id, with their log, their markers and their clock.

Everything runs on the broker's loop. Requests come from handlers, answers are promises. The order that makes it safe to
die at any instant is the machine's (`machine.py`); this module performs its effects:

* `Write`: append to `__transaction_state`, `Written` when that is on disk;
* `WriteMarkers`: a control batch into every partition of the transaction, `MarkersWritten` when all are on disk. The
  group coordinator hears of those in `__consumer_offsets` from the partition itself (`InternalTopics.on_marker`).

At start the log is replayed, and completing what a crash left decided begins before the first client is let in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING

from headwater.broker.internal import CONSUMER_OFFSETS, TRANSACTION_STATE
from headwater.broker.promise import Promise, settled
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
from headwater.broker.transactions.metadata import NO_PRODUCER_ID, Metadata, State, TopicPartition
from headwater.broker.transactions.producer_ids import ProducerIds
from headwater.broker.transactions.state_log import apply_batch, encode_state
from headwater.errors import HeadwaterError
from headwater.log.results import AppendRefused
from headwater.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headwater.broker.loop import Timer
    from headwater.broker.services import Services
    from headwater.log.results import Appended

__all__ = ["TransactionCoordinator", "coordinator", "start"]

# A marker refused so has nothing left to end: a newer epoch of the producer has written there since.
_ENDED_BY_OTHERS = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})

RETRY_INTERVAL_MS = 200  # between attempts to write markers or a completion that the disk refused

_log = logging.getLogger("headwater.broker")


def start(services: Services) -> TransactionCoordinator:
    """The coordinator with everything that `__transaction_state` says, its unfinished work under way."""
    started = TransactionCoordinator(services)
    started.load()
    return started


def coordinator(services: Services) -> TransactionCoordinator:
    """The broker's transaction coordinator with all that its own handlers may ask."""
    found = services.transactions
    assert isinstance(found, TransactionCoordinator)
    return found


class TransactionCoordinator:
    """Answers of handlers, as promises of an `Outcome` or as plain values."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._machines: dict[str, TransactionMachine] = {}
        self._marked: dict[str, set[TopicPartition]] = {}  # where the marker of an unfinished transaction is already
        self._busy: set[str] = set()  # ids whose machine a timer must look at: open or unfinished transactions
        self._ids = ProducerIds(services.cluster.reserve_producer_ids)
        self._scan: Timer | None = None
        self._expiry: Timer | None = None
        self._closed = False

    def load(self) -> None:
        """Rebuild every machine from the log, and go on where the last run stopped."""
        states: dict[str, Metadata] = {}
        for _, header, batch in self._services.internal.replay(TRANSACTION_STATE):
            if not header.control:
                apply_batch(batch, states)
        self._machines = {each: TransactionMachine(metadata) for each, metadata in states.items()}
        for transactional_id in list(self._machines):
            self._tick(transactional_id)
        self._schedule_expiry()
        if self._machines:
            _log.info("transactions loaded: ids=%d unfinished=%d", len(self._machines), len(self._busy))

    def close(self) -> None:
        """No more appends: what is unfinished goes on at the next start."""
        self._closed = True
        for timer in (self._scan, self._expiry):
            if timer is not None:
                timer.cancel()

    # -- what handlers ask

    def next_producer_id(self) -> Promise[int]:
        """For an idempotent producer without transactions."""
        return self._ids.take()

    def init_producer(
        self, transactional_id: str, timeout_ms: int, producer_id: int, producer_epoch: int
    ) -> Promise[Outcome]:
        """InitProducerId with a transactional id; `producer_id` and epoch are -1 unless it goes on after an error."""
        if not 0 < timeout_ms <= self._services.config.number("transaction.max.timeout.ms"):
            return settled(Outcome(ErrorCode.INVALID_TRANSACTION_TIMEOUT))

        def step(fresh_producer_id: int) -> Promise[Outcome]:
            machine = self._machines.setdefault(transactional_id, TransactionMachine())
            answer: Promise[Outcome] = Promise()
            event = InitProducer(answer, timeout_ms, producer_id, producer_epoch, fresh_producer_id)
            self._step(transactional_id, machine, event)
            return answer

        return self._with_fresh_id(transactional_id, step)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Set[TopicPartition],
        version: int,
    ) -> Promise[Outcome]:
        """They belong to the producer's transaction, which begins if none is open."""
        answer: Promise[Outcome] = Promise()
        event = AddPartitions(answer, producer_id, producer_epoch, frozenset(partitions), version)
        return self._ask(transactional_id, event, answer)

    def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool, version: int
    ) -> Promise[Outcome]:
        """EndTxn; the outcome's producer id and epoch are what a version-2 client goes on with."""

        def step(fresh_producer_id: int) -> Promise[Outcome]:
            answer: Promise[Outcome] = Promise()
            event = EndTransaction(answer, producer_id, producer_epoch, commit, version, fresh_producer_id)
            return self._ask(transactional_id, event, answer)

        if transactional_id not in self._machines:
            return settled(Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        return self._with_fresh_id(transactional_id, step)

    def admit_produce(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Mapping[str, Iterable[int]],
        *,
        adds_partitions: bool,
    ) -> ErrorCode | Promise[ErrorCode]:
        """May transactional batches be appended to these partitions? As Produce answers it.

        With a promise, append in its callback (or right after the `await`), not later: until markers are written, which
        takes at least one more turn of the loop, what is appended still belongs to this transaction.
        """
        wanted = frozenset((topic, index) for topic, indexes in partitions.items() for index in indexes)
        return self._admit(transactional_id, producer_id, producer_epoch, wanted, adds_partitions=adds_partitions)

    def admit_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group: str, *, adds_partitions: bool
    ) -> ErrorCode | Promise[ErrorCode]:
        """The same for the offsets that TxnOffsetCommit brings for `group`."""
        partition = self.partition_of_group(group)
        return self._admit(
            transactional_id, producer_id, producer_epoch, frozenset([partition]), adds_partitions=adds_partitions
        )

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> ErrorCode:
        """Is the partition in the producer's transaction? TRANSACTION_ABORTABLE: no."""
        machine = self._machines.get(transactional_id)
        if machine is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return machine.admits(producer_id, producer_epoch, {partition})

    def partition_of_group(self, group: str) -> TopicPartition:
        return CONSUMER_OFFSETS, self._services.internal.partition_of(CONSUMER_OFFSETS, group)

    def metadata(self, transactional_id: str) -> Metadata | None:
        """What is on disk about it; None when it is unknown or expired."""
        machine = self._machines.get(transactional_id)
        return machine.current if machine is not None else None

    def __iter__(self) -> Iterator[tuple[str, Metadata]]:
        for transactional_id, machine in self._machines.items():
            if machine.current is not None:
                yield transactional_id, machine.current

    @property
    def coordinator_epoch(self) -> int:
        """Goes into markers: those of an older start of this broker are recognised as such."""
        partition = self._services.logs.partition(TRANSACTION_STATE, 0)
        return partition.leader_epoch if partition is not None else 0

    # -- parts

    def _admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        *,
        adds_partitions: bool,
    ) -> ErrorCode | Promise[ErrorCode]:
        machine = self._machines.get(transactional_id)
        if machine is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        code = machine.admits(producer_id, producer_epoch, partitions)
        if code is ErrorCode.NONE or not self._must_verify(adds_partitions):
            return ErrorCode.NONE
        if code is not ErrorCode.TRANSACTION_ABORTABLE or not adds_partitions:
            return _as_write_error(code, adds_partitions)
        answer: Promise[ErrorCode] = Promise()
        added = self.add_partitions(transactional_id, producer_id, producer_epoch, partitions, 2)
        added.then(lambda outcome: answer.resolve(_as_write_error(outcome.result().error, adds_partitions)))
        return answer

    def _must_verify(self, adds_partitions: bool) -> bool:
        return adds_partitions or self._services.config.flag("transaction.partition.verification.enable")

    def _ask(self, transactional_id: str, event: Event, answer: Promise[Outcome]) -> Promise[Outcome]:
        machine = self._machines.get(transactional_id)
        if machine is None:
            return settled(Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        self._step(transactional_id, machine, event)
        return answer

    def _with_fresh_id(self, transactional_id: str, step: Callable[[int], Promise[Outcome]]) -> Promise[Outcome]:
        """Call `step` with a producer id of its own when the machine may need one, at once when not."""
        machine = self._machines.get(transactional_id)
        if machine is not None and not machine.needs_fresh_id:
            return step(NO_PRODUCER_ID)
        answer: Promise[Outcome] = Promise()

        def taken(fresh: Promise[int]) -> None:
            try:
                producer_id = fresh.result()
            except HeadwaterError as error:
                _log.warning("no producer ids: %s", error)
                answer.resolve(Outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            else:
                step(producer_id).then(lambda done: answer.resolve(done.result()))

        self._ids.take().then(taken)
        return answer

    # -- events and effects

    def _step(self, transactional_id: str, machine: TransactionMachine, event: Event) -> None:
        effects = machine.step(event, self._services.loop.now_ms())
        self._note(transactional_id, machine)
        for effect in effects:
            self._perform(transactional_id, machine, effect)
        if machine.stalled and isinstance(event, MarkersFailed | WriteFailed):
            self._services.loop.call_later(RETRY_INTERVAL_MS, self._tick, transactional_id)

    def _note(self, transactional_id: str, machine: TransactionMachine) -> None:
        """Keep track of which machines need time, and forget those that are gone or never came to be."""
        if machine.gone:
            self._machines.pop(transactional_id, None)
        if machine.unfinished:
            self._busy.add(transactional_id)
            self._schedule_scan()
        else:
            self._busy.discard(transactional_id)
            self._marked.pop(transactional_id, None)

    def _perform(self, transactional_id: str, machine: TransactionMachine, effect: Effect) -> None:
        match effect:
            case Reply(token=Promise() as answer, outcome=outcome):
                answer.resolve(outcome)
            case Write(metadata=metadata) if not self._closed:
                self._write(transactional_id, machine, metadata)
            case WriteMarkers(metadata=metadata) if not self._closed:
                self._write_markers(transactional_id, machine, metadata)

    def _write(self, transactional_id: str, machine: TransactionMachine, metadata: Metadata) -> None:
        def written(stored: Promise[Appended]) -> None:
            try:
                stored.result()
            except AppendRefused as refused:
                _log.warning("transaction not recorded: id=%s reason=%s", transactional_id, refused)
                self._step(transactional_id, machine, WriteFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            else:
                self._step(transactional_id, machine, Written())

        internal = self._services.internal
        partition = internal.partition_of(TRANSACTION_STATE, transactional_id)
        internal.append(TRANSACTION_STATE, partition, encode_state(transactional_id, metadata)).then(written)

    def _write_markers(self, transactional_id: str, machine: TransactionMachine, metadata: Metadata) -> None:
        """A marker into each partition that has none yet; those of deleted topics have nothing left to end."""
        marked = self._marked.setdefault(transactional_id, set())
        missing = [each for each in metadata.partitions - marked if self._services.logs.partition(*each) is not None]
        remaining = len(missing)
        failed = False

        def one_done(partition: TopicPartition, ended: bool) -> None:
            nonlocal remaining, failed
            remaining -= 1
            failed = failed or not ended
            if ended:
                marked.add(partition)
            if remaining == 0:
                self._step(transactional_id, machine, MarkersFailed() if failed else MarkersWritten())

        if not missing:
            self._step(transactional_id, machine, MarkersWritten())
        for partition in missing:
            self._mark(transactional_id, metadata, partition, one_done)

    def _mark(
        self,
        transactional_id: str,
        metadata: Metadata,
        where: TopicPartition,
        done: Callable[[TopicPartition, bool], None],
    ) -> None:
        partition = self._services.logs.require(*where)

        def marked(stored: Promise[Appended]) -> None:
            try:
                stored.result()
            except AppendRefused as refused:
                _log.warning("marker refused: id=%s partition=%s-%d reason=%s", transactional_id, *where, refused)
                done(where, refused.code in _ENDED_BY_OTHERS)
            else:
                done(where, True)

        partition.append_marker(
            metadata.producer_id,
            metadata.producer_epoch,
            commit=metadata.state is State.PREPARE_COMMIT,
            coordinator_epoch=self.coordinator_epoch,
        ).then(marked)

    # -- time

    def _tick(self, transactional_id: str) -> None:
        machine = self._machines.get(transactional_id)
        if machine is not None:
            expiration_ms = self._services.config.number("transactional.id.expiration.ms")
            self._step(transactional_id, machine, Tick(expiration_ms))

    def _schedule_scan(self) -> None:
        """One timer for the time-outs of all open transactions, and none when there are none."""
        if self._closed or self._scan is not None:
            return
        interval_ms = self._services.config.number("transaction.abort.timed.out.transaction.cleanup.interval.ms")
        self._scan = self._services.loop.call_later(interval_ms, self._scan_busy)

    def _scan_busy(self) -> None:
        self._scan = None
        for transactional_id in list(self._busy):
            self._tick(transactional_id)
        if self._busy:
            self._schedule_scan()

    def _schedule_expiry(self) -> None:
        interval_ms = self._services.config.number("transaction.remove.expired.transaction.cleanup.interval.ms")
        self._expiry = self._services.loop.call_later(interval_ms, self._expire)

    def _expire(self) -> None:
        for transactional_id in list(self._machines):
            self._tick(transactional_id)
        self._schedule_expiry()


def _as_write_error(code: ErrorCode, adds_partitions: bool) -> ErrorCode:
    """What a batch or an offset commit is refused with: older clients know fewer errors."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if adds_partitions:
        return code
    if code is ErrorCode.CONCURRENT_TRANSACTIONS:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # retriable for all of them
    return ErrorCode.INVALID_TXN_STATE if code is ErrorCode.TRANSACTION_ABORTABLE else code
