"""One client as a process of its own, so that it can be stopped and go on: writes what it does into a history.

    python -m faults.client KIND PROCESS BOOTSTRAP FILE

KIND: `sender` (idempotent, a few records in flight), `transactor` (reads, writes and commits its positions in
transactions, some aborted; the positions that are certain go to a file beside the history), `reader` (committed records
from the beginning), `updater` (a few keys of a compacted topic, again and again). It ends on SIGTERM after what it is
doing, and says where it is on SIGUSR1.
"""

from __future__ import annotations

import faulthandler
import json
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from histories.history import Operation, Outcome, Read, Send, save

__all__ = ["COMPACTED_TOPIC", "PARTITIONS", "TOPIC", "TRANSACTION_TIMEOUT_MS", "group_of"]

TOPIC = "history"
PARTITIONS = 3
COMPACTED_TOPIC = "state"
KEYS = 20
TRANSACTION_TIMEOUT_MS = 2_000
ATTEMPTS_MAX = 5  # of one call, each of which waits for up to 10 s
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 0}


def group_of(number: int) -> str:
    return f"g{number}"


class Client:
    def __init__(self, number: int, bootstrap: str, file: Path) -> None:
        self.number = number
        self.bootstrap = bootstrap
        self.file = file
        self.rng = random.Random(number)
        self.stopped = False
        self._values = number * 10_000_000
        signal.signal(signal.SIGTERM, self._stop)
        faulthandler.register(signal.SIGUSR1)

    def _stop(self, *_: object) -> None:
        self.stopped = True

    def value(self) -> int:
        self._values += 1
        return self._values

    def save(self, *operations: Operation) -> None:
        save(self.file, operations)

    def save_positions(self, outcome: Outcome, positions: list[TopicPartition]) -> None:
        """What the group's offsets are from now on, if that is certain."""
        if outcome is not Outcome.FAILED:
            known = {at.partition: at.offset for at in positions} if outcome is Outcome.OK else None
            with self.file.with_name(f"positions-{self.number}").open("a") as file:
                file.write(json.dumps(known) + "\n")

    def producer(self, **options: Any) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, "acks": "all", **QUICK, **options})

    def consumer(self) -> Consumer:
        """Of committed records, from the beginning, without a group."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group_of(self.number),
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                **QUICK,
            }
        )
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        return consumer

    def send(self, producer: Producer, topic: str, key: bytes | None = None) -> dict[str, Any]:
        """Begin to send one value; the result fills in later."""
        sent: dict[str, Any] = {"value": self.value(), "partition": self.rng.randrange(PARTITIONS), "offset": None}

        def delivered(error: KafkaError | None, message: Message) -> None:
            sent["error"] = error
            sent["offset"] = message.offset() if error is None else None

        partition = sent["partition"] if key is None else 0
        producer.produce(topic, str(sent["value"]).encode(), key, partition=partition, on_delivery=delivered)
        return sent


def as_send(sent: dict[str, Any]) -> Send:
    return Send(f"{TOPIC}-{sent['partition']}", sent["value"], sent["offset"])


def polled(consumer: Consumer, most: int, timeout_s: float) -> tuple[Read, ...]:
    found = []
    for message in consumer.consume(most, timeout_s):
        error = message.error()
        if error is None:
            found.append(
                Read(f"{TOPIC}-{message.partition()}", int(message.offset() or 0), int(message.value() or b""))
            )
        elif not error.retriable() and error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            raise KafkaException(error)
    return tuple(found)


def send_on_and_on(client: Client) -> None:
    producer = client.producer(**{"enable.idempotence": True, "message.timeout.ms": 60_000})
    while not client.stopped:
        started = time.monotonic()
        sends = [client.send(producer, TOPIC) for _ in range(client.rng.randrange(1, 6))]
        producer.flush(70)
        for sent in sends:
            outcome = Outcome.OK if sent["offset"] is not None else Outcome.UNKNOWN
            client.save(Operation(client.number, started, time.monotonic(), outcome, sends=(as_send(sent),)))


def update_on_and_on(client: Client) -> None:
    producer = client.producer(**{"enable.idempotence": True, "message.timeout.ms": 60_000})
    while not client.stopped:
        keys = [f"{client.number}-{client.rng.randrange(KEYS)}" for _ in range(20)]
        sends = [(key, client.send(producer, COMPACTED_TOPIC, key.encode())) for key in keys]
        producer.flush(70)
        with client.file.open("a") as file:
            file.writelines(f"{key} {sent['value']}\n" for key, sent in sends if sent["offset"] is not None)


def read_on_and_on(client: Client) -> None:
    consumer = client.consumer()
    while not client.stopped:
        started = time.monotonic()
        reads = polled(consumer, 100, 0.1)
        if reads:
            client.save(Operation(client.number, started, time.monotonic(), reads=reads))
    consumer.close()


def transact_on_and_on(client: Client) -> None:
    consumer = client.consumer()
    while not client.stopped:
        producer = client.producer(
            **{
                "transactional.id": f"t{client.number}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "metadata.recovery.strategy": "none",  # see headwater.client: librdkafka loses the coordinator else
            }
        )
        try:
            retried(lambda producer=producer: producer.init_transactions(10))  # type: ignore[misc]
            while not client.stopped and transaction(client, producer, consumer):
                pass
        except KafkaException:
            pass  # fenced, or otherwise at its end: another producer with the same id takes over
    consumer.close()


def transaction(client: Client, producer: Producer, consumer: Consumer) -> bool:
    """One transaction; whether the producer can go on."""
    started = time.monotonic()
    producer.begin_transaction()
    reads = polled(consumer, 20, 0.01)
    positions = [at for at in consumer.position(consumer.assignment()) if at.offset >= 0]
    sends = [client.send(producer, TOPIC) for _ in range(client.rng.randrange(1, 5))]
    committing, outcome = None, Outcome.FAILED
    try:
        if positions:
            group = consumer.consumer_group_metadata()
            retried(lambda: producer.send_offsets_to_transaction(positions, group, 10))
        if client.rng.random() < 0.2:
            retried(lambda: producer.abort_transaction(10))
        else:
            committing = time.monotonic()
            outcome = commit(producer)
        if outcome is not Outcome.OK:
            return all_are_acknowledged(sends)
    except KafkaException as error:
        if committing is None and error.args[0].txn_requires_abort():
            retried(lambda: producer.abort_transaction(10))
            return all_are_acknowledged(sends)
        outcome = Outcome.UNKNOWN if committing is not None else Outcome.FAILED
        return False
    finally:
        client.save_positions(outcome, positions)
        client.save(
            Operation(
                client.number,
                started,
                time.monotonic(),
                outcome,
                tuple(map(as_send, sends)),
                reads,
                committing,
            )
        )
    return True


def all_are_acknowledged(sends: list[dict[str, Any]]) -> bool:
    """Whether a producer that has aborted may go on: librdkafka gives the sequence numbers of records without an answer
    to the next ones, which a log that has them takes for a repetition (seen with 2.16). A new producer has a new epoch.
    """
    return all(sent["offset"] is not None for sent in sends)


def commit(producer: Producer) -> Outcome:
    """OK, or FAILED when it had to be aborted and that is certain; any other error is raised."""
    try:
        retried(lambda: producer.commit_transaction(10))
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        retried(lambda: producer.abort_transaction(10))
        return Outcome.FAILED
    return Outcome.OK


def retried(call: Callable[[], Any]) -> None:
    """While the client says that trying again is right; not for ever: librdkafka sometimes stops to look for its
    coordinator, and a new producer finds it.
    """
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            call()
        except KafkaException as error:
            print(f"{time.monotonic():.3f} {error}", file=sys.stderr, flush=True)
            if not error.args[0].retriable() or attempt == ATTEMPTS_MAX:
                raise
        else:
            return


if __name__ == "__main__":
    kind, number, bootstrap, file = sys.argv[1:]
    kinds = {
        "sender": send_on_and_on,
        "transactor": transact_on_and_on,
        "reader": read_on_and_on,
        "updater": update_on_and_on,
    }
    kinds[kind](Client(int(number), bootstrap, Path(file)))
