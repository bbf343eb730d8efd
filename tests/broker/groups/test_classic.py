"""The classic protocol: rebalances, time-outs, static members, and what is stored before it is answered."""

from __future__ import annotations

import pytest

from headwater.broker.groups.classic_state import ClassicGroup, State
from headwater.wire.errors import ErrorCode

from .harness import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS, Groups, subscription


def state(groups: Groups) -> State:
    group = groups.coordinator.groups["g"]
    assert isinstance(group, ClassicGroup)
    return group.state


def test_a_member_without_an_id_is_given_one_first() -> None:
    groups = Groups()
    response = groups.joined(groups.join())
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id.startswith("client-")


def test_an_old_client_joins_without_asking_for_an_id() -> None:
    groups = Groups()
    response = groups.joined(groups.join(version=3))
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 1)
    assert response.leader == response.member_id


def test_one_member_leads_alone_and_gets_what_it_assigns() -> None:
    groups = Groups()
    member_id, token = groups.new_member()
    joined = groups.joined(token)
    assert [member.member_id for member in joined.members] == [member_id]
    assert joined.protocol_name == "range"
    token = groups.sync(member_id, joined.generation_id, {member_id: b"mine"})
    assert groups.answers[token].assignment == b"mine"
    assert state(groups) is State.STABLE


def test_the_assignment_is_told_to_nobody_before_it_is_stored() -> None:
    groups = Groups()
    member_id, token = groups.new_member()
    groups.disk_stops = True
    token = groups.sync(member_id, 1, {member_id: b"mine"})
    assert token not in groups.answers
    assert state(groups) is State.COMPLETING
    groups.disk_works()
    assert groups.answers[token].assignment == b"mine"


def test_an_assignment_that_cannot_be_stored_starts_the_rebalance_again() -> None:
    groups = Groups()
    member_id, _ = groups.new_member()
    groups.disk_stops = True
    token = groups.sync(member_id, 1, {member_id: b"mine"})
    groups.disk_refuses()
    assert groups.answers[token].error_code == ErrorCode.NOT_COORDINATOR
    assert state(groups) is State.PREPARING
    assert groups.joined(groups.join(member_id)).generation_id == 2


def test_a_second_member_makes_the_first_join_again_and_both_get_the_same_generation() -> None:
    groups = Groups()
    generation, (first,) = groups.stable()
    second, waiting = groups.new_member()
    assert waiting not in groups.answers
    assert groups.heartbeat(first, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    again = groups.join(first)
    assert groups.joined(again).generation_id == groups.joined(waiting).generation_id == generation + 1
    assert {member.member_id for member in groups.joined(again).members} == {first, second}
    assert groups.joined(waiting).members == ()


def test_followers_wait_for_the_leaders_assignment() -> None:
    groups = Groups()
    _, (first,) = groups.stable()
    second, _ = groups.new_member()
    groups.join(first)
    follower = groups.sync(second, 2)
    assert follower not in groups.answers
    leader = groups.sync(first, 2, {first: b"1", second: b"2"})
    assert (groups.answers[leader].assignment, groups.answers[follower].assignment) == (b"1", b"2")


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment() -> None:
    groups = Groups()
    _, (first,) = groups.stable()
    second, _ = groups.new_member()
    groups.join(first)
    follower = groups.sync(second, 2)
    groups.sync(first, 2, {first: b"1"})
    assert (groups.answers[follower].error_code, groups.answers[follower].assignment) == (ErrorCode.NONE, b"")


def test_the_protocol_is_the_one_most_members_prefer_among_those_all_support() -> None:
    groups = Groups()
    preferences = [{"a": b"", "b": b""}, {"b": b"", "a": b""}, {"c": b"", "b": b"", "a": b""}]
    members = [groups.new_member(protocols=protocols)[0] for protocols in preferences[:1]]
    for protocols in preferences[1:]:
        members.append(groups.new_member(protocols=protocols)[0])
    tokens = [groups.join(name, protocols=wanted) for name, wanted in zip(members[:1], preferences, strict=False)]
    assert groups.joined(tokens[0]).protocol_name == "b"


def test_members_without_a_common_protocol_are_refused() -> None:
    groups = Groups()
    groups.stable()
    assert groups.joined(groups.join(protocols={"other": b""})).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert groups.joined(groups.join(protocol_type="connect")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert groups.joined(groups.join(protocols={}, group="new")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_other_protocol_types_work_the_same() -> None:
    groups = Groups()
    generation, (member,) = groups.stable(protocol_type="connect", protocols={"sessioned": b"c"})
    assert groups.heartbeat(member, generation) == ErrorCode.NONE


@pytest.mark.parametrize("timeout", [5_999, 1_800_001])
def test_a_session_time_out_outside_the_settings_is_refused(timeout: int) -> None:
    groups = Groups()
    assert groups.joined(groups.join(session_timeout_ms=timeout)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_an_empty_group_id_is_refused() -> None:
    groups = Groups()
    assert groups.joined(groups.join(group="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert groups.heartbeat("m", 1, group="") == ErrorCode.INVALID_GROUP_ID


def test_an_unknown_member_is_told_so() -> None:
    groups = Groups()
    assert groups.joined(groups.join("ghost")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    generation, _ = groups.stable()
    assert groups.joined(groups.join("ghost")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.heartbeat("ghost", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.answers[groups.sync("ghost", generation)].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.heartbeat("m", 1, group="nowhere") == ErrorCode.UNKNOWN_MEMBER_ID


def test_another_generation_is_refused() -> None:
    groups = Groups()
    generation, (member,) = groups.stable()
    assert groups.heartbeat(member, generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert groups.answers[groups.sync(member, generation - 1)].error_code == ErrorCode.ILLEGAL_GENERATION


def test_a_silent_member_is_removed_after_its_session() -> None:
    groups = Groups()
    generation, (member,) = groups.stable()
    groups.advance(SESSION_MS - 200)
    assert groups.heartbeat(member, generation) == ErrorCode.NONE
    groups.advance(SESSION_MS - 200)
    assert groups.heartbeat(member, generation) == ErrorCode.NONE
    groups.advance(SESSION_MS + 200)
    assert state(groups) is State.EMPTY
    assert groups.heartbeat(member, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_rejoin_is_left_behind_after_the_rebalance_time_out() -> None:
    groups = Groups()
    generation, (silent,) = groups.stable()
    _, waiting = groups.new_member()
    for _ in range(REBALANCE_MS // HEARTBEAT_MS + 1):
        if waiting not in groups.answers:
            assert groups.heartbeat(silent, generation) == ErrorCode.REBALANCE_IN_PROGRESS
            groups.advance(HEARTBEAT_MS)
    assert [member.member_id for member in groups.joined(waiting).members] == [groups.joined(waiting).member_id]


def test_an_id_that_was_handed_out_but_never_used_is_waited_for_no_longer_than_its_session() -> None:
    groups = Groups()
    _, (first,) = groups.stable()
    groups.join()  # gets an id, vanishes
    _, waiting = groups.new_member()
    again = groups.join(first)
    assert again not in groups.answers
    groups.advance(SESSION_MS + 200)
    assert groups.joined(again).generation_id == groups.joined(waiting).generation_id == 2


def test_members_that_join_but_do_not_sync_are_removed() -> None:
    groups = Groups()
    first, _ = groups.new_member()
    for _ in range(REBALANCE_MS // HEARTBEAT_MS + 1):
        groups.heartbeat(first, 1)
        groups.advance(HEARTBEAT_MS)
    assert state(groups) is State.EMPTY


def test_the_initial_delay_gathers_members_that_come_together() -> None:
    groups = Groups(initial_rebalance_delay_ms=3_000)
    first, waiting = groups.new_member()
    groups.advance(2_000)
    assert waiting not in groups.answers
    second, also = groups.new_member()
    groups.advance(3_000)  # extended, because somebody came
    assert waiting not in groups.answers
    groups.advance(1_500)
    assert groups.joined(waiting).generation_id == groups.joined(also).generation_id == 1
    assert {member.member_id for member in groups.joined(waiting).members} == {first, second}


def test_a_lost_join_answer_is_repeated() -> None:
    groups = Groups()
    member_id, token = groups.new_member()
    again = groups.join(member_id)
    assert groups.joined(again) == groups.joined(token)


def test_a_follower_that_rejoins_unchanged_disturbs_nobody_and_a_leader_that_rejoins_wants_a_new_assignment() -> None:
    groups = Groups()
    generation, (leader, follower) = groups.stable(2)
    assert groups.joined(groups.join(follower)).generation_id == generation
    assert state(groups) is State.STABLE
    waiting = groups.join(leader)
    assert state(groups) is State.PREPARING
    groups.join(follower)
    assert groups.joined(waiting).generation_id == generation + 1


def test_changed_metadata_rebalances() -> None:
    groups = Groups()
    generation, (leader, follower) = groups.stable(2)
    groups.join(follower, protocols={"range": b"other topics"})
    assert groups.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_leaving_lets_the_others_rebalance_at_once() -> None:
    groups = Groups()
    generation, (leader, follower) = groups.stable(2)
    response = groups.leave((leader, None))
    assert [member.error_code for member in response.members] == [ErrorCode.NONE]
    assert groups.heartbeat(follower, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = groups.joined(groups.join(follower))
    assert (joined.leader, joined.generation_id) == (follower, generation + 1)


def test_the_last_one_to_leave_leaves_an_empty_group() -> None:
    groups = Groups()
    _, (member,) = groups.stable()
    groups.leave((member, None))
    assert state(groups) is State.EMPTY
    assert groups.log[-1].value.members == ()


def test_a_batch_of_leaves_has_an_answer_for_each() -> None:
    groups = Groups()
    _, (leader, _) = groups.stable(2)
    codes = [member.error_code for member in groups.leave((leader, None), ("ghost", None), ("", "nobody")).members]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    nowhere = groups.leave(("m", None), group="nowhere")
    assert [member.error_code for member in nowhere.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_group_has_room_for_so_many() -> None:
    groups = Groups(max_size=1)
    generation, (member,) = groups.stable()
    assert groups.joined(groups.join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert groups.heartbeat(member, generation) == ErrorCode.NONE


def static(groups: Groups, **more: object) -> str:
    """One static member in a stable group: its member id."""
    joined = groups.joined(groups.join(instance="i", **more))
    groups.sync(joined.member_id, joined.generation_id, {joined.member_id: b"mine"}, instance="i")
    return joined.member_id


def test_a_static_member_that_restarts_takes_its_place_without_a_rebalance() -> None:
    groups = Groups()
    old = static(groups)
    joined = groups.joined(groups.join(instance="i"))
    assert joined.error_code == ErrorCode.NONE
    assert joined.generation_id == 1
    assert joined.member_id != old
    assert (joined.skip_assignment, joined.leader) == (True, joined.member_id)
    assert state(groups) is State.STABLE
    token = groups.sync(joined.member_id, 1, instance="i")
    assert groups.answers[token].assignment == b"mine"


def test_before_version_9_a_restarted_static_leader_is_told_that_its_former_self_leads() -> None:
    groups = Groups()
    old = static(groups, version=8)
    joined = groups.joined(groups.join(instance="i", version=8))
    assert (joined.leader, joined.skip_assignment, joined.members) == (old, False, ())


def test_the_former_self_of_a_static_member_is_fenced() -> None:
    groups = Groups()
    old = static(groups)
    groups.join(instance="i")
    assert groups.heartbeat(old, 1, instance="i") == ErrorCode.FENCED_INSTANCE_ID
    assert groups.answers[groups.sync(old, 1, instance="i")].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert groups.joined(groups.join(old, instance="i")).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert groups.leave((old, "i")).members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert groups.heartbeat(old, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_rejoin_that_cannot_be_stored_leaves_the_old_member_in_place() -> None:
    groups = Groups()
    old = static(groups)
    groups.disk_stops = True
    groups.join(instance="i")
    groups.disk_refuses()
    assert groups.heartbeat(old, 1, instance="i") == ErrorCode.NONE


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    groups = Groups()
    static(groups)
    assert groups.leave(("", "i")).members[0].error_code == ErrorCode.NONE
    assert state(groups) is State.EMPTY


def test_a_static_member_that_is_away_keeps_its_place_through_a_rebalance_until_its_session_ends() -> None:
    groups = Groups()
    away = static(groups, session_timeout_ms=60_000)
    _, waiting = groups.new_member()
    groups.advance(REBALANCE_MS + 200)
    joined = groups.joined(waiting)
    assert {member.member_id for member in joined.members} == {away, joined.member_id}
    assert joined.leader == joined.member_id
    groups.sync(joined.member_id, 2, {joined.member_id: b"", away: b"still mine"})
    back = groups.joined(groups.join(instance="i"))
    token = groups.sync(back.member_id, 2, instance="i")
    assert groups.answers[token].assignment == b"still mine"


def test_after_a_restart_members_carry_on_in_their_generation() -> None:
    groups = Groups()
    generation, (leader, follower) = groups.stable(2)
    groups.restart()
    assert groups.heartbeat(leader, generation) == groups.heartbeat(follower, generation) == ErrorCode.NONE
    token = groups.sync(follower, generation)
    assert groups.answers[token].assignment == follower.encode()
    groups.advance(SESSION_MS + 200)
    assert state(groups) is State.EMPTY


def test_after_a_restart_in_the_middle_of_a_rebalance_members_are_in_the_generation_before() -> None:
    groups = Groups()
    generation, (first,) = groups.stable()
    groups.new_member()
    groups.restart()
    assert groups.heartbeat(first, generation) == ErrorCode.NONE


def test_topics_of_a_consumer_group_are_read_from_its_members_subscriptions() -> None:
    groups = Groups()
    groups.stable(protocols={"range": subscription("t", "u")})
    assert groups.coordinator.groups["g"].subscribed_topics() == {"t", "u"}
    unreadable = Groups()
    unreadable.stable(protocols={"range": b"\x00"})
    assert unreadable.coordinator.groups["g"].subscribed_topics() is None
