"""Kafka 4.x's Java clients: producer, consumer, admin; its performance, console and verification tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import OURS, running
from .java import events, java, properties, tool

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
def test_performance_tools_with_every_codec(server: str, unique: str, codec: str) -> None:
    topic = f"perf-{codec}-{unique}"
    tool("TopicCommand", "--bootstrap-server", server, "--create", "--topic", topic, "--partitions", "3")
    printed = tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "20000", "--record-size", "300", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={server}", f"compression.type={codec}", "acks=all"),
    )
    assert "20000 records sent" in printed
    printed = tool(
        "ConsumerPerformance",
        *("--topic", topic, "--bootstrap-server", server, "--num-records", "20000", "--timeout", "60000"),
        "--hide-header",
    )
    assert int(printed.strip().splitlines()[-1].split(",")[4]) >= 20_000


def test_performance_tool_with_transactions(server: str, unique: str) -> None:
    topic = f"perf-tx-{unique}"
    printed = tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", f"tx-{unique}", "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={server}"),
    )
    assert "20000 records sent" in printed
    printed = tool("GetOffsetShell", "--bootstrap-server", server, "--topic", topic, "--time", "latest")
    assert int(printed.split(":")[-1]) > 20_000  # with the markers


def test_console_tools_with_keys_and_headers(server: str, unique: str) -> None:
    topic = f"console-{unique}"
    tool(
        "ConsoleProducer",
        *("--bootstrap-server", server, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        stdin="h:1\tk1\tv1\nh:2\tk2\tv2\n",
    )
    printed = tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", server, "--topic", topic, "--from-beginning", "--max-messages", "2"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"),
        *("--timeout-ms", "30000"),
    )
    assert printed.splitlines() == ["h:1\tk1\tv1", "h:2\tk2\tv2"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_producer_and_consumer(server: str, unique: str, protocol: str) -> None:
    topic = f"verified-{protocol}-{unique}"
    tool("TopicCommand", "--bootstrap-server", server, "--create", "--topic", topic, "--partitions", "2")
    sent = events(tool("VerifiableProducer", "--bootstrap-server", server, "--topic", topic, "--max-messages", "1000"))
    assert sum(event["name"] == "producer_send_success" for event in sent) == 1_000
    received = events(
        tool(
            "VerifiableConsumer",
            *("--bootstrap-server", server, "--topic", topic, "--group-id", f"g-{unique}"),
            *("--max-messages", "1000", "--group-protocol", protocol),
        )
    )
    assert sum(event["count"] for event in received if event["name"] == "records_consumed") == 1_000
    assert any(event["name"] == "offsets_committed" and event["success"] for event in received)


def test_transactional_message_copier(server: str, unique: str) -> None:
    source, target = f"from-{unique}", f"to-{unique}"
    for topic in (source, target):
        tool("TopicCommand", "--bootstrap-server", server, "--create", "--topic", topic)
    tool("VerifiableProducer", "--bootstrap-server", server, "--topic", source, "--max-messages", "3000")
    copied = events(
        tool(
            "TransactionalMessageCopier",
            *("--broker-list", server, "--input-topic", source, "--input-partition", "0"),
            *("--output-topic", target, "--transactional-id", f"copy-{unique}", "--consumer-group", f"g-{unique}"),
            *("--max-messages", "3000", "--transaction-size", "100", "--enable-random-aborts"),
        )
    )
    assert copied[-1]["consumed"] == 3_000
    printed = tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", server, "--topic", target, "--from-beginning", "--timeout-ms", "5000"),
        *("--isolation-level", "read_committed"),
    )
    assert sorted(map(int, printed.split())) == list(range(3_000))


def test_end_to_end_latency(server: str, unique: str) -> None:
    printed = tool(
        "EndToEndLatency",
        *("--bootstrap-server", server, "--topic", f"latency-{unique}", "--num-records", "500"),
        *("--producer-acks", "all", "--record-size", "100"),
    )
    assert "Percentiles" in printed


def test_client_compatibility_test_of_every_feature(unique: str) -> None:
    """Against ours alone: on a real Kafka, on a machine under load, the tool's own 10 s for a record ran out."""
    with running(OURS) as server:
        topic = f"compatible-{unique}"
        tool("TopicCommand", "--bootstrap-server", server, "--create", "--topic", topic)
        printed = tool(
            "ClientCompatibilityTest",
            *("--bootstrap-server", server, "--topic", topic, "--num-cluster-nodes", "1"),
            *("--offsets-for-times-supported", "true", "--cluster-id-supported", "true"),
            *("--expect-record-too-large-exception", "false", "--create-topics-supported", "true"),
            *("--describe-acls-supported", "true", "--describe-configs-supported", "true"),
            *("--idempotent-producer-supported", "true"),
        )
        assert "SUCCESS" in printed


# -- administration


def test_topics_are_created_described_altered_and_deleted(server: str, unique: str) -> None:
    topic = f"admin-{unique}"
    at = ("--bootstrap-server", server)
    tool("TopicCommand", *at, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=60000")
    printed = tool("TopicCommand", *at, "--describe", "--topic", topic)
    assert "PartitionCount: 2" in printed
    assert "retention.ms=60000" in printed
    tool("TopicCommand", *at, "--alter", "--topic", topic, "--partitions", "3")
    configs = ("--entity-type", "topics", "--entity-name", topic)
    java("kafka.admin.ConfigCommand", *at, *configs, "--alter", "--add-config", "max.message.bytes=2000")
    printed = java("kafka.admin.ConfigCommand", *at, *configs, "--describe")
    assert "max.message.bytes=2000" in printed
    assert "DYNAMIC_TOPIC_CONFIG" in printed
    printed = java("kafka.admin.ConfigCommand", *at, *configs, "--describe", "--all")
    assert "segment.bytes=1073741824" in printed
    tool("TopicCommand", *at, "--delete", "--topic", topic)
    assert topic not in tool("TopicCommand", *at, "--list").split()


def test_settings_of_brokers_groups_and_clients(server: str, unique: str) -> None:
    at = ("--bootstrap-server", server)
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    printed = java("kafka.admin.ConfigCommand", *at, *broker, "--describe", "--all")
    assert "log.retention.hours=168" in printed
    group = ("--entity-type", "groups", "--entity-name", f"g-{unique}")
    java("kafka.admin.ConfigCommand", *at, *group, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in java("kafka.admin.ConfigCommand", *at, *group, "--describe")
    client = ("--entity-type", "clients", "--entity-name", f"c-{unique}")
    java("kafka.admin.ConfigCommand", *at, *client, "--alter", "--add-config", "producer_byte_rate=1024")
    assert "producer_byte_rate=1024" in java("kafka.admin.ConfigCommand", *at, *client, "--describe")


def test_groups_are_described_reset_and_deleted(server: str, unique: str) -> None:
    topic, group, at = f"groups-{unique}", f"g-{unique}", ("--bootstrap-server", server)
    tool("VerifiableProducer", *at, "--topic", topic, "--max-messages", "10")
    tool("VerifiableConsumer", *at, "--topic", topic, "--group-id", group, "--max-messages", "10")
    assert group in tool("consumer.group.ConsumerGroupCommand", *at, "--list").split()
    printed = tool("consumer.group.ConsumerGroupCommand", *at, "--describe", "--group", group)
    assert [line.split()[3:6] for line in printed.splitlines() if line.startswith(group)] == [["10", "10", "0"]]
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--execute")
    tool("consumer.group.ConsumerGroupCommand", *at, *reset, "--to-offset", "4")
    printed = tool("consumer.group.ConsumerGroupCommand", *at, "--describe", "--group", group, "--offsets")
    assert [line.split()[3:6] for line in printed.splitlines() if line.startswith(group)] == [["4", "10", "6"]]
    assert "Empty" in tool("consumer.group.ConsumerGroupCommand", *at, "--describe", "--group", group, "--state")
    tool("consumer.group.ConsumerGroupCommand", *at, "--delete-offsets", "--group", group, "--topic", topic)
    tool("consumer.group.ConsumerGroupCommand", *at, "--delete", "--group", group)
    assert group not in tool("GroupsCommand", *at, "--list")


def test_offsets_records_and_log_dirs(server: str, unique: str, tmp_path: Path) -> None:
    topic, at = f"records-{unique}", ("--bootstrap-server", server)
    tool("VerifiableProducer", *at, "--topic", topic, "--max-messages", "10")
    for time, offset in (("earliest", 0), ("latest", 10), ("earliest-local", 0)):
        printed = tool("GetOffsetShell", *at, "--topic", topic, "--time", time)
        assert printed.strip() == f"{topic}:0:{offset}"
    spec = tmp_path / "delete.json"
    spec.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 6}], "version": 1}))
    assert "low_watermark: 6" in tool("DeleteRecordsCommand", *at, "--offset-json-file", str(spec))
    assert tool("GetOffsetShell", *at, "--topic", topic, "--time", "earliest").strip() == f"{topic}:0:6"
    assert topic in tool("LogDirsCommand", *at, "--describe", "--topic-list", topic)


def test_cluster_features_versions_and_transactions(server: str, unique: str) -> None:
    at = ("--bootstrap-server", server)
    assert "Cluster ID: " in tool("ClusterTool", "cluster-id", *at)
    printed = tool("FeatureCommand", *at, "describe")
    assert "transaction.version" in printed
    printed = tool("BrokerApiVersionsCommand", *at)
    assert "Produce(0): 0 to 13" in printed
    assert "unusable" not in printed
    tool(
        "ProducerPerformance",
        *("--topic", f"tx-{unique}", "--num-records", "10", "--record-size", "10", "--throughput", "-1"),
        *("--transactional-id", f"tx-{unique}", "--producer-props", f"bootstrap.servers={server}"),
    )
    assert f"tx-{unique}" in tool("TransactionsCommand", *at, "list")
    described = tool("TransactionsCommand", *at, "describe", "--transactional-id", f"tx-{unique}")
    assert "CompleteCommit" in described
    printed = tool("TransactionsCommand", *at, "describe-producers", "--topic", f"tx-{unique}", "--partition", "0")
    assert "ProducerId" in printed
    assert tool("TransactionsCommand", *at, "find-hanging", "--broker-id", "1").strip().count("\n") <= 1


def test_leaders_are_elected_and_reassignments_listed(server: str, unique: str) -> None:
    topic, at = f"leader-{unique}", ("--bootstrap-server", server)
    tool("TopicCommand", *at, "--create", "--topic", topic)
    printed = tool("LeaderElectionCommand", *at, "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "already" in printed.lower() or "completed" in printed.lower() or "valid" in printed.lower()
    assert "No partition reassignments found" in tool("reassign.ReassignPartitionsCommand", *at, "--list")


def test_a_client_configured_by_a_file(server: str, unique: str, tmp_path: Path) -> None:
    """Older names of settings, an explicit partitioner, idempotence off: what long-lived deployments have."""
    config = properties(
        tmp_path, ["acks=1", "enable.idempotence=false", "linger.ms=0", "max.in.flight.requests.per.connection=1"]
    )
    topic = f"file-{unique}"
    tool("ConsoleProducer", "--bootstrap-server", server, "--topic", topic, "--command-config", config, stdin="a\nb\n")
    printed = tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", server, "--topic", topic, "--from-beginning", "--max-messages", "2"),
        *("--timeout-ms", "30000", "--group", f"g-{unique}"),
    )
    assert printed.split() == ["a", "b"]
