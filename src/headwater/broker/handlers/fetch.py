"""Fetch 4-18: whole batches as regions of segment files; waits, without polling, until there is enough.

Isolation: committed readers see up to the last stable offset and get the list of aborted transactions to skip.
`min_bytes`, `max_bytes` and the partitions' own bounds are kept as Kafka keeps them: the first batch comes whatever
its size. A partition answers with the batch that contains the offset asked for, so records before it are the client's
to skip.

Not supported: replicas that fetch (replica_id and replica_state are ignored), preferred read replicas (there is one).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.call import Call
from headwater.broker.fetch_sessions import NO_SESSION, FollowedPartition, Session, SessionRefused, TopicKey
from headwater.broker.promise import Promise
from headwater.broker.quotas import CONSUMER
from headwater.errors import Corrupted
from headwater.log.results import OffsetOutOfRange, StorageFailed
from headwater.wire.errors import ErrorCode
from headwater.wire.fields import ZERO_UUID, Payload
from headwater.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from headwater.log.results import Slice

__all__ = ["API_KEY", "handle"]

API_KEY = 1

READ_COMMITTED = 1
SENDFILE_BYTES_MIN = 1 << 15  # bytes: below, a copy through memory is cheaper than a system call of its own (measured)
NOTHING: Payload = b""


def handle(call: Call, request: FetchRequest) -> FetchResponse | Awaitable[FetchResponse]:
    version = call.header.api_version
    sessions = call.broker.fetch_sessions
    try:
        session, changes_only = sessions.begin(request, call.peer.id, by_id=version >= 13, versioned=version >= 7)
    except SessionRefused as refusal:
        return FetchResponse(error_code=refusal.code)
    attempt = _Attempt(call, request, session, changes_only=changes_only)
    attempt.read()
    if attempt.enough or request.max_wait_ms <= 0 or not session.partitions:
        return attempt.response()
    return _wait(call, request, attempt)


def _wait(call: Call, request: FetchRequest, attempt: _Attempt) -> Promise[FetchResponse]:
    """Answer when a partition has more (read once a round of the loop), or when the client's patience ends."""
    promise: Promise[FetchResponse] = Promise()
    loop = call.broker.loop
    session = attempt.session
    scheduled = False

    def finish() -> None:
        timer.cancel()
        call.peer.abandoned = None
        if session.woken is woken:
            session.woken = None
        if session.id == NO_SESSION:
            session.unfollow_all()
        promise.resolve(attempt.response())

    def look() -> None:
        nonlocal scheduled
        scheduled = False
        if promise.done:
            return
        attempt.read()
        if attempt.enough:
            finish()

    def woken() -> None:
        nonlocal scheduled
        if not scheduled:
            scheduled = True
            loop.call_soon(look)

    def patience_ends() -> None:
        if not promise.done:
            finish()

    timer = loop.call_later(request.max_wait_ms, patience_ends)
    session.woken = woken
    session.follow_all()
    call.peer.abandoned = patience_ends
    return promise


class _Attempt:
    """What one request would be answered if it were answered now."""

    __slots__ = ("_bytes", "_call", "_changes_only", "_committed", "_found", "_request", "_room", "enough", "session")

    def __init__(self, call: Call, request: FetchRequest, session: Session, *, changes_only: bool) -> None:
        self.session = session
        self.enough = False
        self._call = call
        self._request = request
        self._changes_only = changes_only
        self._committed = request.isolation_level == READ_COMMITTED
        self._found: dict[FollowedPartition, PartitionData] = {}
        self._bytes = 0
        self._room = 0

    def read(self) -> None:
        """Look at every partition that may have something, in turn, until the response is full."""
        call, session = self._call, self.session
        self._bytes = 0
        self._room = min(self._request.max_bytes, call.broker.config.number("fetch.max.bytes"))
        self._found.clear()
        failed = False
        for followed in list(session.ready):
            if self._room <= 0 and self._bytes:
                break
            answer = self._read_one(followed)
            if answer.error_code:
                failed = True
            elif answer.records is NOTHING:
                del session.ready[followed]  # exhausted: it is noted again when it advances
                if self._changes_only and not self._news(followed, answer):
                    continue
            self._found[followed] = answer
        self.enough = failed or self._bytes >= self._request.min_bytes

    def response(self) -> FetchResponse:
        call, session = self._call, self.session
        topics: dict[TopicKey, list[PartitionData]] = {}
        found = self._found
        every = session.partitions.values() if not self._changes_only else found
        for followed in every:
            answer = found.get(followed) or self._quiet(followed)
            topics.setdefault(followed.topic_key, []).append(answer)
            followed.told_high_watermark = answer.high_watermark
            followed.told_log_start = answer.log_start_offset
            if answer.records is not NOTHING and followed in session.ready:
                session.ready[followed] = session.ready.pop(followed)  # others first next time
        throttled_ms = call.broker.quotas.charge_bytes(
            CONSUMER, call.peer.principal, call.header.client_id, self._bytes
        )
        return FetchResponse(
            throttle_time_ms=throttled_ms,
            session_id=session.id,
            responses=tuple(_topic(key, answers) for key, answers in topics.items()),
        )

    def _news(self, followed: FollowedPartition, answer: PartitionData) -> bool:
        """Whether a partition without records has something that the client was not told yet."""
        return (
            answer.high_watermark != followed.told_high_watermark or answer.log_start_offset != followed.told_log_start
        )

    def _quiet(self, followed: FollowedPartition) -> PartitionData:
        """A partition that was not looked at again while the request waited."""
        room, self._room = self._room, 0
        answer = self._read_one(followed)
        self._room = room
        return answer

    def _read_one(self, followed: FollowedPartition) -> PartitionData:
        partition = followed.partition
        if partition is None or partition.gone:
            followed.resolve(self._call.broker)
            partition = followed.partition
            if partition is None:
                return _failed(followed, followed.unknown)
        epoch = followed.leader_epoch
        if epoch >= 0 and epoch != partition.leader_epoch:
            older = epoch < partition.leader_epoch
            return _failed(followed, ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)
        try:
            if followed.last_fetched_epoch >= 0:
                diverged = _divergence(followed)
                if diverged is not None:
                    return diverged
            found = partition.log.read(
                followed.fetch_offset,
                min(followed.max_bytes, self._room),
                committed=self._committed,
                at_least_one=self._bytes == 0 and self._room > 0,
            )
        except OffsetOutOfRange:
            return _failed(followed, ErrorCode.OFFSET_OUT_OF_RANGE)
        except (StorageFailed, Corrupted) as error:
            # Clients tell their users of corruption; a storage error they would try again for ever.
            damaged = isinstance(error, Corrupted)
            code = ErrorCode.CORRUPT_MESSAGE if damaged else ErrorCode.KAFKA_STORAGE_ERROR
            self._call.broker.metrics.error(code.name)
            return _failed(followed, code)
        return self._take(followed, found)

    def _take(self, followed: FollowedPartition, found: Slice) -> PartitionData:
        size = found.records.length
        records: Payload = NOTHING
        if size:
            self._bytes += size
            self._room -= size
            self._call.broker.metrics.bytes_out[followed.partition.topic] += size  # type: ignore[union-attr]
            records = found.records.read() if size < SENDFILE_BYTES_MIN else found.records
        aborted = None
        if self._committed:
            aborted = tuple(AbortedTransaction(producer_id=who, first_offset=first) for who, first in found.aborted)
        return PartitionData(
            partition_index=followed.index,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            aborted_transactions=aborted,
            records=records,
        )


def _divergence(followed: FollowedPartition) -> PartitionData | None:
    """Where the client's log parts from ours, if the epoch of its last record ended earlier here (KIP-595)."""
    assert followed.partition is not None
    log = followed.partition.log
    epoch, end = log.end_of_epoch(followed.last_fetched_epoch)
    if epoch == followed.last_fetched_epoch and end >= followed.fetch_offset:
        return None
    return PartitionData(
        partition_index=followed.index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end),
        records=NOTHING,
    )


def _failed(followed: FollowedPartition, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=followed.index, error_code=code, high_watermark=-1, aborted_transactions=None, records=NOTHING
    )


def _topic(key: TopicKey, answers: list[PartitionData]) -> FetchableTopicResponse:
    if isinstance(key, str):
        return FetchableTopicResponse(topic=key, topic_id=ZERO_UUID, partitions=tuple(answers))
    return FetchableTopicResponse(topic="", topic_id=key, partitions=tuple(answers))
