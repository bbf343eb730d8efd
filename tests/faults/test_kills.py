"""`kill -9` of the real broker at random instants, under transactional load from processes that are paused at times.

What the clients saw is checked for every anomaly that Jepsen looks for in Kafka; the directory is verified afterwards;
the broker must start every time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from faults.client import COMPACTED_TOPIC, PARTITIONS, TOPIC, group_of
from headwater.cli.main import main
from headwater.testing import eventually
from histories.checker import check
from histories.history import Operation, Outcome, Read, load

TESTS = Path(__file__).resolve().parent.parent
START_DEADLINE_S = 30
STOP_DEADLINE_S = 90
CLIENTS = ("sender", "sender", "transactor", "transactor", "transactor", "reader", "reader", "updater")
# Small, so that segments roll, are compacted and checkpointed all the time, also those of the coordinators.
SETTINGS = (
    "log.cleaner.backoff.ms=100",
    "offsets.topic.segment.bytes=20000",
    "transaction.state.log.segment.bytes=20000",
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
)
TOPIC_SETTINGS = {"segment.bytes": "100000"}
COMPACTED_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}


class Broker:
    """`headwater start` on one directory and port, again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None
        self.port = 0
        self.starts = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, *, wait: bool = True) -> None:
        options = [word for setting in SETTINGS for word in ("--set", setting)]
        command = [sys.executable, "-m", "headwater.cli.main", "start", "--data", str(self.folder / "data")]
        with (self.folder / "broker.err").open("a") as errors:
            self.process = subprocess.Popen(
                [*command, "--listen", f"127.0.0.1:{self.port}", *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.starts += 1
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        errors = (self.folder / "broker.err").read_text()
        assert line.startswith("headwater is ready"), f"start {self.starts} failed: {line} {errors[-2000:]}"
        self.port = int(line.split("127.0.0.1:")[1].split()[0])

    def end(self, by: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(by)
        self.process.communicate(timeout=START_DEADLINE_S)


@contextmanager
def clients(bootstrap: str, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "faults.client", kind, str(number), bootstrap, str(folder / f"{kind}-{number}")],
            env=environment,
            stderr=(folder / "clients.err").open("ab"),
        )
        for number, kind in enumerate(CLIENTS, 1)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def pause(process: subprocess.Popen[bytes], seconds: float) -> None:
    process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)  # it is the fault: a client that stands still for so long
    finally:
        process.send_signal(signal.SIGCONT)


def stop(processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    for process in processes:
        assert process.poll() is None, (folder / "clients.err").read_text()[-3000:]
        process.terminate()
    for process in processes:
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR1)
            process.terminate()
            time.sleep(1)  # for what it writes
            raise AssertionError(f"{process.args} goes on: {(folder / 'clients.err').read_text()[-3000:]}") from None


def everything_read(bootstrap: str) -> Operation:
    """All committed records, when no transaction is open any more."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]

    def ends(isolation: IsolationLevel) -> list[int]:
        wanted = {partition: OffsetSpec.latest() for partition in partitions}
        answers = admin.list_offsets(wanted, isolation_level=isolation)
        return [answers[partition].result(10).offset for partition in partitions]

    latest = eventually(
        lambda: (stable := ends(IsolationLevel.READ_COMMITTED)) == ends(IsolationLevel.READ_UNCOMMITTED) and stable,
        deadline_s=60,
        what="every transaction to end",
    )
    assert isinstance(latest, list)
    started = time.monotonic()
    reads = [
        Read(f"{TOPIC}-{partition}", offset, int(value))
        for partition, end in enumerate(latest)
        for offset, _, value in contents(bootstrap, TOPIC, partition, end)
    ]
    return Operation(0, started, time.monotonic(), reads=tuple(reads))


def contents(bootstrap: str, topic: str, partition: int, end: int) -> Iterator[tuple[int, bytes | None, bytes]]:
    """Committed records up to an offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    deadline = time.monotonic() + 60
    try:
        while True:
            assert time.monotonic() < deadline, f"{topic}-{partition} could not be read to offset {end}"
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is not None:  # only the end of the partition
                return
            yield int(message.offset() or 0), message.key(), message.value() or b""
    finally:
        consumer.close()


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(TOPIC, PARTITIONS, 1, config=TOPIC_SETTINGS),
        NewTopic(COMPACTED_TOPIC, 1, 1, config=COMPACTED_SETTINGS),
    ]
    for created in admin.create_topics(topics).values():
        created.result(10)


def under_kills(folder: Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    broker = Broker(folder)
    broker.start()
    create_topics(broker.bootstrap)
    with clients(broker.bootstrap, folder) as processes:
        for number in range(kills):
            time.sleep(rng.uniform(0.02, 0.9))  # a random instant is what this is about
            if number % 5 == 4:
                pause(rng.choice(processes), rng.choice([0.3, 2.5]))  # at times longer than a transaction may take
            broker.end(signal.SIGKILL)
            if number % 6 == 5:  # also while it recovers
                broker.start(wait=False)
                time.sleep(rng.uniform(0.0, 0.3))
                broker.end(signal.SIGKILL)
            broker.start()
        stop(processes, folder)
    try:
        history = [each for file in folder.glob("[srt]*-*") for each in load(file)]
        history.append(everything_read(broker.bootstrap))
        anomalies = check(history)
        assert not anomalies, "\n".join(map(str, anomalies[:20]))
        assert_worked(history, kills)
        assert_state_is_kept(broker.bootstrap, folder)
        assert_positions_are_kept(broker.bootstrap, folder)
    finally:
        broker.end(signal.SIGTERM)
    assert main(["verify", str(folder / "data")]) == 0


def assert_worked(history: list[Operation], kills: int) -> None:
    """The checker had something to check."""
    acknowledged = sum(len(each.sends) for each in history if each.outcome is Outcome.OK)
    committed = [each for each in history if each.committing is not None and each.outcome is Outcome.OK]
    aborted = [each for each in history if each.sends and each.outcome is Outcome.FAILED]
    assert acknowledged > 20 * kills
    assert len(committed) > kills
    assert aborted


def assert_positions_are_kept(bootstrap: str, folder: Path) -> None:
    """Offsets committed in a transaction are there if it was, and are not if it was aborted."""
    checked = 0
    for number, kind in enumerate(CLIENTS, 1):
        if kind != "transactor":
            continue
        known = json.loads((folder / f"positions-{number}").read_text().splitlines()[-1])
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_of(number)})
        answers = consumer.committed([TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)], 30)
        consumer.close()
        if known is not None:  # otherwise the last commit had no answer
            found = {str(at.partition): at.offset for at in answers}
            assert {partition: found[partition] for partition in known} == known
            checked += 1
    assert checked


def assert_state_is_kept(bootstrap: str, folder: Path) -> None:
    """Of a compacted topic: the last acknowledged value of each key, or a later one."""
    acknowledged: dict[str, int] = {}
    for file in folder.glob("updater-*"):
        for line in file.read_text().splitlines():
            key, value = line.split()
            acknowledged[key] = int(value)
    found = {(key or b"").decode(): int(value) for _, key, value in contents(bootstrap, COMPACTED_TOPIC, 0, 0)}
    assert acknowledged
    assert {key: value for key, value in acknowledged.items() if found.get(key, -1) < value} == {}


@pytest.mark.timeout(240)
def test_thirty_kills_lose_duplicate_and_show_nothing_they_should_not(tmp_path: Path) -> None:
    under_kills(tmp_path, kills=30, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_three_hundred_kills_lose_duplicate_and_show_nothing_they_should_not(tmp_path: Path) -> None:
    under_kills(tmp_path, kills=300, seed=random.randrange(1_000_000))
