"""One step of one member towards its target assignment. A pure function: who has what stays consistent.

The rule that makes it safe: a partition is given to a member only when nobody has it, and somebody has it until that
member's client has said, by a list of what it owns, that it let go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from uuid import UUID

from headwater.broker.groups.consumer_state import ConsumerMember, MemberState, Owned
from headwater.broker.groups.topics import TopicPartition

__all__ = ["reconcile"]


def reconcile(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: frozenset[TopicPartition],
    wanted: Collection[UUID],
    resubscribed: bool,
    owners: Mapping[TopicPartition, str],
    owned: frozenset[TopicPartition] | None,
) -> ConsumerMember:
    """The member after this heartbeat.

    `target` is what it should have in the end, as far as it still wants those topics. `owned` is what its client says
    it has (None: it did not say). `resubscribed`: its subscription has just changed, so something may have to go.
    """
    waits_for_client = member.state is MemberState.UNREVOKED and _holds(owned, member.revoking)
    if waits_for_client or member.at(target_epoch):
        return _unsubscribe(member, wanted, owned) if resubscribed else member
    return _advance(member, target_epoch, frozenset(p for p in target if p.topic_id in wanted), owners, owned)


def _advance(
    member: ConsumerMember,
    target_epoch: int,
    target: frozenset[TopicPartition],
    owners: Mapping[TopicPartition, str],
    owned: frozenset[TopicPartition] | None,
) -> ConsumerMember:
    """Revoke first; then take what is free; then wait for the rest."""
    keep = {partition: epoch for partition, epoch in member.assigned.items() if partition in target}
    revoking = {partition: epoch for partition, epoch in member.assigned.items() if partition not in target}
    if revoking and _holds(owned, revoking):
        return _step(member, member.epoch, MemberState.UNREVOKED, keep, revoking)
    missing = target.difference(keep)
    free = {partition for partition in missing if owners.get(partition, member.member_id) == member.member_id}
    state = MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED
    return _step(member, target_epoch, state, keep | dict.fromkeys(free, target_epoch), {})


def _unsubscribe(
    member: ConsumerMember, wanted: Collection[UUID], owned: frozenset[TopicPartition] | None
) -> ConsumerMember:
    """Its subscription shrank: what it no longer wants is revoked now, whatever else it waits for."""
    dropped = {partition: epoch for partition, epoch in member.assigned.items() if partition.topic_id not in wanted}
    if not dropped:
        return member
    keep = {partition: epoch for partition, epoch in member.assigned.items() if partition not in dropped}
    revoking = dict(member.revoking) | dropped
    if _holds(owned, revoking):
        return _step(member, member.epoch, MemberState.UNREVOKED, keep, revoking)
    return _step(member, member.epoch, member.state, keep, member.revoking)


def _step(member: ConsumerMember, epoch: int, state: MemberState, assigned: Owned, revoking: Owned) -> ConsumerMember:
    """A member whose last answer was lost comes back with the epoch before: that one is remembered too."""
    return replace(member, previous_epoch=member.epoch, epoch=epoch, state=state, assigned=assigned, revoking=revoking)


def _holds(owned: frozenset[TopicPartition] | None, revoking: Collection[TopicPartition]) -> bool:
    """Does the client still have any of these? If it does not say, it does."""
    return owned is None or not owned.isdisjoint(revoking)
