"""The transaction machine: Kafka's answers in every state, and what it does when the disk or time is against it."""

from __future__ import annotations

import pytest

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
from headwater.broker.transactions.machine import QUEUED_ADDS_MAX, TransactionMachine
from headwater.broker.transactions.metadata import EPOCH_LAST_USABLE, EPOCH_MAX, Metadata, State
from headwater.wire.errors import ErrorCode

ORDERS = frozenset([("orders", 0)])
STOCK = frozenset([("stock", 1)])
EXPIRATION_MS = 1_000_000
TIMEOUT_MS = 60_000


class Driver:
    """Performs effects as if the disk were always ready, unless `hold` stops it."""

    def __init__(self, current: Metadata | None = None) -> None:
        self.machine = TransactionMachine(current)
        self.now_ms = 1_000
        self.answers: dict[object, Outcome] = {}
        self.markers: list[Metadata] = []
        self.held: list[Effect] = []
        self.hold: tuple[type, ...] = ()
        self._tokens = iter(range(10_000))

    def step(self, event: Event) -> None:
        for effect in self.machine.step(event, self.now_ms):
            if isinstance(effect, self.hold):
                self.held.append(effect)
            else:
                self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Reply(token, outcome):
                assert token not in self.answers, "answered twice"
                self.answers[token] = outcome
            case Write():
                self.step(Written())
            case WriteMarkers(metadata):
                self.markers.append(metadata)
                self.step(MarkersWritten())

    def release(self) -> None:
        held, self.held, self.hold = self.held, [], ()
        for effect in held:
            self._perform(effect)

    def init(self, producer_id: int = -1, epoch: int = -1, fresh: int = 7, timeout_ms: int = TIMEOUT_MS) -> object:
        token = next(self._tokens)
        self.step(InitProducer(token, timeout_ms, producer_id, epoch, fresh))
        return token

    def add(
        self, partitions: frozenset[tuple[str, int]], epoch: int = 0, producer_id: int = 7, version: int = 0
    ) -> object:
        token = next(self._tokens)
        self.step(AddPartitions(token, producer_id, epoch, partitions, version))
        return token

    def end(
        self, *, commit: bool = True, epoch: int = 0, producer_id: int = 7, version: int = 0, fresh: int = 8
    ) -> object:
        token = next(self._tokens)
        self.step(EndTransaction(token, producer_id, epoch, commit, version, fresh))
        return token

    def tick(self) -> None:
        self.step(Tick(EXPIRATION_MS))

    @property
    def current(self) -> Metadata:
        assert self.machine.current is not None
        return self.machine.current


@pytest.fixture
def driver() -> Driver:
    """A transactional id whose producer 7 is at epoch 0."""
    driver = Driver()
    assert driver.answers[driver.init()] == Outcome(ErrorCode.NONE, 7, 0)
    return driver


def at(epoch: int, state: State = State.EMPTY, **fields: object) -> Metadata:
    known: dict[str, object] = {"producer_id": 7, "producer_epoch": epoch, "timeout_ms": TIMEOUT_MS, "state": state}
    return Metadata(**{**known, "updated_ms": 1_000, "started_ms": 1_000, **fields})  # type: ignore[arg-type]


def error(driver: Driver, token: object) -> ErrorCode:
    return driver.answers[token].error


# -- producers


def test_each_new_producer_gets_the_next_epoch(driver: Driver) -> None:
    assert driver.answers[driver.init()] == Outcome(ErrorCode.NONE, 7, 1)
    assert driver.answers[driver.init()] == Outcome(ErrorCode.NONE, 7, 2)


def test_a_producer_that_goes_on_after_an_error_is_bumped_and_its_retry_gets_the_same_answer(driver: Driver) -> None:
    assert driver.answers[driver.init(7, 0)] == Outcome(ErrorCode.NONE, 7, 1)
    assert driver.answers[driver.init(7, 0)] == Outcome(ErrorCode.NONE, 7, 1)


def test_a_producer_that_another_has_replaced_cannot_go_on(driver: Driver) -> None:
    driver.init()
    driver.init()
    assert error(driver, driver.init(7, 0)) is ErrorCode.PRODUCER_FENCED
    assert error(driver, driver.init(99, 1)) is ErrorCode.PRODUCER_FENCED


def test_a_replaced_producer_that_goes_on_does_not_abort_its_successors_transaction(driver: Driver) -> None:
    driver.init()
    driver.add(ORDERS, epoch=1)
    assert error(driver, driver.init(7, 0)) is ErrorCode.PRODUCER_FENCED
    assert driver.current.state is State.ONGOING


@pytest.mark.parametrize("version", [0, 2])
def test_a_new_producer_first_aborts_the_open_transaction_of_the_old_one(driver: Driver, version: int) -> None:
    driver.add(ORDERS, version=version)
    assert error(driver, driver.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.current.state is State.COMPLETE_ABORT
    assert [(marker.state, marker.producer_epoch) for marker in driver.markers] == [(State.PREPARE_ABORT, 1)]
    assert driver.answers[driver.init()] == Outcome(ErrorCode.NONE, 7, 2)
    assert error(driver, driver.end(epoch=0)) is ErrorCode.PRODUCER_FENCED


def test_a_new_producer_waits_while_the_old_ones_commit_is_completed(driver: Driver) -> None:
    driver.add(ORDERS)
    driver.hold = (WriteMarkers,)
    driver.end()
    assert error(driver, driver.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.release()
    assert driver.answers[driver.init()] == Outcome(ErrorCode.NONE, 7, 1)
    assert [marker.state for marker in driver.markers] == [State.PREPARE_COMMIT]


def test_after_the_last_epoch_comes_a_new_producer_id_and_the_retry_is_recognised() -> None:
    driver = Driver(at(EPOCH_LAST_USABLE))
    assert driver.machine.needs_fresh_id
    assert driver.answers[driver.init(7, EPOCH_LAST_USABLE, fresh=8)] == Outcome(ErrorCode.NONE, 8, 0)
    assert driver.answers[driver.init(7, EPOCH_LAST_USABLE, fresh=9)] == Outcome(ErrorCode.NONE, 8, 0)
    assert driver.current.previous_producer_id == 7


def test_fencing_at_the_very_last_epoch_does_not_overflow() -> None:
    driver = Driver(at(EPOCH_MAX, State.ONGOING, partitions=ORDERS))
    driver.init(fresh=8)
    assert driver.current.producer_epoch == EPOCH_MAX
    assert driver.answers[driver.init(fresh=9)] == Outcome(ErrorCode.NONE, 9, 0)


# -- adding partitions


def test_partitions_are_admitted_once_their_addition_is_on_disk(driver: Driver) -> None:
    assert driver.machine.admits(7, 0, ORDERS) is ErrorCode.TRANSACTION_ABORTABLE
    driver.hold = (Write,)
    waiting = driver.add(ORDERS)
    assert driver.machine.admits(7, 0, ORDERS) is ErrorCode.TRANSACTION_ABORTABLE
    assert waiting not in driver.answers
    driver.release()
    assert driver.machine.admits(7, 0, ORDERS) is ErrorCode.NONE
    assert driver.machine.admits(7, 0, ORDERS | STOCK) is ErrorCode.TRANSACTION_ABORTABLE
    assert error(driver, waiting) is ErrorCode.NONE


def test_additions_during_an_addition_share_the_next_record(driver: Driver) -> None:
    driver.hold = (Write,)
    first, second, third = driver.add(ORDERS), driver.add(STOCK), driver.add(frozenset([("stock", 2)]))
    assert len(driver.held) == 1
    driver.release()
    assert [error(driver, token) for token in (first, second, third)] == [ErrorCode.NONE] * 3
    assert driver.current.partitions == ORDERS | STOCK | {("stock", 2)}


def test_waiting_additions_are_bounded(driver: Driver) -> None:
    driver.hold = (Write,)
    for index in range(QUEUED_ADDS_MAX + 1):
        driver.add(frozenset([("orders", index)]))
    assert error(driver, driver.add(STOCK)) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_only_the_current_producer_adds_partitions(driver: Driver) -> None:
    assert error(driver, driver.add(ORDERS, producer_id=6)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert error(driver, driver.add(ORDERS, epoch=-1)) is ErrorCode.PRODUCER_FENCED
    assert error(driver, driver.add(ORDERS, epoch=1)) is ErrorCode.PRODUCER_FENCED
    assert driver.machine.admits(7, 1, ORDERS) is ErrorCode.PRODUCER_FENCED
    assert driver.machine.admits(6, 0, ORDERS) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_nothing_joins_a_transaction_whose_end_is_being_decided(driver: Driver) -> None:
    driver.add(ORDERS)
    driver.hold = (Write,)
    driver.end()
    assert error(driver, driver.add(STOCK)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.machine.admits(7, 0, ORDERS) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.hold = (WriteMarkers,)
    held, driver.held = driver.held, []
    for effect in held:
        driver._perform(effect)
    assert driver.current.state is State.PREPARE_COMMIT
    assert error(driver, driver.add(STOCK)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.machine.admits(7, 0, ORDERS) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_partition_of_the_last_transaction_is_not_in_the_next(driver: Driver) -> None:
    driver.add(ORDERS)
    driver.end()
    driver.add(STOCK)
    assert driver.machine.admits(7, 0, ORDERS) is ErrorCode.TRANSACTION_ABORTABLE


# -- ending, as clients with transaction version 0 do


@pytest.mark.parametrize(("commit", "state"), [(True, State.COMPLETE_COMMIT), (False, State.COMPLETE_ABORT)])
def test_an_end_is_answered_when_complete_and_its_retry_likewise(driver: Driver, commit: bool, state: State) -> None:
    driver.add(ORDERS)
    driver.hold = (WriteMarkers,)
    token = driver.end(commit=commit)
    assert token not in driver.answers
    assert error(driver, driver.end(commit=commit)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert error(driver, driver.end(commit=not commit)) is ErrorCode.INVALID_TXN_STATE
    driver.release()
    assert driver.answers[token] == Outcome(ErrorCode.NONE, 7, 0)
    assert driver.current.state is state
    assert driver.current.partitions == frozenset()
    assert error(driver, driver.end(commit=commit)) is ErrorCode.NONE
    assert error(driver, driver.end(commit=not commit)) is ErrorCode.INVALID_TXN_STATE


def test_there_is_nothing_to_end_without_a_transaction(driver: Driver) -> None:
    assert error(driver, driver.end(commit=True)) is ErrorCode.INVALID_TXN_STATE
    assert error(driver, driver.end(commit=False)) is ErrorCode.INVALID_TXN_STATE
    assert error(driver, driver.end(epoch=5)) is ErrorCode.PRODUCER_FENCED
    assert error(driver, driver.end(producer_id=5)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# -- ending, as clients with transaction version 2 do


def test_in_version_2_the_epoch_moves_on_with_every_end(driver: Driver) -> None:
    driver.add(ORDERS, version=2)
    assert driver.answers[driver.end(version=2)] == Outcome(ErrorCode.NONE, 7, 1)
    assert [(m.state, m.producer_epoch) for m in driver.markers] == [(State.PREPARE_COMMIT, 1)]
    driver.add(ORDERS, epoch=1, version=2)
    assert driver.answers[driver.end(epoch=1, commit=False, version=2)] == Outcome(ErrorCode.NONE, 7, 2)


def test_in_version_2_a_retry_is_known_by_its_epoch(driver: Driver) -> None:
    driver.add(ORDERS, version=2)
    driver.end(version=2)
    assert driver.answers[driver.end(version=2)] == Outcome(ErrorCode.NONE, 7, 1)
    assert error(driver, driver.end(version=2, commit=False)) is ErrorCode.INVALID_TXN_STATE
    assert error(driver, driver.end(version=2, epoch=1)) is ErrorCode.INVALID_TXN_STATE
    assert error(driver, driver.end(version=2, epoch=2)) is ErrorCode.PRODUCER_FENCED


def test_in_version_2_aborting_nothing_still_moves_the_epoch(driver: Driver) -> None:
    assert error(driver, driver.end(version=2, commit=True)) is ErrorCode.INVALID_TXN_STATE
    assert driver.answers[driver.end(version=2, commit=False)] == Outcome(ErrorCode.NONE, 7, 1)
    assert driver.current.state is State.COMPLETE_ABORT


def test_in_version_2_the_last_epoch_ends_with_a_new_producer_id() -> None:
    last = EPOCH_LAST_USABLE
    driver = Driver(at(last, State.ONGOING, partitions=ORDERS, version=2))
    assert driver.answers[driver.end(epoch=last, version=2, fresh=8)] == Outcome(ErrorCode.NONE, 8, 0)
    assert [(m.producer_id, m.producer_epoch) for m in driver.markers] == [(7, EPOCH_MAX)]
    assert driver.answers[driver.end(epoch=last, version=2, fresh=9)] == Outcome(ErrorCode.NONE, 8, 0)
    assert (driver.current.producer_id, driver.current.previous_producer_id) == (8, 7)


def test_in_version_2_a_zombie_whose_transaction_timed_out_cannot_commit(driver: Driver) -> None:
    driver.add(ORDERS, version=2)
    driver.now_ms += TIMEOUT_MS + 1
    driver.tick()
    assert driver.current.producer_epoch == 1
    assert error(driver, driver.end(version=2, commit=True)) is ErrorCode.INVALID_TXN_STATE
    assert driver.answers[driver.end(version=2, commit=False)] == Outcome(ErrorCode.NONE, 7, 1)


# -- time


def test_a_transaction_past_its_time_out_is_aborted_and_its_producer_fenced(driver: Driver) -> None:
    driver.add(ORDERS)
    driver.now_ms += TIMEOUT_MS
    driver.tick()
    assert driver.current.state is State.ONGOING
    driver.now_ms += 1
    driver.tick()
    assert driver.current.state is State.COMPLETE_ABORT
    assert error(driver, driver.end(commit=True)) is ErrorCode.PRODUCER_FENCED
    assert error(driver, driver.add(ORDERS)) is ErrorCode.PRODUCER_FENCED


def test_the_time_out_counts_from_the_first_partition_not_from_the_last(driver: Driver) -> None:
    driver.add(ORDERS)
    driver.now_ms += TIMEOUT_MS - 1
    driver.add(STOCK)
    driver.now_ms += 2
    driver.tick()
    assert driver.current.state is State.COMPLETE_ABORT
    assert driver.markers[0].partitions == ORDERS | STOCK


def test_an_unused_id_is_forgotten_after_its_time_and_starts_anew(driver: Driver) -> None:
    driver.now_ms += EXPIRATION_MS - 1
    driver.tick()
    assert not driver.machine.gone
    driver.now_ms += 1
    driver.tick()
    assert driver.machine.gone


# -- failures and crashes


def test_a_refused_record_leaves_everything_as_it_was(driver: Driver) -> None:
    driver.hold = (Write,)
    first, second = driver.add(ORDERS), driver.add(STOCK)
    driver.held.clear()
    driver.step(WriteFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert error(driver, first) is error(driver, second) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.hold = ()
    assert driver.current.state is State.EMPTY
    assert error(driver, driver.add(ORDERS)) is ErrorCode.NONE


def test_a_decision_that_cannot_be_recorded_is_not_made(driver: Driver) -> None:
    driver.add(ORDERS)
    driver.hold = (Write,)
    token = driver.end()
    driver.held.clear()
    driver.step(WriteFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert error(driver, token) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.hold = ()
    assert driver.markers == []
    assert error(driver, driver.end(commit=False)) is ErrorCode.NONE


def test_a_decision_stands_when_its_markers_have_to_wait(driver: Driver) -> None:
    driver.add(ORDERS)
    driver.hold = (WriteMarkers,)
    token = driver.end()
    driver.held.clear()
    driver.step(MarkersFailed())
    assert error(driver, token) is ErrorCode.NONE
    assert driver.machine.stalled
    driver.hold = ()
    driver.tick()
    assert driver.current.state is State.COMPLETE_COMMIT
    assert not driver.machine.unfinished


def test_completion_that_cannot_be_recorded_is_repeated(driver: Driver) -> None:
    driver.add(ORDERS)
    driver.hold = (WriteMarkers,)
    token = driver.end()
    driver.hold, driver.held = (Write,), []
    driver.step(MarkersWritten())
    driver.held.clear()
    driver.step(WriteFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert error(driver, token) is ErrorCode.NONE
    driver.hold = ()
    driver.tick()
    assert driver.current.state is State.COMPLETE_COMMIT


@pytest.mark.parametrize("prepared", [State.PREPARE_COMMIT, State.PREPARE_ABORT])
def test_what_was_decided_before_a_crash_is_completed_after_it(prepared: State) -> None:
    driver = Driver(at(3, prepared, partitions=ORDERS | STOCK))
    driver.tick()
    assert [(marker.state, marker.partitions) for marker in driver.markers] == [(prepared, ORDERS | STOCK)]
    assert driver.current.state.name == prepared.name.replace("PREPARE", "COMPLETE")


def test_an_end_during_an_addition_is_told_to_come_again(driver: Driver) -> None:
    driver.hold = (Write,)
    driver.add(ORDERS)
    assert error(driver, driver.end()) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_states_are_spelled_as_kafka_spells_them() -> None:
    labels = "Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead PrepareEpochFence"
    assert [state.label for state in State] == labels.split()
