"""One task's transaction against a real broker, without Spark: fencing, skipping, what stays invisible."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from tests.pipeline.logs import coverages, read

from headwater.broker.embedded import Broker
from headwater.client import Connection, ensure_topics
from headwater.pipeline import transactions
from headwater.pipeline.errors import WriteFailed
from headwater.pipeline.markers import Attempt
from headwater.pipeline.transactions import Transaction, begin, ensure_coverage_topic
from headwater.positions import Position

SOURCE = "transactions-source"
INPUTS = Position({(SOURCE, 0): 7, (SOURCE, 1): 9})
AFTER_RESTART_S = 20  # for the next batch; it takes 1 to 3 s, most of it waits between connections


@pytest.fixture
def log(bootstrap: str) -> Connection:
    log = Connection(bootstrap)
    ensure_coverage_topic(log, 2)
    ensure_topics(log, [SOURCE], partitions=2)
    return log


@pytest.fixture
def attempt(unique: str) -> Attempt:
    return Attempt(f"q-{unique}", f"id-{unique}", "run-1", batch=0, task=0, writers=2, inputs="digest")


@pytest.fixture
def topic(log: Connection, unique: str) -> str:
    ensure_topics(log, [f"out-{unique}"], partitions=1)
    return f"out-{unique}"


@pytest.fixture(autouse=True)
def forgetful_worker() -> Iterator[None]:
    """Each test begins as a fresh Python worker does."""
    yield
    for live in transactions._live.values():
        transactions._close(live)
    transactions._live.clear()


def opened(log: Connection, attempt: Attempt) -> Transaction:
    transaction = begin(log, attempt, INPUTS)
    assert transaction is not None
    return transaction


def write(log: Connection, attempt: Attempt, topic: str, *values: bytes) -> bool:
    """Whether there was anything to write."""
    transaction = begin(log, attempt, INPUTS)
    if transaction is None:
        return False
    transaction.send(topic, [{"value": value} for value in values], 10)
    transaction.commit()
    return True


def found(log: Connection, topic: str) -> list[bytes | None]:
    return [message.value() for message in read(log, topic)]


def offsets(log: Connection, group: str, *places: tuple[str, int]) -> list[int]:
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(*place) for place in places])
    admin = log.admin()  # its futures die with it
    answer = admin.list_consumer_group_offsets([asked])[group].result(10)
    return [place.offset for place in answer.topic_partitions or []]


def test_rows_coverage_and_input_positions_become_visible_together(
    log: Connection, attempt: Attempt, topic: str
) -> None:
    transaction = opened(log, attempt)
    transaction.send(topic, [{"value": b"a", "key": b"k"}, {"value": b"b"}], 20)
    transaction.live.producer.flush()
    assert found(log, topic) == []
    assert transaction.commit().offsets == {(topic, 0): 2}
    assert found(log, topic) == [b"a", b"b"]
    [coverage] = coverages(log, attempt.query)
    assert (coverage.batch, coverage.task, coverage.tasks) == (0, 0, 2)
    assert (coverage.inputs, coverage.outputs) == (INPUTS, Position({(topic, 0): 2}))


def test_lag_tools_see_the_query_as_a_consumer_group(log: Connection, attempt: Attempt, topic: str) -> None:
    write(log, attempt, topic, b"a")
    assert offsets(log, attempt.query, (SOURCE, 0), (SOURCE, 1)) == [7, 9]


def test_a_task_that_is_tried_again_after_its_commit_is_skipped(log: Connection, attempt: Attempt, topic: str) -> None:
    assert write(log, attempt, topic, b"a") is True
    assert write(log, replace(attempt, run_id="run-2"), topic, b"a") is False
    assert write(log, attempt, topic, b"a") is False  # in the same worker, with its producer still at hand
    assert found(log, topic) == [b"a"]


def test_the_next_batch_goes_on_with_the_same_producer(log: Connection, attempt: Attempt, topic: str) -> None:
    write(log, attempt, topic, b"a")
    transaction = opened(log, replace(attempt, batch=1, inputs="next"))
    assert transaction.reused
    transaction.commit()


def write_around_a_restart(data: Path, options: dict[str, str], attempt: Attempt) -> list[bytes | None]:
    """What is there of two batches, the second of which is begun while the broker is away."""
    with Broker(data) as broker:
        log = Connection(broker.bootstrap_servers, options)
        ensure_topics(log, ["out", SOURCE], partitions=2)
        write(log, attempt, "out", b"a")
    after = replace(attempt, batch=1, inputs="next")
    writing = threading.Thread(target=write, args=(log, after, "out", b"b"), daemon=True)
    writing.start()
    with Broker(data, listen=log.bootstrap_servers):
        writing.join(AFTER_RESTART_S)
        assert not writing.is_alive()
        return sorted(found(log, "out"), key=str)


def test_a_batch_after_the_broker_was_restarted_does_not_wait_for_ever(tmp_path: Path, attempt: Attempt) -> None:
    assert write_around_a_restart(tmp_path, {}, attempt) == [b"a", b"b"]


def test_a_producer_that_no_longer_finds_its_coordinator_is_replaced(
    tmp_path: Path, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "POSITIONS_TIMEOUT_S", 3.0)
    loses_it = {"metadata.recovery.strategy": "rebootstrap"}
    assert write_around_a_restart(tmp_path, loses_it, attempt) == [b"a", b"b"]


def test_what_an_attempt_left_open_is_aborted_by_the_next(log: Connection, attempt: Attempt, topic: str) -> None:
    dead = opened(log, attempt)
    dead.send(topic, [{"value": b"half"}], 10)
    dead.live.producer.flush()
    assert write(log, replace(attempt, run_id="run-2"), topic, b"whole") is True
    assert found(log, topic) == [b"whole"]


def test_a_zombie_cannot_commit_once_its_successor_has_begun(log: Connection, attempt: Attempt, topic: str) -> None:
    zombie = opened(log, attempt)
    zombie.send(topic, [{"value": b"zombie"}], 10)
    successor = opened(log, replace(attempt, run_id="run-2"))
    with pytest.raises(WriteFailed, match="batch 0, task 0"):
        zombie.commit()
    successor.send(topic, [{"value": b"successor"}], 10)
    successor.commit()
    assert found(log, topic) == [b"successor"]


def test_a_zombie_with_a_producer_of_its_own_notices_before_it_takes_a_row(
    log: Connection, attempt: Attempt, topic: str
) -> None:
    write(log, attempt, topic, b"a")
    [kept] = transactions._live.values()
    transactions._live.clear()  # the successor runs in another process
    assert write(log, replace(attempt, run_id="run-2", batch=1, inputs="next"), topic, b"b") is True
    transactions._live[log.bootstrap_servers, attempt.query, 0] = kept
    assert begin(log, replace(attempt, batch=1, inputs="next"), INPUTS) is None
    assert found(log, topic) == [b"a", b"b"]


def test_the_marker_is_found_in_the_coverage_when_the_group_is_forgotten(
    log: Connection, attempt: Attempt, topic: str
) -> None:
    assert write(log, attempt, topic, b"a") is True
    admin, group = log.admin(), f"{attempt.query}.batches"
    admin.delete_consumer_groups([group])[group].result(10)
    assert write(log, replace(attempt, run_id="run-2"), topic, b"a") is False
    assert found(log, topic) == [b"a"]


def test_a_record_that_the_broker_refuses_fails_the_task_and_leaves_nothing(
    log: Connection, attempt: Attempt, topic: str
) -> None:
    transaction = opened(log, attempt)
    with pytest.raises(WriteFailed, match=r"a record for .* was refused"):
        transaction.send(topic, [{"value": b"fits"}, {"value": b"x" * 2_000_000}], 1_000_000)
    transaction.abort()
    assert found(log, topic) == []
