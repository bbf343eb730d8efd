"""Kafka's own tool reads what we write, and we read what a real Kafka wrote."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.kafka_peer import kafka_peer, run_tool
from confluent_kafka import Consumer, Producer, TopicPartition

from headwater.client import Connection, ensure_topics
from headwater.clock import SystemClock
from headwater.filesystem import SystemFilesystem
from headwater.log.compaction import CompactionSettings
from headwater.log.directory import LogDirectory
from headwater.log.dumping import dump_file
from headwater.log.partition import PartitionLog
from headwater.log.verifying import verify_directory
from headwater.testing import eventually
from headwater.wire.batches import decode_records, split_batches
from headwater.wire.compression import Codec
from log.model import COMPACTED, DAY_MS
from log.support import NOW, Store, idempotent, keyed, read_records, transactional

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

DUMP = "org.apache.kafka.tools.DumpLogSegments"


def dumped(folder: Path, suffix: str, *options: str) -> str:
    """What Kafka's tool says of all files of a kind."""
    files = ",".join(str(file) for file in sorted(folder.glob(f"*{suffix}")))
    return run_tool(DUMP, "--files", files, *options)


def ours(folder: Path, suffix: str) -> list[dict[str, object]]:
    return [
        item
        for file in sorted(folder.glob(f"*{suffix}"))
        for item in dump_file(SystemFilesystem(), str(file), records=False)
    ]


@pytest.fixture(scope="module")
def written_by_us(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every codec, idempotent and transactional batches, both markers, tombstones; compacted with horizons set."""
    store = Store(tmp_path_factory.mktemp("ours"), compaction=CompactionSettings(backoff_ms=1))
    log = store.log(COMPACTED)
    for number in range(40):
        now = store.clock.now_ms()
        codec = Codec(number % 5)
        pairs = [(f"k{number % 9}", None if number % 7 == 0 else f"v{number}")] * 3
        log.append(keyed(pairs, timestamp=now, codec=codec), leader_epoch=number // 20)
        log.append(idempotent(number, "i", producer_id=11, timestamp=now), leader_epoch=number // 20)
        log.append(transactional(number, "t", timestamp=now, codec=codec), leader_epoch=number // 20)
        if number % 3 == 2:
            log.append_marker(7, 0, commit=number % 2 == 0, coordinator_epoch=1, leader_epoch=number // 20)
        store.clock.advance(1000)
        if number in (20, 30):
            log.flush_to_disk()
            log.roll()
            for _ in range(3):
                store.clock.advance(COMPACTED.file_delete_delay_ms)
                store.directory.maintain(store.clock.now_ms())
    assert store.directory.cleaned_upto["events", 0] > 0
    store.close()
    return store.path / "events-0"


def test_kafkas_tool_reads_our_segments_batch_for_batch(written_by_us: Path) -> None:
    said = dumped(written_by_us, ".log", "--deep-iteration")
    batches = re.findall(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* isvalid: (\w+)", said, re.MULTILINE)
    assert [(int(base), int(last), int(count)) for base, last, count, _ in batches] == [
        (item["base_offset"], item["last_offset"], item["records"]) for item in ours(written_by_us, ".log")
    ]
    assert {valid for *_, valid in batches} == {"true"}
    assert {"gzip", "snappy", "lz4", "zstd"} <= set(re.findall(r"compresscodec: (\w+)", said))
    assert {"COMMIT", "ABORT"} == set(re.findall(r"endTxnMarker: (\w+)", said))
    horizons = [int(each) for each in re.findall(r"deleteHorizonMs: OptionalLong\[(\d+)\]", said)]
    assert horizons
    assert min(horizons) >= NOW + DAY_MS
    assert horizons == [item["delete_horizon"] for item in ours(written_by_us, ".log") if item["delete_horizon"]]
    assert len(re.findall(r"^\| offset: ", said, re.MULTILINE)) == sum(int(count) for _, _, count, _ in batches)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_kafkas_tool_finds_our_indexes_right(written_by_us: Path, suffix: str) -> None:
    said = dumped(written_by_us, suffix)
    entries = re.findall(r"^(?:offset: (\d+) position|timestamp: (\d+) offset)", said, re.MULTILINE)
    names = {".index": ("offset", 0), ".timeindex": ("timestamp", 1)}[suffix]
    found = [int(entry[names[1]]) for entry in entries]
    assert {item[names[0]] for item in ours(written_by_us, suffix)} <= set(found)
    for complaint in ("ismatch", "out of order", "not found"):
        assert complaint not in said, said
    assert "passed sanity check" in dumped(written_by_us, suffix, "--index-sanity-check")


def test_kafkas_tool_reads_our_transaction_indexes(written_by_us: Path) -> None:
    said = dumped(written_by_us, ".txnindex")
    found = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", said)
    items = ours(written_by_us, ".txnindex")
    assert items
    assert [tuple(map(int, each)) for each in found] == [
        (item["producer_id"], item["first_offset"], item["last_offset"], item["last_stable_offset"]) for item in items
    ]


def test_kafkas_tool_reads_our_producer_snapshots(written_by_us: Path) -> None:
    said = dumped(written_by_us, ".snapshot")
    found = re.findall(
        r"^producerId: (\d+) producerEpoch: (\d+) .*?lastSequence: (-?\d+) lastOffset: (-?\d+)", said, re.M
    )
    assert [tuple(map(int, each)) for each in found] == [
        (item["producer_id"], item["producer_epoch"], item["last_sequence"], item["last_offset"])
        for item in ours(written_by_us, ".snapshot")
    ]


class FromKafka:
    """Directories of a real Kafka: one copied while it ran (as after a kill), one stopped; and what it had."""

    def __init__(self, running: Path, stopped: Path, committed: dict[str, list[tuple[int, bytes | None]]]) -> None:
        self.running = running
        self.stopped = stopped
        self.committed = committed


def write_to_kafka(bootstrap: str) -> None:
    ensure_topics(Connection(bootstrap), ["plain"], partitions=1, config={"segment.bytes": "1048576"})
    compacted = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    ensure_topics(Connection(bootstrap), ["compacted"], partitions=1, config=compacted)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
        for number in range(2000):
            producer.produce("plain", f"{codec}-{number}".encode() * 20, key=str(number).encode())
            producer.produce("compacted", f"{codec}-{number}".encode() * 60, key=str(number % 100).encode())
            producer.poll(0)
        producer.flush()
    transactions = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    transactions.init_transactions()
    for number in range(60):
        transactions.begin_transaction()
        for topic in ("plain", "compacted"):
            transactions.produce(topic, f"txn-{number}".encode(), key=f"t{number % 5}".encode())
        transactions.flush()
        if number % 3:
            transactions.commit_transaction()
        else:
            transactions.abort_transaction()


def committed_of(bootstrap: str, topic: str) -> list[tuple[int, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "x",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes | None]] = []
    while True:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return found
        found.append((int(message.offset() or 0), message.value()))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FromKafka]:
    folder = tmp_path_factory.mktemp("kafka")
    with kafka_peer({"log.cleaner.backoff.ms": "200", "log.segment.delete.delay.ms": "200"}, directory=folder) as peer:
        write_to_kafka(peer.bootstrap_servers)
        cleaned = peer.data / "cleaner-offset-checkpoint"
        eventually(
            lambda: cleaned.exists() and "compacted" in cleaned.read_text(), deadline_s=60, what="Kafka to compact"
        )
        committed = {topic: committed_of(peer.bootstrap_servers, topic) for topic in ("plain", "compacted")}
        shutil.copytree(
            peer.data, folder / "running", ignore=shutil.ignore_patterns("*.deleted", "*.cleaned", "*.swap")
        )
        peer.process.terminate()
        peer.process.wait(60)
        shutil.copytree(peer.data, folder / "stopped")
        yield FromKafka(folder / "running", folder / "stopped", committed)


def opened(path: Path) -> LogDirectory:
    return LogDirectory(str(path), filesystem=SystemFilesystem(), clock=SystemClock(), cluster_id="ours")


@pytest.mark.parametrize("which", ["running", "stopped"])
def test_we_read_a_directory_that_a_real_kafka_wrote(kafka: FromKafka, which: str) -> None:
    directory = opened(kafka.running if which == "running" else kafka.stopped)
    try:
        assert directory.findings == []
        assert directory.clean is (which == "stopped")
        assert directory.cluster_id != "ours"
        for topic, wanted in kafka.committed.items():
            log = directory.get(topic, 0)
            assert log is not None
            assert [(record.offset, record.value) for record in read_records(log, committed=True)] == wanted
            assert_lookups_work(log)
            assert log.topic_id.int
            assert [status.producer_id for status in log.producers()]
    finally:
        directory.close()


def assert_lookups_work(log: PartitionLog) -> None:
    """By offset and by time, through Kafka's indexes."""
    for header, content in list(log.batches())[::7]:
        if header.control or not header.record_count:
            continue
        first = next(decode_records(content))
        part = next(split_batches(log.read(first.offset, 1).records.read()))[1]
        assert bytes(part) == bytes(content)
        found = log.offset_for_timestamp(first.timestamp)
        assert found is not None
        assert found.offset <= first.offset
        assert found.timestamp >= first.timestamp


def test_verify_finds_nothing_wrong_with_what_kafka_wrote(kafka: FromKafka, tmp_path: Path) -> None:
    for name, source in (("running", kafka.running), ("stopped", kafka.stopped)):
        copy = Path(shutil.copytree(source, tmp_path / name))
        assert [str(each) for each in verify_directory(SystemFilesystem(), str(copy)).damage] == []
