"""The consumer protocol (KIP-848): epochs, reconciliation, fencing, static members, subscriptions, restarts."""

from __future__ import annotations

import pytest

from headwater.broker.groups.consumer_state import ConsumerGroup, MemberState
from headwater.broker.groups.topics import TopicPartition
from headwater.wire.errors import ErrorCode

from .harness import HEARTBEAT_MS, REBALANCE_MS, FakeTopics, Groups, as_owned, partitions_of


def group_of(groups: Groups) -> ConsumerGroup:
    group = groups.coordinator.groups["g"]
    assert isinstance(group, ConsumerGroup)
    return group


def indexes(groups: Groups, member_id: str) -> set[int]:
    return {partition.partition for partition in group_of(groups).members[member_id].assigned}


def test_the_first_member_gets_everything_with_its_first_heartbeat() -> None:
    groups = Groups()
    answer = groups.beat("m", 0)
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (ErrorCode.NONE, 1, HEARTBEAT_MS)
    assert partitions_of(answer) == {TopicPartition(groups.topics.id("t"), index) for index in range(4)}
    assert group_of(groups).state == "Stable"


def test_a_heartbeat_that_changes_nothing_writes_nothing_and_says_nothing() -> None:
    groups = Groups()
    groups.beat("m", 0)
    written = len(groups.log)
    answer = groups.beat("m", 1)
    assert (answer.member_epoch, answer.assignment, len(groups.log)) == (1, None, written)


def test_partitions_are_revoked_before_another_member_gets_them() -> None:
    groups = Groups()
    mine = partitions_of(groups.beat("a", 0))
    waiting = groups.beat("b", 0)
    assert (waiting.member_epoch, partitions_of(waiting)) == (2, frozenset())
    told = groups.beat("a", 1)  # does not say what it owns: it has to give up two
    assert told.member_epoch == 1
    kept = partitions_of(told)
    assert len(kept) == 2
    assert kept < mine
    assert groups.beat("b", 2).assignment is None
    assert groups.beat("a", 1, topic_partitions=as_owned(mine)).member_epoch == 1  # still has them
    assert groups.beat("a", 1, topic_partitions=as_owned(kept)).member_epoch == 2
    assert partitions_of(groups.beat("b", 2)) == mine - kept
    assert group_of(groups).state == "Stable"


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    groups = Groups()
    groups.beat("a", 0)
    groups.beat("b", 0)
    groups.beat("a", 1)
    for _ in range(REBALANCE_MS // HEARTBEAT_MS + 1):
        groups.beat("b", group_of(groups).members["b"].epoch)
        if "a" in group_of(groups).members:
            groups.beat("a", 1)
        groups.advance(HEARTBEAT_MS)
    assert groups.beat("a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert indexes(groups, "b") == {0, 1, 2, 3}


def test_a_silent_member_is_fenced_after_its_session_and_its_partitions_move_on() -> None:
    groups = Groups(consumer_session_timeout_ms=45_000)
    groups.beat("a", 0)
    groups.beat("b", 0)
    for _ in range(16):
        groups.beat("b", group_of(groups).members["b"].epoch)
        groups.advance(HEARTBEAT_MS)
    groups.beat("b", group_of(groups).members["b"].epoch)
    assert indexes(groups, "b") == {0, 1, 2, 3}


def test_a_member_that_leaves_gives_up_everything_at_once() -> None:
    groups = Groups()
    groups.beat("a", 0)
    groups.beat("b", 0)
    answer = groups.beat("a", -1)
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, -1)
    assert len(partitions_of(groups.beat("b", 2))) == 4
    assert groups.beat("a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    groups.beat("b", -1)
    assert group_of(groups).state == "Empty"


def test_a_lost_answer_may_be_asked_for_again_with_the_epoch_before() -> None:
    groups = Groups()
    groups.beat("a", 0)
    groups.beat("a", 1, subscribed_topic_names=("t", "u"))
    assert group_of(groups).members["a"].epoch == 2
    mine = partitions_of(groups.beat("a", 0))
    groups.beat("a", 2, subscribed_topic_names=("t",))
    again = groups.beat("a", 2, topic_partitions=as_owned(mine))
    assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, 3)


@pytest.mark.parametrize("epoch", [1, 7])
def test_other_epochs_are_fenced(epoch: int) -> None:
    groups = Groups()
    groups.beat("a", 0)
    for names in (("t", "u"), ("t",), ("t", "u")):
        groups.beat("a", group_of(groups).members["a"].epoch, subscribed_topic_names=names)
    answer = groups.beat("a", epoch, topic_partitions=())
    assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "must abandon all its partitions and rejoin" in (answer.error_message or "")


def test_a_member_that_rejoins_with_epoch_0_keeps_its_partitions() -> None:
    groups = Groups()
    groups.beat("a", 0)
    again = groups.beat("a", 0)
    assert (again.member_epoch, len(partitions_of(again))) == (1, 4)


def test_unknown_members_and_groups_are_told_so() -> None:
    groups = Groups()
    assert groups.beat("a", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.beat("a", -1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    groups.beat("a", 0)
    assert groups.beat("ghost", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.beat("ghost", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"subscribed_topic_names": None}, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null"),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"group": ""}, "GroupId can't be empty."),
    ],
)
def test_incomplete_first_heartbeats_are_refused(more: dict[str, object], message: str) -> None:
    answer = Groups().beat("m", 0, **more)  # type: ignore[arg-type]
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert (answer.error_message or "").startswith(message)


def test_other_invalid_heartbeats_are_refused() -> None:
    groups = Groups()
    assert groups.beat("", 0).error_code == ErrorCode.INVALID_REQUEST
    assert groups.beat("m", -2).error_code == ErrorCode.INVALID_REQUEST
    assert groups.beat("m", -3).error_code == ErrorCode.INVALID_REQUEST
    assert groups.beat("m", 0, server_assignor="clever").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR


def test_members_choose_the_assignor_by_majority() -> None:
    groups = Groups(FakeTopics(t=3, u=3))
    for member_id in ("a", "b"):
        groups.beat(member_id, 0, server_assignor="range", subscribed_topic_names=("t", "u"))
    assert group_of(groups).preferred_assignor() == "range"
    target = group_of(groups).target
    assert {partition.partition for partition in target["a"]} == {0, 1}
    assert {partition.partition for partition in target["b"]} == {2}


def test_a_group_has_room_for_so_many() -> None:
    groups = Groups(consumer_max_size=1)
    groups.beat("a", 0)
    assert groups.beat("b", 0).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert groups.beat("a", 1).error_code == ErrorCode.NONE


# -- subscriptions


def test_new_partitions_and_topics_reach_the_members_with_their_next_heartbeat() -> None:
    groups = Groups()
    groups.beat("a", 0, subscribed_topic_names=("t", "later"))
    groups.topics.create("t", 6)
    groups.topics.create("later", 1)
    groups.coordinator.topics_changed()
    answer = groups.beat("a", 1)
    assert (answer.member_epoch, len(partitions_of(answer))) == (2, 7)


def test_topics_that_nobody_subscribed_to_change_nothing() -> None:
    groups = Groups()
    groups.beat("a", 0)
    groups.topics.create("other", 6)
    groups.coordinator.topics_changed()
    assert groups.beat("a", 1).member_epoch == 1


def test_a_topic_that_is_no_longer_wanted_is_revoked() -> None:
    groups = Groups(FakeTopics(t=1, u=1))
    mine = partitions_of(groups.beat("a", 0, subscribed_topic_names=("t", "u")))
    told = groups.beat("a", 1, subscribed_topic_names=("t",))
    kept = partitions_of(told)
    assert {partition.topic_id for partition in kept} == {groups.topics.id("t")}
    assert group_of(groups).members["a"].state is MemberState.UNREVOKED
    assert groups.beat("a", told.member_epoch, topic_partitions=as_owned(mine)).member_epoch == 1
    assert groups.beat("a", 1, topic_partitions=as_owned(kept)).member_epoch == 2


def test_a_regular_expression_subscribes_to_what_it_matches_now_and_later() -> None:
    groups = Groups(FakeTopics(**{"logs-a": 1, "logs-b": 1, "other": 1}))
    answer = groups.beat("a", 0, subscribed_topic_regex="logs-.*")
    assert len(partitions_of(answer)) == 2
    groups.topics.create("logs-c", 2)
    groups.coordinator.topics_changed()
    assert len(partitions_of(groups.beat("a", 1))) == 4
    assert group_of(groups).regexes["logs-.*"].topics == {"logs-a", "logs-b", "logs-c"}


def test_a_regular_expression_and_names_add_up_and_may_be_taken_back() -> None:
    groups = Groups(FakeTopics(**{"logs-a": 1, "t": 1}))
    answer = groups.beat("a", 0, subscribed_topic_regex="logs-.*", subscribed_topic_names=("t",))
    assert len(partitions_of(answer)) == 2
    told = groups.beat("a", 1, subscribed_topic_regex="")
    assert {partition.topic_id for partition in partitions_of(told)} == {groups.topics.id("t")}
    assert group_of(groups).regexes == {}


def test_an_invalid_regular_expression_is_refused_and_changes_nothing() -> None:
    groups = Groups()
    groups.beat("a", 0)
    answer = groups.beat("a", 1, subscribed_topic_regex="(")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert group_of(groups).members["a"].regex == ""
    assert groups.beat("b", 0, group="new", subscribed_topic_regex="(").error_code == answer.error_code
    assert "new" not in groups.coordinator.groups


# -- static members


def test_a_static_member_that_is_back_soon_finds_its_partitions() -> None:
    groups = Groups()
    groups.beat("a", 0, instance_id="i")
    groups.beat("b", 0)
    mine = indexes(groups, "a")
    assert groups.beat("a", -2, instance_id="i").member_epoch == -2
    epoch = group_of(groups).epoch
    back = groups.beat("a2", 0, instance_id="i")
    assert back.error_code == ErrorCode.NONE
    assert {partition.partition for partition in partitions_of(back)} <= mine
    assert group_of(groups).epoch == epoch
    assert "a" not in group_of(groups).members


def test_an_instance_that_is_in_use_cannot_be_taken() -> None:
    groups = Groups()
    groups.beat("a", 0, instance_id="i")
    assert groups.beat("b", 0, instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID


def test_the_former_self_of_a_static_member_is_fenced() -> None:
    groups = Groups()
    groups.beat("a", 0, instance_id="i")
    groups.beat("a", -2, instance_id="i")
    groups.beat("a2", 0, instance_id="i")
    assert groups.beat("a", 1, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert groups.beat("a", 1, instance_id="unknown").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_come_back_loses_its_partitions_with_its_session() -> None:
    groups = Groups(consumer_session_timeout_ms=45_000)
    groups.beat("a", 0, instance_id="i")
    groups.beat("b", 0)
    groups.beat("a", -2, instance_id="i")
    for _ in range(16):
        groups.beat("b", group_of(groups).members["b"].epoch)
        groups.advance(HEARTBEAT_MS)
    groups.beat("b", group_of(groups).members["b"].epoch)
    assert indexes(groups, "b") == {0, 1, 2, 3}


def test_a_static_member_may_also_leave_for_good() -> None:
    groups = Groups()
    groups.beat("a", 0, instance_id="i")
    assert groups.beat("a", -1, instance_id="i").error_code == ErrorCode.NONE
    assert group_of(groups).members == {}


# -- restarts


def test_after_a_restart_everything_is_as_before() -> None:
    groups = Groups()
    groups.beat("a", 0, instance_id="i", rack_id="r", server_assignor="uniform")
    groups.beat("b", 0, subscribed_topic_regex="t.*")
    groups.beat("a", 1, topic_partitions=as_owned(frozenset()))
    before = group_of(groups)
    groups.restart()
    after = group_of(groups)
    for name in ("epoch", "metadata_hash", "assignment_epoch", "members", "target", "regexes", "owners", "static"):
        assert getattr(after, name) == getattr(before, name), name
    assert groups.beat("a", after.members["a"].epoch).error_code == ErrorCode.NONE


def test_a_step_that_is_not_stored_has_not_happened() -> None:
    groups = Groups()
    groups.beat("a", 0)
    members = dict(group_of(groups).members)
    owners = dict(group_of(groups).owners)
    from headwater.broker.groups.effects import Caller
    from headwater.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="b",
        member_epoch=0,
        rebalance_timeout_ms=1,
        subscribed_topic_names=("t",),
        topic_partitions=(),
    )
    effects = groups.coordinator.consumer_heartbeat(request, Caller("c", "h", 1), "token", groups.now)
    assert effects.records
    assert (group_of(groups).members, group_of(groups).owners) == (members, owners)
