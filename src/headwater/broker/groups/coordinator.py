"""All groups of this broker as one pure state machine: requests, time and stored records in, `Effects` out.

It finds the group, picks the protocol's machine, and turns refusals into the responses that Kafka gives. Groups appear
and vanish by their records (`replay`), in normal operation as after a restart; only the classic protocol's rebalances
live outside the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.broker.groups import migration, records
from headwater.broker.groups.classic import ClassicMachine, join_refused
from headwater.broker.groups.classic_state import ClassicGroup, State
from headwater.broker.groups.consumer import REBALANCE, SESSION, ConsumerMachine, Draft, GroupLimits, refuse_invalid
from headwater.broker.groups.consumer_state import ConsumerGroup, MemberState
from headwater.broker.groups.effects import Caller, Effects, GroupError, Record, Stored, Token
from headwater.broker.groups.offsets import Commit, OffsetStore
from headwater.broker.groups.settings import GroupSettings
from headwater.broker.groups.timers import NEVER, Now, Timers
from headwater.broker.groups.topics import Topics
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headwater.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.wire.messages.join_group import JoinGroupRequest
from headwater.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from headwater.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from headwater.wire.records import groups as wire

__all__ = ["Coordinator", "Group"]

Group = ClassicGroup | ConsumerGroup


class Coordinator:
    """Not thread-safe, no I/O. Whoever calls a step carries out its effects before the next step (see `driver`)."""

    def __init__(self, settings: GroupSettings, topics: Topics, limits: Callable[[str], GroupLimits]) -> None:
        self.settings = settings
        self.topics = topics
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self._limits = limits

    # -- the classic protocol's requests

    def join(self, request: JoinGroupRequest, caller: Caller, token: Token, now: Now) -> Effects:
        try:
            self._refuse_join(request)
            group = self.groups.get(request.group_id)
            if isinstance(group, ConsumerGroup):
                if group.members:
                    return migration.join(self.consumer(group), group, request, caller, token, now)
                return self._join_instead_of(group, request, caller, token, now)
            if group is None:
                if request.member_id:
                    raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
                group = ClassicGroup(request.group_id)
                effects = self.classic(group).join(request, caller, token, now)
                self.groups[request.group_id] = group
                return effects
            return self.classic(group).join(request, caller, token, now)
        except GroupError as error:
            return Effects().answer(token, join_refused(error.code, request.member_id))

    def _refuse_join(self, request: JoinGroupRequest) -> None:
        if not request.group_id:
            raise GroupError(ErrorCode.INVALID_GROUP_ID)
        limits = self.settings
        if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
            raise GroupError(ErrorCode.INVALID_SESSION_TIMEOUT)

    def _join_instead_of(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, token: Token, now: Now
    ) -> Effects:
        """A classic member comes to an empty consumer group: that one makes room for a classic group."""
        if request.member_id:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
        successor = ClassicGroup(request.group_id)
        effects = Effects(records=records.consumer_gone(group))
        effects.add(self.classic(successor).join(request, caller, token, now))
        self.groups[request.group_id] = successor
        return effects

    def sync(self, request: SyncGroupRequest, token: Token, now: Now) -> Effects:
        try:
            group = self._group_of_member(request.group_id)
            if isinstance(group, ConsumerGroup):
                return migration.sync(self.consumer(group), group, request, token, now)
            return self.classic(group).sync(request, token, now)
        except GroupError as error:
            return Effects().answer(token, SyncGroupResponse(error_code=error.code))

    def heartbeat(self, request: HeartbeatRequest, token: Token, now: Now) -> Effects:
        try:
            group = self._group_of_member(request.group_id)
            if isinstance(group, ConsumerGroup):
                return migration.heartbeat(group, request, token, now)
            instance_id, generation = request.group_instance_id, request.generation_id
            code = self.classic(group).heartbeat(request.member_id, instance_id, generation, now)
        except GroupError as error:
            code = error.code
        return Effects().answer(token, HeartbeatResponse(error_code=code))

    def leave(self, request: LeaveGroupRequest, token: Token, now: Now) -> Effects:
        try:
            group = self._group_of_member(request.group_id)
            if isinstance(group, ConsumerGroup):
                effects = migration.leave(self.consumer(group), group, request, token)
                return self._maybe_downgrade(group, effects, now)
            return self.classic(group).leave(request, token, now)
        except GroupError as error:
            return Effects().answer(token, _leave_refused(request, error.code))

    def _group_of_member(self, group_id: str) -> Group:
        if not group_id:
            raise GroupError(ErrorCode.INVALID_GROUP_ID)
        group = self.groups.get(group_id)
        if group is None:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # -- the consumer protocol's heartbeat

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, token: Token, now: Now
    ) -> Effects:
        try:
            refuse_invalid(request, caller.api_version)
            if request.member_epoch >= 0:
                group, before = self._consumer_group(request)
                return before.add(self.consumer(group).heartbeat(request, caller, token, now))
            group = self._existing_consumer_group(request.group_id)
            return self._maybe_downgrade(group, self.consumer(group).leave(request, token), now)
        except GroupError as error:
            response = ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
            return Effects().answer(token, response)

    def _consumer_group(self, request: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, Effects]:
        """The group, and what has to happen before a member joins it: a classic group of that name makes room."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group, Effects()
        if request.member_epoch != 0:
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
        if group is None:
            return ConsumerGroup(request.group_id), Effects()
        if group.state is State.EMPTY:
            gone = [records.classic_gone(group.group_id)] if group.protocol_type is not None else []
            effects = self.classic(group).disband(ErrorCode.REBALANCE_IN_PROGRESS)
            effects.records += gone
            return ConsumerGroup(request.group_id), effects
        upgraded = migration.upgrade(group, self.settings, self.topics)
        effects = self.classic(group).disband(ErrorCode.REBALANCE_IN_PROGRESS)
        effects.records += [records.classic_gone(group.group_id), *records.consumer_records(upgraded)]
        return upgraded, effects

    def _existing_consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        return group

    def _maybe_downgrade(self, group: ConsumerGroup, effects: Effects, now: Now) -> Effects:
        """The last member of the new protocol leaves, classic ones remain: back to a classic group, if allowed."""
        draft = Draft(group)
        draft.write(*effects.records)
        remaining = draft.group
        if not migration.can_downgrade(remaining, self.settings):
            return effects
        classic = migration.downgrade(remaining, self.topics, now)
        machine = self.classic(classic)
        machine.restore_timers(now)
        effects.records = [*records.consumer_gone(group), records.classic_group(classic)]
        effects.deadlines.clear()
        effects.apply = False  # the classic group is more than its record: it takes its place here
        self.groups[group.group_id] = classic
        return effects.add(machine.rebalance(now))

    # -- time

    def timers(self, group_id: str) -> Timers | None:
        group = self.groups.get(group_id)
        return group.timers if group is not None else None

    def next_deadline(self) -> float:
        """When (monotonic ms) something may have to be fired; infinity when there is nothing."""
        return min((group.timers.earliest for group in self.groups.values()), default=NEVER)

    def expire(self, group_id: str, now: Now) -> Iterator[Effects]:
        """Fire what is due in one group; each effect is carried out before the next is asked for."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            yield self.classic(group).expire(now)
        elif group is not None:
            for kind, member_id in group.timers.due(now.mono_ms):
                current = self.groups.get(group_id)
                if isinstance(current, ConsumerGroup):
                    yield self._expire_member(current, kind, member_id, now)

    def _expire_member(self, group: ConsumerGroup, kind: str, member_id: str, now: Now) -> Effects:
        machine = self.consumer(group)
        # Else it is the session, or a classic client that did not join or sync in time.
        effects = machine.rebalance_overdue(member_id) if kind == REBALANCE else machine.fence(member_id)
        return self._maybe_downgrade(group, effects, now) if effects.records else effects

    # -- what the log says

    def stored(self, event: Stored, now: Now) -> Effects:
        group = self.groups.get(event.group_id)
        return self.classic(group).stored(event, now) if isinstance(group, ClassicGroup) else Effects()

    def refused(self, event: Stored, code: ErrorCode, now: Now) -> Effects:
        group = self.groups.get(event.group_id)
        return self.classic(group).refused(event, code, now) if isinstance(group, ClassicGroup) else Effects()

    def carry(self, group_id: str, effects: Effects) -> None:
        """The records of a step are in the log: let them be so, and set the deadlines that come with them."""
        if effects.apply:
            for record in effects.records:
                self.replay(record)
        timers = self.timers(group_id)
        if timers is not None:
            for deadline in effects.deadlines:
                if deadline.at_mono_ms is None:
                    timers.cancel(deadline.kind, deadline.member_id)
                else:
                    timers.set(deadline.kind, deadline.member_id, deadline.at_mono_ms)

    def replay(self, record: Record) -> None:
        """One record, in the order of the log."""
        key, value = record.key, record.value
        if isinstance(key, wire.OffsetCommitKey):
            self._replay_offset(key, value)
        elif isinstance(key, wire.GroupMetadataKey):
            self._replay_classic(key, value)
        elif isinstance(key, records.CONSUMER_KEYS):
            self._replay_consumer(record)

    def _replay_offset(self, key: wire.OffsetCommitKey, value: wire.OffsetCommitValue | None) -> None:
        place = (key.topic, key.partition)
        if value is None:
            self.offsets.remove(key.group, place)
        else:
            self.ensure_group(key.group)
            self.offsets.put(key.group, place, commit_of(value))

    def ensure_group(self, group_id: str) -> None:
        """Offsets without members make a group too: an empty one of no protocol."""
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id)

    def _replay_classic(self, key: wire.GroupMetadataKey, value: wire.GroupMetadataValue | None) -> None:
        known = self.groups.get(key.group)
        if value is not None:
            self.groups[key.group] = records.classic_from(key.group, value)
        elif isinstance(known, ClassicGroup):
            known.state = State.DEAD
            del self.groups[key.group]

    def _replay_consumer(self, record: Record) -> None:
        group_id = record.key.group_id
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            group = self.groups[group_id] = ConsumerGroup(group_id)
        records.apply(group, record)
        if record.value is None and isinstance(record.key, wire.ConsumerGroupMetadataKey):
            del self.groups[group_id]

    def restored(self, now: Now) -> None:
        """The log has been read: every member has a whole session to be heard of."""
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                self.classic(group).restore_timers(now)
            else:
                self._restore_timers(group, now)

    def _restore_timers(self, group: ConsumerGroup, now: Now) -> None:
        session_ms = self._limits(group.group_id).session_timeout_ms
        for member in group.members.values():
            timeout = session_ms if member.classic is None else member.classic.session_timeout_ms
            group.timers.set(SESSION, member.member_id, now.mono_ms + timeout)
            if member.classic is None and member.state is MemberState.UNREVOKED:
                group.timers.set(REBALANCE, member.member_id, now.mono_ms + member.rebalance_timeout_ms)

    def topics_changed(self) -> None:
        """Consumer groups look at their subscriptions again with the next heartbeat."""
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                group.topics_changed = True

    # -- machines

    def classic(self, group: ClassicGroup) -> ClassicMachine:
        return ClassicMachine(group, self.settings)

    def consumer(self, group: ConsumerGroup) -> ConsumerMachine:
        return ConsumerMachine(group, self.topics, self._limits(group.group_id))


def commit_of(value: wire.OffsetCommitValue) -> Commit:
    return Commit(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


def _leave_refused(request: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
    """A group that does not exist knows none of the members; anything else concerns the whole request."""
    if code is not ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=code)
    return LeaveGroupResponse(
        members=tuple(
            MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code)
            for member in request.members
        )
    )
