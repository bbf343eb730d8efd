"""The life of one transactional id, as a machine without disk, clock or sockets.

    Empty ──add──▶ Ongoing ──end──▶ PrepareCommit ──markers on disk──▶ CompleteCommit ──add──▶ Ongoing ...
                      └──end, time-out, new producer──▶ PrepareAbort ──▶ CompleteAbort

Invariants:

* `current` is what the log holds for certain. A change is a `Write` effect and counts from its `Written` on; meanwhile
  (`writing`) nothing else may change, and clients are told to come again (CONCURRENT_TRANSACTIONS).
* A Prepare record is the decision. Markers follow it, never precede it, and Complete follows the markers; so a crash
  anywhere is repaired by `Tick` on what the log says: Prepare writes its markers again, Ongoing times out.
* The epoch of a producer id never goes back. With transaction version 2 the record of Prepare already carries the next
  one, and its markers with it: a late batch of the ended transaction is older than its partition's epoch.

EndTxn is answered when the transaction is complete, not merely decided: Kafka answers after the decision and the next
AddPartitionsToTxn then often meets CONCURRENT_TRANSACTIONS and waits; in one process complete is a millisecond later.
If markers cannot be written, the answer is given at once: the decision stands.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

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
from headwater.broker.transactions.metadata import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Metadata,
    State,
    TopicPartition,
    epoch_exhausted,
)
from headwater.errors import InvariantViolated
from headwater.wire.errors import ErrorCode

__all__ = ["QUEUED_ADDS_MAX", "TransactionMachine"]

QUEUED_ADDS_MAX = 100  # additions waiting for the one being written; a producer has at most 5 requests in flight

_CONCURRENT = Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
_FENCED = Outcome(ErrorCode.PRODUCER_FENCED)
_OTHER_ID = Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_WRONG_STATE = Outcome(ErrorCode.INVALID_TXN_STATE)
_DONE = Outcome(ErrorCode.NONE)


class TransactionMachine:
    """`step(event, now_ms)` for everything that changes; the rest are questions."""

    __slots__ = ("_completing", "_marking", "_queued", "_waiting", "current", "writing")

    def __init__(self, current: Metadata | None = None) -> None:
        self.current = current  # None until the first producer is initialised
        self.writing: Metadata | None = None
        self._waiting: list[Reply] = []  # answers that are true once `writing` is on disk
        self._completing: list[Reply] = []  # answers of EndTxn: when complete, or when completing has to wait
        self._queued: list[AddPartitions] = []  # for the write that follows the addition being written
        self._marking = False  # markers are on their way

    # -- questions

    @property
    def needs_fresh_id(self) -> bool:
        """InitProducer and EndTransaction must bring a producer id that was never used."""
        return self.current is None or self.current.exhausted

    @property
    def gone(self) -> bool:
        """To be forgotten: expired with its tombstone on disk, or never recorded at all."""
        if self.current is None:
            return self.writing is None
        return self.current.state is State.DEAD

    @property
    def unfinished(self) -> bool:
        """A transaction is open or not complete: somebody must call `Tick`."""
        return self.current is not None and (self.current.state is State.ONGOING or self.current.state.preparing)

    @property
    def stalled(self) -> bool:
        """Decided, but nothing is under way to complete it: `Tick` soon."""
        return self.unfinished and self._known().state.preparing and not self._marking and self.writing is None

    def admits(self, producer_id: int, producer_epoch: int, partitions: Set[TopicPartition]) -> ErrorCode:
        """May this producer write to these partitions now? TRANSACTION_ABORTABLE: they are not in its transaction."""
        refused = self._refuses_producer(producer_id, producer_epoch)
        if refused is not None:
            return refused.error
        if self._ending:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        current = self._known()
        if current.state is State.ONGOING and partitions <= current.partitions:
            return ErrorCode.NONE
        return ErrorCode.TRANSACTION_ABORTABLE

    # -- the one way in

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case InitProducer():
                effects = self._init(event, now_ms)
            case AddPartitions():
                effects = self._add(event, now_ms)
            case EndTransaction():
                effects = self._end(event, now_ms)
            case Written():
                effects = self._written(now_ms)
            case WriteFailed():
                effects = self._write_failed(event.error)
            case MarkersWritten():
                effects = self._markers_written(now_ms)
            case MarkersFailed():
                effects = self._markers_failed()
            case Tick():
                effects = self._tick(now_ms, event.expiration_ms)
        return effects

    # -- InitProducerId

    def _init(self, event: InitProducer, now_ms: int) -> list[Effect]:
        if self.writing is not None:
            return [Reply(event.token, _CONCURRENT)]
        current = self.current
        if current is None:
            current = Metadata(
                producer_id=event.fresh_producer_id,
                producer_epoch=NO_EPOCH,
                timeout_ms=event.timeout_ms,
                state=State.EMPTY,
            )
        expected = None if event.producer_id == NO_PRODUCER_ID else event.producer_epoch
        if expected is not None and not _may_continue(current, event.producer_id, expected):
            return [Reply(event.token, _FENCED)]
        if current.state.preparing:
            return [Reply(event.token, _CONCURRENT)]
        if current.state is State.ONGOING:
            return [Reply(event.token, _CONCURRENT), *self._fence(current, now_ms)]
        following = _next_identity(current, expected, event.fresh_producer_id)
        if following is None:
            return [Reply(event.token, _FENCED)]
        following = replace(
            following,
            state=State.EMPTY,
            timeout_ms=event.timeout_ms,
            partitions=frozenset(),
            started_ms=NO_TIMESTAMP,
            updated_ms=now_ms,
        )
        outcome = Outcome(ErrorCode.NONE, following.producer_id, following.producer_epoch)
        return self._write(following, Reply(event.token, outcome))

    def _fence(self, current: Metadata, now_ms: int) -> list[Effect]:
        """Abort the open transaction with a higher epoch, so that whoever has it open can do nothing more."""
        epoch = min(current.producer_epoch + 1, EPOCH_MAX)
        return self._write(
            replace(
                current,
                state=State.PREPARE_ABORT,
                producer_epoch=epoch,
                last_epoch=current.producer_epoch,
                updated_ms=now_ms,
            )
        )

    # -- AddPartitionsToTxn, AddOffsetsToTxn, and what Produce 12+ and TxnOffsetCommit 5+ imply

    def _add(self, event: AddPartitions, now_ms: int) -> list[Effect]:
        refused = self._refuses_addition(event)
        if refused is not None:
            return [Reply(event.token, refused)]
        current = self._known()
        if current.state is State.ONGOING and event.partitions <= current.partitions:
            return [Reply(event.token, _DONE)]
        if self.writing is not None:
            self._queued.append(event)
            return []
        return self._write_added(current, [event], now_ms)

    def _refuses_addition(self, event: AddPartitions) -> Outcome | None:
        if self.writing is not None and (not self._adding or len(self._queued) >= QUEUED_ADDS_MAX):
            return _CONCURRENT
        refused = self._refuses_producer(event.producer_id, event.producer_epoch)
        if refused is None and self._known().state.preparing:
            return _CONCURRENT
        return refused

    def _write_added(self, current: Metadata, events: list[AddPartitions], now_ms: int) -> list[Effect]:
        begins = current.state is not State.ONGOING
        added = frozenset().union(*(event.partitions for event in events))
        return self._write(
            replace(
                current,
                state=State.ONGOING,
                partitions=added if begins else current.partitions | added,
                started_ms=now_ms if begins else current.started_ms,
                updated_ms=now_ms,
                version=events[-1].version,
            ),
            *(Reply(event.token, _DONE) for event in events),
        )

    # -- EndTxn

    def _end(self, event: EndTransaction, now_ms: int) -> list[Effect]:
        if self.writing is not None:
            return [Reply(event.token, _CONCURRENT)]
        if self.current is None:
            return [Reply(event.token, _OTHER_ID)]
        decided = _decide_end(self.current, event)
        if isinstance(decided, Outcome):
            return [Reply(event.token, decided)]
        prepared = replace(decided, updated_ms=now_ms, started_ms=self._started_or(now_ms))
        self._completing.append(Reply(event.token, Outcome(ErrorCode.NONE, *prepared.identity_after)))
        return self._write(prepared)

    def _started_or(self, now_ms: int) -> int:
        """Aborting without any partition is legal in version 2: such a transaction begins as it ends."""
        current = self._known()
        return current.started_ms if current.state is State.ONGOING else now_ms

    def _markers_failed(self) -> list[Effect]:
        self._marking = False
        return self._release()

    def _markers_written(self, now_ms: int) -> list[Effect]:
        self._marking = False
        current = self._known()
        if not current.state.preparing or self.writing is not None:
            raise InvariantViolated(f"markers were written for a transaction in state {current.state.label}")
        complete = State.COMPLETE_COMMIT if current.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
        rotates = current.next_producer_id != NO_PRODUCER_ID
        producer_id, epoch = current.identity_after
        return self._write(
            replace(
                current,
                state=complete,
                partitions=frozenset(),
                producer_id=producer_id,
                producer_epoch=epoch,
                previous_producer_id=current.producer_id if rotates else current.previous_producer_id,
                next_producer_id=NO_PRODUCER_ID,
                updated_ms=now_ms,
            )
        )

    # -- the disk's answers, and time

    def _written(self, now_ms: int) -> list[Effect]:
        if self.writing is None:
            raise InvariantViolated("a transaction's record was written that nobody asked for")
        self.current, self.writing = self.writing, None
        replies: list[Effect] = [*self._waiting]
        self._waiting = []
        if self.current.state.preparing:
            return [*replies, *self._mark()]
        if self._queued:
            queued, self._queued = self._queued, []
            return [*replies, *self._write_added(self.current, queued, now_ms)]
        return [*replies, *self._release()]

    def _write_failed(self, error: ErrorCode) -> list[Effect]:
        if self.writing is None:
            raise InvariantViolated("a transaction's record failed that nobody asked for")
        completing_failed = self.current is not None and self.current.state.preparing
        self.writing = None
        if completing_failed:  # a later tick repeats it; the decision stands, so the client need not know
            return self._release()
        replies = [*self._waiting, *self._completing]
        tokens = [reply.token for reply in replies] + [event.token for event in self._queued]
        self._waiting, self._completing, self._queued = [], [], []
        return [Reply(token, Outcome(error)) for token in tokens]

    def _tick(self, now_ms: int, expiration_ms: int) -> list[Effect]:
        current = self.current
        if current is None or self.writing is not None:
            return []
        if current.state.preparing:
            return [] if self._marking else self._mark()
        if current.state is State.ONGOING and current.started_ms + current.timeout_ms < now_ms:
            return self._fence(current, now_ms)
        if current.state.idle and current.updated_ms + expiration_ms <= now_ms:
            return self._write(replace(current, state=State.DEAD, partitions=frozenset(), updated_ms=now_ms))
        return []

    # -- parts

    @property
    def _adding(self) -> bool:
        return self.writing is not None and self.writing.state is State.ONGOING

    @property
    def _ending(self) -> bool:
        """Decided, or being decided: from here on nothing may join the transaction."""
        return self._known().state.preparing or (self.writing is not None and not self._adding)

    def _known(self) -> Metadata:
        if self.current is None:
            raise InvariantViolated("a transactional id was used before its first record was on disk")
        return self.current

    def _refuses_producer(self, producer_id: int, producer_epoch: int) -> Outcome | None:
        current = self.current
        if current is None or current.producer_id != producer_id:
            return _OTHER_ID
        return None if current.producer_epoch == producer_epoch else _FENCED

    def _write(self, metadata: Metadata, *replies: Reply) -> list[Effect]:
        if self.writing is not None:
            raise InvariantViolated("a transactional id has two records under way")
        self.writing = metadata
        self._waiting = list(replies)
        return [Write(metadata)]

    def _mark(self) -> list[Effect]:
        self._marking = True
        return [WriteMarkers(self._known())]

    def _release(self) -> list[Effect]:
        """Answer the EndTxn that waits for completion: it is complete, or decided and completing has to wait."""
        replies: list[Effect] = [*self._completing]
        self._completing = []
        return replies


def _may_continue(current: Metadata, producer_id: int, epoch: int) -> bool:
    """KIP-360: is this producer the one we know, or one that did not hear that it was given a new producer id?"""
    if current.producer_epoch == NO_EPOCH:
        return True
    if producer_id == current.producer_id:
        # Kafka aborts the open transaction of the *new* holder before it fences an old one; the old one's answer is
        # the same in the end, so it is given at once and does no damage.
        return current.state is not State.ONGOING or epoch >= current.producer_epoch
    return producer_id == current.previous_producer_id and epoch_exhausted(epoch)


def _next_identity(current: Metadata, expected: int | None, fresh_producer_id: int) -> Metadata | None:
    """Producer id and epoch for the next holder; None when `expected` shows that the asker was replaced by another."""
    epoch = current.producer_epoch
    if expected is not None and epoch not in (NO_EPOCH, expected):
        # A retry of a request whose answer was lost; at the last epoch of all there is nothing to repeat.
        if expected != current.last_epoch:
            return None
        if epoch < EPOCH_MAX:
            return current
    if not current.exhausted:
        return replace(current, producer_epoch=epoch + 1, last_epoch=NO_EPOCH if expected is None else epoch)
    return replace(
        current,
        producer_id=fresh_producer_id,
        previous_producer_id=current.producer_id,
        producer_epoch=0,
        last_epoch=NO_EPOCH if expected is None else epoch,
    )


def _decide_end(current: Metadata, event: EndTransaction) -> Outcome | Metadata:
    """The Prepare record that follows, or the answer that there is none."""
    if event.version < 2:
        return _decide_end_v0(current, event)
    return _decide_end_v2(current, event)


def _decide_end_v0(current: Metadata, event: EndTransaction) -> Outcome | Metadata:
    if current.producer_id != event.producer_id:
        return _OTHER_ID
    if current.producer_epoch != event.producer_epoch:
        return _FENCED
    if current.state is State.ONGOING:
        return replace(current, state=_prepared(event), version=event.version)
    decided, completed = _prepared(event), _completed(event)
    if current.state is completed:
        return Outcome(ErrorCode.NONE, current.producer_id, current.producer_epoch)
    return _CONCURRENT if current.state is decided else _WRONG_STATE


def _decide_end_v2(current: Metadata, event: EndTransaction) -> Outcome | Metadata:
    """The same epoch means a new request, the epoch before it a retry: each end has moved it on by one."""
    retry_of_rotation = (
        event.producer_id == current.previous_producer_id
        and epoch_exhausted(event.producer_epoch)
        and current.producer_epoch == 0
    )
    if current.producer_id != event.producer_id and not retry_of_rotation:
        return _OTHER_ID
    retry = retry_of_rotation or current.producer_epoch == event.producer_epoch + 1
    fresh = current.producer_id == event.producer_id and current.producer_epoch == event.producer_epoch
    if retry and current.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        same = current.state is _completed(event)
        return Outcome(ErrorCode.NONE, current.producer_id, current.producer_epoch) if same else _WRONG_STATE
    if retry and current.state.preparing:
        return _CONCURRENT if current.state is _prepared(event) else _WRONG_STATE
    if not fresh or current.state.preparing:
        return _FENCED
    if current.state is not State.ONGOING and event.commit:
        return _WRONG_STATE  # there is nothing to commit; aborting nothing is legal and still moves the epoch
    return replace(
        current,
        state=_prepared(event),
        producer_epoch=min(current.producer_epoch + 1, EPOCH_MAX),
        last_epoch=current.producer_epoch,
        next_producer_id=event.fresh_producer_id if current.exhausted else NO_PRODUCER_ID,
        version=event.version,
    )


def _prepared(event: EndTransaction) -> State:
    return State.PREPARE_COMMIT if event.commit else State.PREPARE_ABORT


def _completed(event: EndTransaction) -> State:
    return State.COMPLETE_COMMIT if event.commit else State.COMPLETE_ABORT
