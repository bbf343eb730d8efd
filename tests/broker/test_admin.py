"""Administration by real clients: topics, settings with their sources, records, log dirs, cluster, quotas."""

from __future__ import annotations

from collections.abc import Iterator

import kafka.admin
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from headwater.testing.waiting import eventually
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headwater.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headwater.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from headwater.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from headwater.wire.messages.describe_quorum import DescribeQuorumRequest, WantedPartition, WantedTopic
from headwater.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest

from .clients import DEADLINE_S, create_topic, producer, read_everything, send, values
from .raw import RawClient, batch


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def raw(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(bootstrap) as client:
        yield client


def refusal(future: object) -> int:
    with pytest.raises(KafkaException) as refused:
        future.result(DEADLINE_S)  # type: ignore[attr-defined]
    return int(refused.value.args[0].code())


# -- topics


def test_a_topic_is_created_described_and_deleted(admin: AdminClient, unique: str) -> None:
    name = f"life-{unique}"
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(DEADLINE_S)
    described = admin.describe_topics(TopicCollection([name]))[name].result(DEADLINE_S)
    assert [p.id for p in described.partitions] == [0, 1, 2]
    assert {p.leader.id for p in described.partitions} == {1}
    assert not described.is_internal
    admin.delete_topics([name])[name].result(DEADLINE_S)
    eventually(lambda: name not in admin.list_topics(timeout=DEADLINE_S).topics)
    assert refusal(admin.delete_topics([name])[name]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_what_is_created_anew_is_another_topic(admin: AdminClient, bootstrap: str, unique: str, raw: RawClient) -> None:
    topic = create_topic(bootstrap, f"anew-{unique}")
    first = raw.topic_id(topic)
    send(producer(bootstrap), topic, [b"old"])
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    create_topic(bootstrap, topic)
    assert raw.topic_id(topic) != first
    assert read_everything(bootstrap, topic) == []


UNKNOWN_SETTING = (CreatableTopicConfig(name="no.such.setting", value="1"),)
WRONG_SETTING = (CreatableTopicConfig(name="retention.ms", value="soon"),)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (CreatableTopic(name="bad name", num_partitions=1, replication_factor=1), KafkaError.TOPIC_EXCEPTION),
        (CreatableTopic(name="x" * 250, num_partitions=1, replication_factor=1), KafkaError.TOPIC_EXCEPTION),
        (CreatableTopic(name="refused", num_partitions=0, replication_factor=1), KafkaError.INVALID_PARTITIONS),
        (CreatableTopic(name="refused", num_partitions=1, replication_factor=3), KafkaError.INVALID_REPLICATION_FACTOR),
        (
            CreatableTopic(name="refused", num_partitions=1, replication_factor=1, configs=UNKNOWN_SETTING),
            KafkaError.INVALID_CONFIG,
        ),
        (
            CreatableTopic(name="refused", num_partitions=1, replication_factor=1, configs=WRONG_SETTING),
            KafkaError.INVALID_CONFIG,
        ),
    ],
)
def test_topics_that_cannot_be_are_refused(raw: RawClient, wanted: CreatableTopic, code: int) -> None:
    answer = raw.call(CreateTopicsRequest(topics=(wanted,), timeout_ms=10_000)).topics[0]
    assert answer.error_code == code
    assert answer.error_message


def test_a_topic_that_exists_is_not_created_again(admin: AdminClient, bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"twice-{unique}")
    assert refusal(admin.create_topics([NewTopic(topic, 1, 1)])[topic]) == KafkaError.TOPIC_ALREADY_EXISTS


def test_validating_creates_nothing(admin: AdminClient, unique: str) -> None:
    name = f"only-validated-{unique}"
    admin.create_topics([NewTopic(name, 3, 1)], validate_only=True)[name].result(DEADLINE_S)
    assert name not in admin.list_topics(timeout=DEADLINE_S).topics


def test_partitions_are_added_and_never_taken(admin: AdminClient, bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"grow-{unique}")
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(DEADLINE_S)
    assert len(admin.list_topics(topic, DEADLINE_S).topics[topic].partitions) == 3
    assert send(producer(bootstrap), topic, [b"x"], partition=2) == [0]
    assert refusal(admin.create_partitions([NewPartitions(topic, 2)])[topic]) == KafkaError.INVALID_PARTITIONS


def test_topics_are_described_in_pages(bootstrap: str, unique: str, raw: RawClient) -> None:
    names = [create_topic(bootstrap, f"page-{unique}-{n}", partitions=3) for n in range(3)]
    wanted = tuple(TopicRequest(name=name) for name in names)
    found: list[tuple[str, int]] = []
    cursor: Cursor | None = None
    for _ in range(20):
        request = DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=2, cursor=cursor)
        answer = raw.call(request)
        found += [(topic.name, p.partition_index) for topic in answer.topics for p in topic.partitions]
        following = answer.next_cursor
        if following is None:
            break
        cursor = Cursor(topic_name=following.topic_name, partition_index=following.partition_index)
    assert found == [(name, p) for name in names for p in range(3)]


# -- settings


def settings_of(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    return found


def change(
    admin: AdminClient, of: tuple[ResourceType, str], operation: AlterConfigOpType, key: str, value: str
) -> None:
    entry = ConfigEntry(key, value, incremental_operation=operation)
    resource = ConfigResource(*of, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


def test_settings_come_with_their_source(admin: AdminClient, bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"settings-{unique}", retention_ms=60_000)
    found = settings_of(admin, ResourceType.TOPIC, topic)
    assert found["retention.ms"].value == "60000"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["cleanup.policy"].value == "delete"
    assert found["cleanup.policy"].source == ConfigSource.DEFAULT_CONFIG.value
    assert found["cleanup.policy"].is_default


def test_settings_are_changed_one_by_one(admin: AdminClient, bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"change-{unique}")

    def value(key: str) -> str:
        return str(settings_of(admin, ResourceType.TOPIC, topic)[key].value)

    change(admin, (ResourceType.TOPIC, topic), AlterConfigOpType.SET, "max.message.bytes", "500")
    eventually(lambda: value("max.message.bytes") == "500")
    with pytest.raises(KafkaException):
        send(producer(bootstrap), topic, [b"x" * 600])
    change(admin, (ResourceType.TOPIC, topic), AlterConfigOpType.APPEND, "cleanup.policy", "compact")
    eventually(lambda: set(value("cleanup.policy").split(",")) == {"delete", "compact"})
    change(admin, (ResourceType.TOPIC, topic), AlterConfigOpType.SUBTRACT, "cleanup.policy", "delete")
    eventually(lambda: value("cleanup.policy") == "compact")
    change(admin, (ResourceType.TOPIC, topic), AlterConfigOpType.DELETE, "max.message.bytes", "")
    eventually(lambda: value("max.message.bytes") == "1048588")
    with pytest.raises(KafkaException):
        change(admin, (ResourceType.TOPIC, topic), AlterConfigOpType.SET, "max.message.bytes", "-5")


def test_settings_of_the_broker_and_of_groups_are_effective_too(admin: AdminClient, unique: str) -> None:
    broker = settings_of(admin, ResourceType.BROKER, "1")
    assert broker["log.retention.hours"].value == "168"
    assert broker["log.dirs"].is_read_only
    change(admin, (ResourceType.GROUP, f"g-{unique}"), AlterConfigOpType.SET, "consumer.session.timeout.ms", "50000")
    group = settings_of(admin, ResourceType.GROUP, f"g-{unique}")
    assert group["consumer.session.timeout.ms"].value == "50000"
    default = broker["group.consumer.heartbeat.interval.ms"].value
    assert group["consumer.heartbeat.interval.ms"].value == default


def test_settings_of_what_is_not_there_are_refused(admin: AdminClient, unique: str) -> None:
    with pytest.raises(KafkaException) as refused:
        settings_of(admin, ResourceType.TOPIC, f"none-{unique}")
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


# -- records, disk, cluster


def test_deleted_records_are_gone_and_readers_below_are_told(
    admin: AdminClient, bootstrap: str, unique: str, raw: RawClient
) -> None:
    topic = create_topic(bootstrap, f"cut-{unique}")
    send(producer(bootstrap), topic, [b"0", b"1", b"2", b"3"])
    where = TopicPartition(topic, 0, 3)
    assert admin.delete_records([where])[where].result(DEADLINE_S).low_watermark == 3
    assert values(read_everything(bootstrap, topic)) == [b"3"]
    assert raw.fetch(topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    everything = TopicPartition(topic, 0, -1)
    assert admin.delete_records([everything])[everything].result(DEADLINE_S).low_watermark == 4
    beyond = TopicPartition(topic, 0, 9)
    assert refusal(admin.delete_records([beyond])[beyond]) == KafkaError.OFFSET_OUT_OF_RANGE


def test_the_size_of_a_partition_is_that_of_its_batches(bootstrap: str, unique: str, raw: RawClient) -> None:
    topic = create_topic(bootstrap, f"size-{unique}")
    sent = batch(b"x" * 1_000)
    for _ in range(3):
        raw.produce(topic, sent)
    answer = raw.call(DescribeLogDirsRequest(topics=None))
    sizes = {each.name: each.partitions[0].partition_size for each in answer.results[0].topics}
    assert sizes[topic] == 3 * len(sent)
    assert answer.results[0].total_bytes > answer.results[0].usable_bytes > 0


def test_the_cluster_is_one_broker_which_is_its_controller(admin: AdminClient, bootstrap: str) -> None:
    cluster = admin.describe_cluster().result(DEADLINE_S)
    assert [(node.id, f"{node.host}:{node.port}") for node in cluster.nodes] == [(1, bootstrap)]
    assert cluster.controller.id == 1
    assert len(cluster.cluster_id) == 22


def test_quotas_are_set_described_and_removed(unique: str, raw: RawClient) -> None:
    entity = (EntityData(entity_type="client-id", entity_name=f"slow-{unique}"),)

    def alter(value: float, *, remove: bool = False) -> int:
        entry = EntryData(entity=entity, ops=(OpData(key="producer_byte_rate", value=value, remove=remove),))
        return int(raw.call(AlterClientQuotasRequest(entries=(entry,))).entries[0].error_code)

    def described() -> dict[str, float]:
        answer = raw.call(DescribeClientQuotasRequest(components=(), strict=False))
        found: dict[str, float] = {}
        for each in answer.entries or ():
            if [e.entity_name for e in each.entity] == [f"slow-{unique}"]:
                found = {v.key: v.value for v in each.values}
        return found

    assert alter(1_000_000.0) == ErrorCode.NONE
    eventually(lambda: described() == {"producer_byte_rate": 1_000_000.0})
    assert alter(0.0, remove=True) == ErrorCode.NONE
    eventually(lambda: described() == {})


def test_kafka_pythons_admin_client_works(bootstrap: str, unique: str) -> None:
    client = kafka.admin.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        client.create_topics([kafka.admin.NewTopic(f"kp-{unique}", 2, 1)])
        assert f"kp-{unique}" in client.list_topics()
        client.delete_topics([f"kp-{unique}"])
        assert f"kp-{unique}" not in client.list_topics()
    finally:
        client.close()


def test_the_metadata_quorum_is_this_broker(bootstrap: str, raw: RawClient) -> None:
    wanted = WantedTopic(topic_name="__cluster_metadata", partitions=(WantedPartition(partition_index=0),))
    answer = raw.call(DescribeQuorumRequest(topics=(wanted,)))
    found = answer.topics[0].partitions[0]
    assert (answer.error_code, found.error_code, found.leader_id) == (ErrorCode.NONE, ErrorCode.NONE, 1)
    assert [voter.replica_id for voter in found.current_voters] == [1]
    assert found.high_watermark > 0
