"""The group coordinator at work: requests go to the state machine, what it says is stored, then answered.

    handler ── ask / commit ──▶ step of `Coordinator` ── Effects ──▶ append ──▶ apply ──▶ on disk ──▶ answers
                                       ▲                                                     │
                                       └──────────────── Stored, timers ◀────────────────────┘

Everything happens on the loop's thread. An answer without records of its own still waits for the group's records before
it: it may tell of what they changed. When the disk loses what was already applied, the coordinator starts anew from
the log, as it would on another broker of a cluster.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from headwater.broker.groups import commits
from headwater.broker.groups.classic_state import ClassicGroup
from headwater.broker.groups.commits import Committer
from headwater.broker.groups.consumer import GroupLimits
from headwater.broker.groups.coordinator import Coordinator
from headwater.broker.groups.effects import Answer, Caller, Effects, GroupError, Record, Token
from headwater.broker.groups.offsets import Commit, Place
from headwater.broker.groups.replay import replay
from headwater.broker.groups.settings import GroupSettings
from headwater.broker.groups.storing import GroupLog
from headwater.broker.groups.timers import NEVER, Now
from headwater.broker.groups.topics import TopicFacts
from headwater.broker.internal import CONSUMER_OFFSETS
from headwater.broker.promise import Promise, settled
from headwater.log.results import AppendRefused
from headwater.wire.errors import ErrorCode
from headwater.wire.fields import ZERO_UUID

if TYPE_CHECKING:
    from headwater.broker.call import Call
    from headwater.broker.cluster import Cluster
    from headwater.broker.loop import Timer
    from headwater.broker.services import Services
    from headwater.broker.topics import Topic
    from headwater.log.results import Appended

__all__ = ["GroupDriver", "caller_of", "driver_of", "start"]

CLEANUP_GROUPS_PER_TURN = 200  # groups looked at before other callbacks get their turn: about a millisecond

Step = Callable[[Token, Now], Effects]

_log = logging.getLogger("headwater.broker")


def start(services: Services) -> GroupDriver:
    """Read the log and take over; the broker does so before it serves the first client, or at the first request."""
    return GroupDriver(services)


def driver_of(call: Call) -> GroupDriver:
    """The coordinator a handler talks to."""
    return cast("GroupDriver", call.broker.groups)


def caller_of(call: Call) -> Caller:
    """The host is written as Kafka writes it, with a slash."""
    return Caller(call.header.client_id or "", f"/{call.peer.host}", call.header.api_version)


class GroupDriver:
    """What handlers and the rest of the broker ask of the group coordinator."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loop = services.loop
        self.topics = ClusterTopics(services.cluster)
        self._group_log = GroupLog(services, self._applied, self._lost)
        self._unstored: dict[str, Promise[Appended]] = {}  # by group: its last append that is not on disk yet
        self._due: list[tuple[float, str]] = []  # a heap of (when to look, group); stale entries are skipped
        self._looks: dict[str, float] = {}  # the entry of each group that counts
        self._timer: Timer | None = None
        self._cleanup: Timer | None = None
        self._closed = False
        self._restarting = False
        self.coordinator = self._load()
        services.cluster.watch(lambda _: self.coordinator.topics_changed())
        self._schedule_cleanup()

    # -- requests

    def ask(self, group_id: str, step: Step) -> Any:
        """Let the coordinator make a step; its answer, or a promise of it."""
        promise: Promise[Any] = Promise()
        self._carry(group_id, step(promise, self._now()))
        return promise.result() if promise.done else promise

    def read(self, group_id: str, question: Callable[[], Any]) -> Any:
        """An answer about a group as it is on disk: now, or when it is."""
        unstored = self._unstored.get(group_id)
        if unstored is None:
            return question()
        promise: Promise[Any] = Promise()
        unstored.then(lambda _: promise.resolve(question()))
        return promise

    def store(self, group_id: str, records: list[Record]) -> Promise[ErrorCode]:
        """Records that need no answer of a machine (deletions): applied at once; the code when they are on disk."""
        code: Promise[ErrorCode] = Promise()
        stored = self._group_log.append(group_id, records)
        if stored.error is None:
            self._applied(records)
            self._expect(group_id, stored)
        stored.then(lambda done: code.resolve(_code_of(done)))
        return code

    def delete_group(self, group_id: str) -> Promise[ErrorCode]:
        """Remove a group without members, and its offsets."""
        try:
            records = commits.delete_group(self.coordinator, group_id)
        except GroupError as error:
            return settled(error.code)
        self.coordinator.offsets.drop_pending(group_id)
        return self.store(group_id, records)

    # -- offsets

    def commit(self, group_id: str, places: Iterable[tuple[Place, Commit]]) -> Promise[ErrorCode]:
        """Committed offsets, together with those of others of this turn; the code when they are on disk."""
        records = [commits.commit_record(group_id, place, commit) for place, commit in places]
        code: Promise[ErrorCode] = Promise()
        stored = self._group_log.append_shared(group_id, records)
        if not stored.done:
            self._expect(group_id, stored)
        stored.then(lambda done: code.resolve(_commit_code_of(done)))
        return code

    def commit_pending(
        self, producer_id: int, producer_epoch: int, group_id: str, places: Iterable[tuple[Place, Commit]]
    ) -> Promise[ErrorCode]:
        """Offsets of an open transaction: they count when its marker says so (`transaction_ended`)."""
        listed = list(places)
        records = [commits.commit_record(group_id, place, commit) for place, commit in listed]
        code: Promise[ErrorCode] = Promise()
        stored = self._group_log.append(group_id, records, (producer_id, producer_epoch))
        if stored.error is None:
            self.coordinator.ensure_group(group_id)
            partition = self._group_log.partition_of(group_id)
            for place, commit in listed:
                self.coordinator.offsets.put_pending(partition, producer_id, group_id, place, commit)
            self._expect(group_id, stored)
        stored.then(lambda done: code.resolve(_commit_code_of(done)))
        return code

    def check_commit(self, who: Committer) -> commits.Refuse | None:
        """Raises GroupError; what is returned refuses single partitions."""
        return commits.check_commit(self.coordinator, who, self._now())

    def topic_id(self, name: str) -> UUID:
        facts = self.topics.by_name(name)
        return ZERO_UUID if facts is None else facts.topic_id

    # -- what the rest of the broker asks (`services.Groups`)

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """Their offsets go with them."""
        for group_id, gone in commits.drop_topics(self.coordinator, topics).items():
            self.store(group_id, gone)

    def transaction_ended(self, partition: int, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        self.coordinator.offsets.end_transaction(partition, producer_id, committed=committed)

    def committed_offsets(self) -> Iterator[tuple[str, str, int, int]]:
        for group_id, (topic, partition), commit in self.coordinator.offsets:
            yield group_id, topic, partition, commit.offset

    def close(self) -> None:
        """Everybody who waits for a rebalance is sent elsewhere; nothing is appended any more."""
        self._closed = True
        for timer in (self._timer, self._cleanup):
            if timer is not None:
                timer.cancel()
        self._send_everybody_away()

    # -- carrying out what a step says

    def _carry(self, group_id: str, effects: Effects) -> None:
        if self._closed and effects.records:
            self._refuse(group_id, effects, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif effects.records:
            self._store_step(group_id, effects)
        else:
            self.coordinator.carry(group_id, effects)
            self._answer_after(self._unstored.get(group_id), effects.answers)
        self._watch_deadlines(group_id)

    def _store_step(self, group_id: str, effects: Effects) -> None:
        stored = self._group_log.append(group_id, effects.records)
        if stored.error is not None:
            self._refuse(group_id, effects, _code_of(stored))
            return
        self.coordinator.carry(group_id, effects)
        self._expect(group_id, stored)
        stored.then(lambda done: self._stored(group_id, effects, done))

    def _stored(self, group_id: str, effects: Effects, stored: Promise[Appended]) -> None:
        if stored.error is not None:
            self._refuse(group_id, effects, _code_of(stored))
            return
        _deliver(effects.answers)
        for event in effects.stored:
            self._carry(group_id, self.coordinator.stored(event, self._now()))

    def _refuse(self, group_id: str, effects: Effects, code: ErrorCode) -> None:
        """The step's records are not in the log: whoever waits for them is told, and a rebalance goes back a step."""
        _deliver(Answer(answer.token, _error_like(answer.response, code)) for answer in effects.answers)
        for event in effects.stored:
            self._carry(group_id, self.coordinator.refused(event, code, self._now()))

    def _answer_after(self, unstored: Promise[Appended] | None, answers: list[Answer]) -> None:
        if unstored is None or not answers:
            _deliver(answers)
            return

        def settled(stored: Promise[Appended]) -> None:
            code = _code_of(stored)
            if code is ErrorCode.NONE:
                _deliver(answers)
            else:
                _deliver(Answer(answer.token, _error_like(answer.response, code)) for answer in answers)

        unstored.then(settled)

    def _expect(self, group_id: str, stored: Promise[Appended]) -> None:
        """Answers about the group wait from now on until this is on disk."""
        self._unstored[group_id] = stored

        def settled(_: Promise[Appended]) -> None:
            if self._unstored.get(group_id) is stored:
                del self._unstored[group_id]

        stored.then(settled)

    def _applied(self, records: Iterable[Record]) -> None:
        for record in records:
            self.coordinator.replay(record)

    # -- the log

    def _load(self) -> Coordinator:
        config = self._services.config
        coordinator = Coordinator(GroupSettings.read(config.get), self.topics, self._limits)
        replay(coordinator, self._services.internal.replay(CONSUMER_OFFSETS))
        coordinator.restored(self._now())
        for group_id in coordinator.groups:
            self._watch_deadlines(group_id, coordinator)
        self._loop.call_soon(self._drop_orphans)
        return coordinator

    def _drop_orphans(self) -> None:
        """Offsets of topics that were deleted when nobody could write it down, or deleted and created anew."""
        gone: dict[str, list[Record]] = {}
        for group_id, place, commit in self.coordinator.offsets:
            topic_id = self.topic_id(place[0])
            if topic_id == ZERO_UUID or commit.topic_id not in (ZERO_UUID, topic_id):
                gone.setdefault(group_id, []).append(commits.offset_gone(group_id, place))
        for group_id, records in gone.items():
            if not self._closed:
                self.store(group_id, records)

    def _lost(self) -> None:
        if not self._restarting and not self._closed:
            self._restarting = True
            self._loop.call_soon(self._restart)

    def _restart(self) -> None:
        self._restarting = False
        if self._closed:
            return
        _log.warning("group coordinator: the log lost records, starting anew from what it has")
        self._send_everybody_away()
        self._unstored.clear()
        self._looks.clear()
        self._due.clear()
        self.coordinator = self._load()

    def _send_everybody_away(self) -> None:
        for group in self.coordinator.groups.values():
            if isinstance(group, ClassicGroup):
                _deliver(self.coordinator.classic(group).disband(ErrorCode.COORDINATOR_NOT_AVAILABLE).answers)

    def _limits(self, group_id: str) -> GroupLimits:
        number = self._services.group_config
        return GroupLimits(
            int(number(group_id, "consumer.session.timeout.ms")),  # type: ignore[arg-type]
            int(number(group_id, "consumer.heartbeat.interval.ms")),  # type: ignore[arg-type]
            self._services.config.number("group.consumer.max.size"),
        )

    # -- time

    def _now(self) -> Now:
        return Now(self._loop.now_ms(), self._loop.monotonic_ms())

    def _watch_deadlines(self, group_id: str, coordinator: Coordinator | None = None) -> None:
        """Look at the group when its earliest deadline comes; often that look is only a correction (see `Timers`)."""
        timers = (coordinator or self.coordinator).timers(group_id)
        if timers is None or timers.earliest >= self._looks.get(group_id, NEVER):
            return
        self._looks[group_id] = timers.earliest
        heapq.heappush(self._due, (timers.earliest, group_id))
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._due or self._closed:
            return
        at = self._due[0][0]
        if self._timer is not None:
            if self._timer.at_ms <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, at - self._loop.monotonic_ms()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._now()
        while self._due and self._due[0][0] <= now.mono_ms:
            at, group_id = heapq.heappop(self._due)
            if self._looks.get(group_id) != at:
                continue
            del self._looks[group_id]
            for effects in self.coordinator.expire(group_id, now):
                self._carry(group_id, effects)
            self._watch_deadlines(group_id)
        self._set_timer()

    # -- what nobody needs any more

    def _schedule_cleanup(self) -> None:
        interval_ms = self.coordinator.settings.offsets_retention_check_interval_ms
        self._cleanup = self._loop.call_later(interval_ms, self._forget_expired, None)

    def _forget_expired(self, rest: list[str] | None) -> None:
        """Offsets past their retention and groups without anything, some groups a turn."""
        if self._closed:
            return
        rest = list(self.coordinator.groups) if rest is None else rest
        now = self._now()
        for group_id in rest[:CLEANUP_GROUPS_PER_TURN]:
            if group_id in self.coordinator.groups and group_id not in self._unstored:
                records = commits.forget_expired(self.coordinator, group_id, now)
                if records:
                    self.store(group_id, records)
        rest = rest[CLEANUP_GROUPS_PER_TURN:]
        if rest:
            self._loop.call_soon(self._forget_expired, rest)
        else:
            self._schedule_cleanup()


class ClusterTopics:
    """The cluster's topics as the machines see them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def by_name(self, name: str) -> TopicFacts | None:
        return _facts(self._cluster.topic(name))

    def by_id(self, topic_id: UUID) -> TopicFacts | None:
        return _facts(self._cluster.topic_by_id(topic_id))

    def names(self) -> Iterator[str]:
        return iter(self._cluster.topics)


def _facts(topic: Topic | None) -> TopicFacts | None:
    return None if topic is None else TopicFacts(topic.name, topic.id, topic.partitions)


def _deliver(answers: Iterable[Answer]) -> None:
    for answer in answers:
        if not answer.token.done:  # a client may be told twice that its member is gone; the first counts
            answer.token.resolve(answer.response)


def _error_like(response: Any, code: ErrorCode) -> Any:
    """The same kind of response with nothing but the error: every response of a group's members has a place for it."""
    return type(response)(error_code=code)


def _code_of(stored: Promise[Appended]) -> ErrorCode:
    """What Kafka says when group metadata cannot be appended: find the coordinator (again), then retry."""
    refused = stored.error
    if refused is None:
        return ErrorCode.NONE
    code = refused.code if isinstance(refused, AppendRefused) else ErrorCode.UNKNOWN_SERVER_ERROR
    if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        return ErrorCode.NOT_COORDINATOR
    if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _commit_code_of(stored: Promise[Appended]) -> ErrorCode:
    refused = stored.error
    if isinstance(refused, AppendRefused) and refused.code in (
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    ):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return _code_of(stored)
