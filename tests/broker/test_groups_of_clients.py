"""Consumer groups as real clients form them: both protocols, static members, cooperative rebalances, offsets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import aiokafka
import kafka
import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from headwater.testing.waiting import eventually

from .clients import DEADLINE_S, create_topic, poll_until, producer, send, subscribed, values

PROTOCOLS = ("classic", "consumer")


def fill(bootstrap: str, topic: str, partitions: int, each: int = 5) -> None:
    writer = producer(bootstrap, linger_ms=5)
    for partition in range(partitions):
        send(writer, topic, [b"%d-%d" % (partition, n) for n in range(each)], partition=partition)


def settle(members: list[Consumer], condition: Callable[[], bool], what: str) -> None:
    """Poll all members (that is how they take part) until the condition holds."""

    def look() -> bool:
        for member in members:
            member.poll(0.01)
        return condition()

    eventually(look, deadline_s=DEADLINE_S, what=what)


def owned(*members: Consumer) -> list[int]:
    return sorted(int(p.partition) for member in members for p in member.assignment())


def position(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
    found = admin.list_consumer_group_offsets([request])[group].result(DEADLINE_S)
    return int(found.topic_partitions[0].offset)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_partitions_and_a_leaver_hands_its_own_over(bootstrap: str, unique: str, protocol: str) -> None:
    topic = create_topic(bootstrap, f"shared-{unique}", partitions=4)
    fill(bootstrap, topic, 4)
    with subscribed(bootstrap, [topic], f"g-{unique}", group_protocol=protocol) as one:
        settle([one], lambda: owned(one) == [0, 1, 2, 3], "one member has all")
        with subscribed(bootstrap, [topic], f"g-{unique}", group_protocol=protocol) as two:
            settle(
                [one, two],
                lambda: owned(one, two) == [0, 1, 2, 3] and len(owned(one)) == len(owned(two)) == 2,
                "two members share",
            )
        settle([one], lambda: owned(one) == [0, 1, 2, 3], "the one that stayed has all again")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_goes_on_where_the_group_committed(bootstrap: str, unique: str, protocol: str) -> None:
    topic, group = create_topic(bootstrap, f"resume-{unique}"), f"g-{unique}"
    fill(bootstrap, topic, 1, 6)
    with subscribed(bootstrap, [topic], group, group_protocol=protocol) as consumer:
        found = poll_until([consumer], lambda seen: len(seen) >= 3, "three records")
        consumer.commit(message=found[2], asynchronous=False)
    assert position(bootstrap, group, topic) == 3
    with subscribed(bootstrap, [topic], group, group_protocol=protocol) as consumer:
        rest = poll_until([consumer], lambda seen: len(seen) >= 3, "the other three")
    assert values(rest) == [b"0-3", b"0-4", b"0-5"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_new_topics_that_match_a_pattern_are_followed(bootstrap: str, unique: str, protocol: str) -> None:
    create_topic(bootstrap, f"match-{unique}-a")
    create_topic(bootstrap, f"other-{unique}")
    for name in (f"match-{unique}-a", f"other-{unique}"):
        fill(bootstrap, name, 1, 1)
    options = {"group_protocol": protocol, "metadata_max_age_ms": 500}
    with subscribed(bootstrap, [f"^match-{unique}-.*"], f"g-{unique}", **options) as consumer:
        found = poll_until([consumer], lambda seen: len(seen) >= 1, "what matches now")
        assert {m.topic() for m in found} == {f"match-{unique}-a"}
        create_topic(bootstrap, f"match-{unique}-b")
        fill(bootstrap, f"match-{unique}-b", 1, 1)
        later = f"match-{unique}-b"
        poll_until([consumer], lambda seen: later in {m.topic() for m in seen}, "what matches later")


def test_a_cooperative_rebalance_takes_only_what_moves(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"coop-{unique}", partitions=4)
    revoked: list[int] = []
    options = {"partition_assignment_strategy": "cooperative-sticky"}
    with subscribed(bootstrap, [topic], f"g-{unique}", **options) as one:
        one.subscribe([topic], on_revoke=lambda _, gone: revoked.extend(p.partition for p in gone))
        settle([one], lambda: owned(one) == [0, 1, 2, 3], "one member has all")
        with subscribed(bootstrap, [topic], f"g-{unique}", **options) as two:
            settle([one, two], lambda: len(owned(one)) == len(owned(two)) == 2, "two members share")
            assert sorted(revoked) == owned(two)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_that_returns_keeps_its_partitions(bootstrap: str, unique: str, protocol: str) -> None:
    topic, group = create_topic(bootstrap, f"static-{unique}", partitions=4), f"g-{unique}"
    options = {"group_protocol": protocol}
    rebalances: list[str] = []
    with subscribed(bootstrap, [topic], group, group_instance_id="a", **options) as one:
        one.subscribe([topic], on_assign=lambda *_: rebalances.append("assigned"))
        with subscribed(bootstrap, [topic], group, group_instance_id="b", **options) as two:
            settle([one, two], lambda: len(owned(one)) == len(owned(two)) == 2, "two members share")
            mine = owned(two)
        before = len(rebalances)
        with subscribed(bootstrap, [topic], group, group_instance_id="b", **options) as two:
            settle([one, two], lambda: owned(two) == mine, "the same partitions again")
            assert len(rebalances) == before


def test_groups_are_listed_described_and_deleted(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"admin-{unique}", partitions=2)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    fill(bootstrap, topic, 2)
    for protocol in PROTOCOLS:
        group = f"g-{protocol}-{unique}"
        with subscribed(bootstrap, [topic], group, group_protocol=protocol, client_id="me") as consumer:
            found = poll_until([consumer], lambda seen: len(seen) >= 1, "a record")
            consumer.commit(message=found[0], asynchronous=False)
            described = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
            assert described.state == ConsumerGroupState.STABLE
            assert [member.client_id for member in described.members] == ["me"]
            assert len(described.members[0].assignment.topic_partitions) == 2
            listed = {each.group_id: each for each in admin.list_consumer_groups().result(DEADLINE_S).valid}
            kind = ConsumerGroupType.CLASSIC if protocol == "classic" else ConsumerGroupType.CONSUMER
            assert listed[group].type == kind
            with pytest.raises(KafkaException) as refused:
                admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
            assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        eventually(lambda group=group: _deleted(admin, group), what="an empty group can be deleted")
        assert position(bootstrap, group, topic) < 0


def _deleted(admin: AdminClient, group: str) -> bool:
    with contextlib.suppress(KafkaException):
        admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
        return True
    return False


def test_offsets_can_be_altered_while_nobody_is_there(bootstrap: str, unique: str) -> None:
    topic, group = create_topic(bootstrap, f"alter-{unique}"), f"g-{unique}"
    fill(bootstrap, topic, 1, 5)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    chosen = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 4, metadata="by hand")])
    admin.alter_consumer_group_offsets([chosen])[group].result(DEADLINE_S)
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    found = admin.list_consumer_group_offsets([request])[group].result(DEADLINE_S).topic_partitions[0]
    assert (found.offset, found.metadata) == (4, "by hand")
    with subscribed(bootstrap, [topic], group) as consumer:
        assert values(poll_until([consumer], lambda seen: len(seen) >= 1, "the last record")) == [b"0-4"]
        answer = admin.alter_consumer_group_offsets([chosen])[group].result(DEADLINE_S).topic_partitions[0]
        assert answer.error.code() == KafkaError.UNKNOWN_MEMBER_ID


def test_deleting_a_topic_forgets_its_offsets(bootstrap: str, unique: str) -> None:
    topic, group = create_topic(bootstrap, f"gone-{unique}"), f"g-{unique}"
    fill(bootstrap, topic, 1, 3)
    with subscribed(bootstrap, [topic], group) as consumer:
        found = poll_until([consumer], lambda seen: len(seen) >= 3, "three records")
        consumer.commit(message=found[2], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    create_topic(bootstrap, topic)
    assert position(bootstrap, group, topic) < 0


def test_kafka_python_consumes_in_a_group_and_deletes_offsets(bootstrap: str, unique: str) -> None:
    topic, group = create_topic(bootstrap, f"kp-{unique}", partitions=2), f"g-{unique}"
    fill(bootstrap, topic, 2, 3)
    options = {"bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    reader = kafka.KafkaConsumer(topic, enable_auto_commit=False, consumer_timeout_ms=int(DEADLINE_S * 1e3), **options)
    try:
        found = [next(reader).value for _ in range(6)]
        reader.commit()
    finally:
        reader.close()
    assert sorted(found) == sorted(b"%d-%d" % (p, n) for p in range(2) for n in range(3))
    assert position(bootstrap, group, topic) == 3


def test_aiokafka_consumes_in_a_group(bootstrap: str, unique: str) -> None:
    topic, group = create_topic(bootstrap, f"aio-{unique}", partitions=2), f"g-{unique}"
    fill(bootstrap, topic, 2, 3)

    async def read() -> list[bytes]:
        reader = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await reader.start()
        try:
            found = [(await asyncio.wait_for(reader.getone(), DEADLINE_S)).value for _ in range(6)]
            await reader.commit()
            return found
        finally:
            await reader.stop()

    assert sorted(asyncio.run(read())) == sorted(b"%d-%d" % (p, n) for p in range(2) for n in range(3))
    assert position(bootstrap, group, topic, 1) == 3
