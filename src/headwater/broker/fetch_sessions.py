"""Fetch sessions (KIP-227): the partitions a client follows are remembered, so that a request names only what changed.

A session also remembers which of its partitions may have something to say (`ready`): those the request touched, those
whose high watermark moved, those whose last answer was not exhausted. So a fetch over a thousand quiet partitions
looks at none of them. Sessionless fetches use the same object for the length of one request.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from headwater.wire.errors import ErrorCode
from headwater.wire.messages.fetch import FetchPartition, FetchRequest

if TYPE_CHECKING:
    from headwater.broker.partitions import Partition
    from headwater.broker.services import Services

__all__ = ["FollowedPartition", "Session", "SessionRefused", "Sessions"]

EVICTABLE_AFTER_MS = 120_000  # a session that was not used for so long may make room for a new one
NO_SESSION = 0
FINAL_EPOCH = -1
FIRST_EPOCH = 0
EPOCH_MAX = (1 << 31) - 1

TopicKey = str | UUID


class SessionRefused(Exception):
    """The whole Fetch is answered with this code; the client begins a new session."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class FollowedPartition:
    """One partition of a session: where the client is, and what it was told last."""

    __slots__ = (
        "_session",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "max_bytes",
        "partition",
        "told_high_watermark",
        "told_log_start",
        "topic_key",
        "unknown",
    )

    def __init__(self, session: Session, topic_key: TopicKey, index: int) -> None:
        self._session = session
        self.topic_key = topic_key
        self.index = index
        self.partition: Partition | None = None
        self.unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.told_high_watermark = -1
        self.told_log_start = -1

    def update(self, wanted: FetchPartition) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.partition_max_bytes
        self.leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch

    def resolve(self, broker: Services) -> None:
        """Find the partition (again, if it was not there), and follow it."""
        key = self.topic_key
        if isinstance(key, UUID):
            topic = broker.cluster.topic_by_id(key)
            found = None if topic is None else broker.logs.partition(topic.name, self.index)
            self.unknown = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            found = broker.logs.partition(key, self.index)
        if found is not self.partition:
            self.unfollow()
            self.partition = found
            if found is not None and self._session.follows:
                found.watchers.add(self.advanced)

    def advanced(self, _: Partition) -> None:
        self._session.note_ready(self)

    def follow(self) -> None:
        if self.partition is not None:
            self.partition.watchers.add(self.advanced)

    def unfollow(self) -> None:
        if self.partition is not None:
            self.partition.watchers.discard(self.advanced)


class Session:
    """`id` 0 is a session of one request. `woken` is called when a partition becomes ready while a fetch waits."""

    __slots__ = ("by_id", "epoch", "follows", "id", "last_used_ms", "owner", "partitions", "ready", "woken")

    def __init__(self, session_id: int, owner: int, *, by_id: bool) -> None:
        self.id = session_id
        self.owner = owner  # the connection that made it
        self.by_id = by_id
        self.epoch = 1
        self.follows = session_id != NO_SESSION
        self.last_used_ms = 0.0
        self.partitions: dict[tuple[TopicKey, int], FollowedPartition] = {}
        self.ready: dict[FollowedPartition, None] = {}  # in the order in which they are served
        self.woken: Callable[[], object] | None = None

    def update(self, broker: Services, request: FetchRequest) -> None:
        """Take over the partitions the request names, and forget those it wants forgotten."""
        for topic in request.topics:
            key: TopicKey = topic.topic_id if self.by_id else topic.topic
            for wanted in topic.partitions:
                followed = self.partitions.get((key, wanted.partition))
                if followed is None:
                    followed = FollowedPartition(self, key, wanted.partition)
                    self.partitions[key, wanted.partition] = followed
                followed.update(wanted)
                followed.resolve(broker)
                self.ready[followed] = None
        for forgotten in request.forgotten_topics_data:
            key = forgotten.topic_id if self.by_id else forgotten.topic
            for index in forgotten.partitions:
                followed = self.partitions.pop((key, index), None)
                if followed is not None:
                    self.ready.pop(followed, None)
                    followed.unfollow()

    def note_ready(self, followed: FollowedPartition) -> None:
        self.ready[followed] = None
        if self.woken is not None:
            self.woken()

    def follow_all(self) -> None:
        """A sessionless fetch starts to wait: from now on it is told about its partitions."""
        if not self.follows:
            self.follows = True
            for followed in self.partitions.values():
                followed.follow()

    def unfollow_all(self) -> None:
        self.follows = False
        for followed in self.partitions.values():
            followed.unfollow()


class Sessions:
    """The sessions kept, at most `max.incremental.fetch.session.cache.slots`."""

    def __init__(self, broker: Services) -> None:
        self._broker = broker
        self._slots = broker.config.number("max.incremental.fetch.session.cache.slots")
        self._sessions: dict[int, Session] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, connection_id: int, *, by_id: bool, versioned: bool) -> tuple[Session, bool]:
        """The request's session, updated, and whether the answer holds changes only. SessionRefused says why not."""
        epoch, session_id = request.session_epoch, request.session_id
        if not versioned or epoch in (FINAL_EPOCH, FIRST_EPOCH):
            if versioned and session_id != NO_SESSION:
                self._remove(session_id)
            fresh = self._new(connection_id, by_id=by_id) if versioned and epoch == FIRST_EPOCH else None
            session = fresh or Session(NO_SESSION, connection_id, by_id=by_id)
            session.update(self._broker, request)
            return session, False
        session = self._continued(session_id, epoch, by_id=by_id)
        session.update(self._broker, request)
        return session, True

    def _continued(self, session_id: int, epoch: int, *, by_id: bool) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionRefused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.by_id != by_id:
            raise SessionRefused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != epoch:
            raise SessionRefused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = self._broker.loop.monotonic_ms()
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def _new(self, connection_id: int, *, by_id: bool) -> Session | None:
        """A session if there is room or one that is long unused; else None, and the client fetches without."""
        now_ms = self._broker.loop.monotonic_ms()
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms < EVICTABLE_AFTER_MS:
                return None
            self._remove(oldest.id)
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = random.randrange(1, 1 << 31)
        session = Session(session_id, connection_id, by_id=by_id)
        session.last_used_ms = now_ms
        self._sessions[session_id] = session
        return session

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.unfollow_all()
