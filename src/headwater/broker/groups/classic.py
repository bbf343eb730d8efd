"""The classic protocol: members join, the leader assigns, everybody syncs; for any protocol type (`connect` too).

    Empty ──join──▶ PreparingRebalance ──all joined, or time-out──▶ CompletingRebalance ──leader's sync stored──▶ Stable
      ▲                ▲        │ nobody left                              │                                        │
      └────────────────┼────────┘            join, leave, expiry           │                                        │
                       └────────────────────◀──────────────────────────────┴────────────────────────────────────────┘

Every step takes a request and the time, changes the group and returns what to do (`Effects`), or raises the refusal
(`GroupError`) and changes nothing. The state here is the truth; the log has the last completed generation only, as in
Kafka: after a restart members find themselves in it and carry on, or are told to join again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from headwater.broker.groups import records
from headwater.broker.groups.classic_state import ClassicGroup, ClassicMember, Protocols, State
from headwater.broker.groups.effects import Caller, Effects, GroupError, Stored, Token
from headwater.broker.groups.settings import GroupSettings
from headwater.broker.groups.timers import Now
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from headwater.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from headwater.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["ClassicMachine", "join_refused", "new_member_id", "protocols_of", "requires_member_id"]

# A member whose JoinGroup waits sends no heartbeats. One that has been told nothing yet may have given up: it is
# dropped after this, so that it does not hold up the rebalances to come. Kafka's figure.
NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000

JOIN = "join"  # the rebalance's deadline, or the next look during the initial delay
SYNC = "sync"  # those who joined must have synced by then
SESSION = "session"  # per member
DELAY = "delay"  # the initial rebalance delay


def new_member_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4()}"


def protocols_of(request: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)


def requires_member_id(request: JoinGroupRequest, caller: Caller) -> bool:
    """KIP-394: from version 4 a dynamic member first gets an id, then joins with it; a lost answer leaves no ghost."""
    return caller.api_version >= 4 and not request.member_id and request.group_instance_id is None


class ClassicMachine:
    """The transitions of one group; `group` is the state, the settings are what an operator chose."""

    def __init__(
        self, group: ClassicGroup, settings: GroupSettings, new_id: Callable[[str], str] = new_member_id
    ) -> None:
        self.group = group
        self._settings = settings
        self._new_id = new_id
        self._out = Effects()  # of the step under way

    def _finish(self) -> Effects:
        done, self._out = self._out, Effects()
        return done

    # -- JoinGroup

    def join(self, request: JoinGroupRequest, caller: Caller, token: Token, now: Now) -> Effects:
        """A member arrives, or comes back; answered when the rebalance has everybody, or at once if nothing changes."""
        group = self.group
        if group.state is State.DEAD:
            raise GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not self._has_room_for(request.member_id):
            group.remove(request.member_id)
            raise GroupError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not group.supports(request.protocol_type, (protocol.name for protocol in request.protocols)):
            raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.member_id:
            self._join_known(request, caller, token, now)
        else:
            self._join_unknown(request, caller, token, now)
        return self._finish()

    def _has_room_for(self, member_id: str) -> bool:
        group, limit = self.group, self._settings.max_size
        member = group.members.get(member_id)
        if group.state is State.EMPTY:
            return True
        if group.state is State.PREPARING:
            return (member is not None and member.joining is not None) or len(group.awaiting) < limit
        return member is not None or len(group.members) < limit

    def _join_unknown(self, request: JoinGroupRequest, caller: Caller, token: Token, now: Now) -> None:
        instance_id = request.group_instance_id
        member_id = self._new_id(instance_id if instance_id is not None else caller.client_id)
        if instance_id is not None and instance_id in self.group.static:
            self._rejoin_static(request, caller, member_id, token, now)
        elif requires_member_id(request, caller):
            self.group.pending.add(member_id)
            self.group.timers.set(SESSION, member_id, now.mono_ms + request.session_timeout_ms)
            self._out.answer(token, join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(request, caller, member_id, token, now)

    def _join_known(self, request: JoinGroupRequest, caller: Caller, token: Token, now: Now) -> None:
        group = self.group
        if request.member_id in group.pending and request.group_instance_id is None:
            self._add(request, caller, request.member_id, token, now)
            return
        member = group.require(request.member_id, request.group_instance_id)
        unchanged = member.protocols == protocols_of(request)
        is_leader = member.member_id == group.leader
        if group.state is State.COMPLETING and unchanged:  # its answer was lost
            self._out.answer(token, self._joined(member, with_members=is_leader))
        elif group.state is State.STABLE and unchanged and not is_leader:
            self._out.answer(token, self._joined(member))
        else:  # also a leader that rejoins a stable group: it wants a new assignment
            self._update(member, request, caller, token, now)
            self._prepare_or_complete(now)

    def _add(self, request: JoinGroupRequest, caller: Caller, member_id: str, token: Token, now: Now) -> None:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            rebalance_timeout_ms(request),
            request.session_timeout_ms,
            protocols_of(request),
            is_new=True,
            joining=token,
        )
        self.group.newcomers = True
        self.group.add(member, request.protocol_type)
        # No heartbeats until it is answered: the time for which its client surely waits stands in for the session.
        self.group.timers.set(SESSION, member_id, now.mono_ms + NEW_MEMBER_TIMEOUT_MS)
        self._prepare_or_complete(now)

    def _update(self, member: ClassicMember, request: JoinGroupRequest, caller: Caller, token: Token, now: Now) -> None:
        self._answer_join(
            member, join_refused(ErrorCode.UNKNOWN_MEMBER_ID)
        )  # a second JoinGroup replaces a waiting one
        member.protocols = protocols_of(request)
        member.rebalance_timeout_ms = rebalance_timeout_ms(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id, member.client_host = caller.client_id, caller.client_host
        member.joining = token
        self._touch(member, now)

    def _rejoin_static(self, request: JoinGroupRequest, caller: Caller, new_id: str, token: Token, now: Now) -> None:
        """KIP-345: a restarted static member takes its old place; nothing moves unless its wishes changed."""
        group = self.group
        instance_id = request.group_instance_id
        assert instance_id is not None
        old_id, old_leader = group.static[instance_id], group.leader
        member = group.rename(instance_id, new_id)
        self._answer_join(member, join_refused(ErrorCode.FENCED_INSTANCE_ID))
        self._answer_sync(member, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        before = group.protocol
        self._update(member, request, caller, token, now)
        if group.state is State.STABLE and group.choose_protocol() == before:
            member.joining = None
            response = self._rejoined(member, caller, old_leader)
            self._out.records.append(records.classic_group(group))
            self._out.answer(token, response)
            self._out.stored.append(Stored(group.group_id, group.generation, replaced=(old_id, new_id)))
        else:
            self._prepare_or_complete(now)

    def _rejoined(self, member: ClassicMember, caller: Caller, old_leader: str | None) -> JoinGroupResponse:
        """From version 9 (KIP-814) a leader is told that it leads but need not assign. Before, it is told that its
        former self leads, so that it behaves as a follower and changes nothing."""
        if caller.api_version >= 9:
            is_leader = member.member_id == self.group.leader
            return self._joined(member, with_members=is_leader, skip_assignment=is_leader)
        return self._joined(member, leader=old_leader)

    # -- the rebalance

    def _prepare_or_complete(self, now: Now) -> None:
        if self.group.state is State.PREPARING:
            self._complete_if_all_joined(now)
        else:
            self._prepare(now)

    def _prepare(self, now: Now) -> None:
        """Everybody has to join again."""
        group = self.group
        initial = group.state is State.EMPTY
        if group.state is State.COMPLETING:
            self._drop_assignments(ErrorCode.REBALANCE_IN_PROGRESS)
        group.unsynced.clear()
        group.timers.cancel(SYNC)
        group.enter(State.PREPARING, now.wall_ms)
        delay = self._settings.initial_rebalance_delay_ms
        if initial and delay > 0:
            group.delay_left_ms = max(group.rebalance_timeout_ms - delay, 0)
            group.newcomers = False
            group.timers.set(DELAY, "", now.mono_ms + delay)
        else:
            group.timers.set(JOIN, "", now.mono_ms + group.rebalance_timeout_ms)
            self._complete_if_all_joined(now)

    def _complete_if_all_joined(self, now: Now) -> None:
        if self.group.all_joined and not self.group.timers.has(DELAY):
            self._complete_join(now)

    def _initial_delay_over(self, now: Now) -> None:
        """Members kept coming: wait again, but never longer than the longest rebalance time-out."""
        group = self.group
        if group.newcomers and group.delay_left_ms > 0:
            group.newcomers = False
            delay = min(self._settings.initial_rebalance_delay_ms, group.delay_left_ms)
            group.delay_left_ms -= delay
            group.timers.set(DELAY, "", now.mono_ms + delay)
        else:
            self._complete_join(now)

    def _complete_join(self, now: Now) -> None:
        """Whoever joined is the next generation; dynamic members that did not are out, static ones keep their place."""
        group = self.group
        group.timers.cancel(JOIN)
        group.timers.cancel(DELAY)
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                group.remove(member.member_id)
        if group.members and not group.elect_joined_leader():
            group.timers.set(JOIN, "", now.mono_ms + group.rebalance_timeout_ms)  # static members only, all away
            return
        group.next_generation(now.wall_ms)
        if group.state is State.EMPTY:
            self._out.records.append(records.classic_group(group))
            return
        for member in group.members.values():
            self._answer_join(member, self._joined(member, with_members=member.member_id == group.leader))
            member.is_new = False
            group.unsynced.add(member.member_id)
            self._touch(member, now)
        group.timers.set(SYNC, "", now.mono_ms + group.rebalance_timeout_ms)

    # -- SyncGroup

    def sync(self, request: SyncGroupRequest, token: Token, now: Now) -> Effects:
        group = self.group
        if group.state is State.DEAD:
            raise GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = group.require(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise GroupError(ErrorCode.ILLEGAL_GENERATION)
        if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol):
            raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is State.PREPARING:
            raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._synced(member)
        if group.state is State.STABLE:
            self._out.answer(token, self._assigned(member))
            return self._finish()
        self._answer_sync(
            member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        )  # superseded by this one
        member.syncing = token
        if member.member_id == group.leader:
            given = {item.member_id: bytes(item.assignment) for item in request.assignments}
            assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
            self._out.records.append(records.classic_group(group, assignments, since_ms=now.wall_ms))
            self._out.stored.append(Stored(group.group_id, group.generation, assignments))
        return self._finish()

    def stored(self, event: Stored, now: Now) -> Effects:
        """The assignment is on disk: now it counts, unless the group has moved on meanwhile."""
        group = self.group
        if event.replaced is None and group.state is State.COMPLETING and event.generation == group.generation:
            for member in group.members.values():
                member.assignment = event.assignments.get(member.member_id, b"")
            group.enter(State.STABLE, now.wall_ms)
            for member in group.members.values():
                if member.syncing is not None:
                    self._touch(member, now)
                    self._answer_sync(member, self._assigned(member))
        return self._finish()

    def refused(self, event: Stored, code: ErrorCode, now: Now) -> Effects:
        """The records could not be stored: an assignment is withdrawn, a static member's old id comes back."""
        group = self.group
        if event.replaced is not None:
            old_id, new_id = event.replaced
            member = group.members.get(new_id)
            if member is not None and member.instance_id is not None:
                group.rename(member.instance_id, old_id)
                self._touch(member, now)
        elif group.state is State.COMPLETING and event.generation == group.generation:
            self._drop_assignments(code)
            self._prepare(now)
        return self._finish()

    def _synced(self, member: ClassicMember) -> None:
        self.group.unsynced.discard(member.member_id)
        if not self.group.unsynced:
            self.group.timers.cancel(SYNC)

    def _drop_assignments(self, code: ErrorCode) -> None:
        for member in self.group.members.values():
            member.assignment = b""
            self._answer_sync(member, SyncGroupResponse(error_code=code))

    # -- Heartbeat

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: Now) -> ErrorCode:
        group = self.group
        if group.state is State.DEAD:
            raise GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = group.require(member_id, instance_id)
        if generation != group.generation:
            raise GroupError(ErrorCode.ILLEGAL_GENERATION)
        self._touch(member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else ErrorCode.NONE

    def heard_of(self, member_id: str, now: Now) -> None:
        """A commit is as good as a heartbeat."""
        member = self.group.members.get(member_id)
        if member is not None:
            self._touch(member, now)

    # -- LeaveGroup

    def leave(self, request: LeaveGroupRequest, token: Token, now: Now) -> Effects:
        if self.group.state is State.DEAD:
            raise GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answers = tuple(self._leave_one(identity) for identity in request.members)
        if any(answer.error_code == ErrorCode.NONE for answer in answers):
            self._after_removal(now)
        self._out.answer(token, LeaveGroupResponse(members=answers))
        return self._finish()

    def _leave_one(self, identity: MemberIdentity) -> MemberResponse:
        group, code = self.group, ErrorCode.NONE
        try:
            if not identity.member_id and identity.group_instance_id in group.static:  # an administrator removes it
                self._remove(group.static[identity.group_instance_id])
            elif identity.member_id in group.pending:
                group.remove(identity.member_id)
            else:
                group.require(identity.member_id, identity.group_instance_id)
                self._remove(identity.member_id)
        except GroupError as error:
            code = error.code
        return MemberResponse(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
        )

    def _remove(self, member_id: str) -> None:
        """Its waiting requests, if any, are told that it is unknown: a client that is alive joins again."""
        member = self.group.members[member_id]
        self._answer_join(member, join_refused(ErrorCode.UNKNOWN_MEMBER_ID))
        self._answer_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        self.group.remove(member_id)

    def _after_removal(self, now: Now) -> None:
        if self.group.state in (State.STABLE, State.COMPLETING):
            self._prepare(now)
        elif self.group.state is State.PREPARING:
            self._complete_if_all_joined(now)

    # -- time

    def expire(self, now: Now) -> Effects:
        """Fire what is due."""
        for kind, member_id in self.group.timers.due(now.mono_ms):
            if kind == DELAY:
                self._initial_delay_over(now)
            elif kind == JOIN:
                self._complete_join(now)
            elif kind == SYNC:
                self._sync_overdue(now)
            else:
                self._session_over(member_id, now)
        return self._finish()

    def _session_over(self, member_id: str, now: Now) -> None:
        group = self.group
        member = group.members.get(member_id)
        if member is None:
            group.pending.discard(member_id)
            if group.state is State.PREPARING:
                self._complete_if_all_joined(now)
        elif member.is_new or (member.joining is None and member.syncing is None):
            self._remove(member_id)
            self._after_removal(now)
        else:  # it waits for us, so it is alive
            self._touch(member, now)

    def _sync_overdue(self, now: Now) -> None:
        """They joined and never synced: out, and once more without them."""
        for member_id in list(self.group.unsynced):
            self._remove(member_id)
        self.group.unsynced.clear()
        self._after_removal(now)

    def restore_timers(self, now: Now) -> None:
        """After a restart every member gets a whole session to be heard of."""
        for member in self.group.members.values():
            self._touch(member, now)

    def disband(self, code: ErrorCode) -> Effects:
        """The group ends here (upgraded, or the broker stops): whoever waits is told so."""
        for member in self.group.members.values():
            self._answer_join(member, join_refused(code))
            self._answer_sync(member, SyncGroupResponse(error_code=code))
        self.group.timers.clear()
        return self._finish()

    def rebalance(self, now: Now) -> Effects:
        """Make everybody join again."""
        self._prepare_or_complete(now)
        return self._finish()

    def _touch(self, member: ClassicMember, now: Now) -> None:
        self.group.timers.set(SESSION, member.member_id, now.mono_ms + member.session_timeout_ms)

    # -- answers

    def _answer_join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        if member.joining is not None:
            self._out.answer(member.joining, response)
            member.joining = None

    def _answer_sync(self, member: ClassicMember, response: SyncGroupResponse) -> None:
        if member.syncing is not None:
            self._out.answer(member.syncing, response)
            member.syncing = None

    def _joined(
        self,
        member: ClassicMember,
        *,
        with_members: bool = False,
        skip_assignment: bool = False,
        leader: str | None = None,
    ) -> JoinGroupResponse:
        group = self.group
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=leader or group.leader or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=self._metadata() if with_members else (),
        )

    def _metadata(self) -> tuple[JoinGroupResponseMember, ...]:
        return tuple(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.group.protocol),
            )
            for member in self.group.members.values()
        )

    def _assigned(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.group.protocol_type,
            protocol_name=self.group.protocol,
            assignment=member.assignment,
        )


def join_refused(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id)


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Version 0 has none: the session's stands in."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms


def _differs(asked: str | None, known: str | None) -> bool:
    return asked is not None and known is not None and asked != known
