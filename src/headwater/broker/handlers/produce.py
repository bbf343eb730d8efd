"""Produce 3-13: append batches to partitions, each answered for itself.

Batches are appended in the order of requests, before this returns. acks=1 is then answered at once, acks=all when the
records are on disk (or in the page cache, for topics with relaxed flushing), acks=0 never; a failed acks=0 closes the
connection, as that is the only way to tell. `timeout_ms` is not looked at: the wait is that of one fsync, and its
failure answers too.

A transactional batch must belong to an open transaction of its producer: to one in the partition already, or the
transaction coordinator is asked first (and, from version 12 on, adds the partition to the transaction).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from time import perf_counter_ns
from typing import Any

import msgspec

from headwater.broker.call import Call, Disconnect
from headwater.broker.cluster import INTERNAL_TOPICS
from headwater.broker.connection import Acknowledgement
from headwater.broker.partitions import Partition
from headwater.broker.promise import Promise
from headwater.broker.quotas import PRODUCER
from headwater.log.results import AppendRefused, StorageFailed
from headwater.wire.batches import parse_header
from headwater.wire.errors import CorruptBatch, ErrorCode
from headwater.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 0

ACKS_ALL = -1
ADDS_PARTITIONS_FROM = 12  # the version from which producing adds the partition to the transaction (KIP-890)

Refused = Mapping[tuple[str, int], ErrorCode]  # partitions that the transaction coordinator refused

_NOBODY: Refused = {}


def handle(call: Call, request: ProduceRequest) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    if request.transactional_id is not None:
        admitted = _admit(call, request)
        if isinstance(admitted, ErrorCode):
            if admitted is not ErrorCode.NONE:
                return _answer(call, request, _refuse_all(call, request, admitted))
        else:
            return _append_when_admitted(call, _kept(request), admitted)
    return _answer(call, request, _NOBODY)


def _answer(call: Call, request: ProduceRequest, refused: Refused) -> ProduceResponse | Promise[ProduceResponse] | None:
    started = perf_counter_ns()
    collected = _Collected(call, request)
    collected.append_all(refused)
    call.broker.metrics.append_times.add(perf_counter_ns() - started)
    if request.acks == 0:
        if collected.failed:
            raise Disconnect(f"a Produce with acks=0 failed: {collected.failed}")
        return None
    if collected.waiting:
        return collected.promise
    return collected.response()


class _Collected:
    """The answers of one request's partitions, as they come."""

    __slots__ = ("_call", "_request", "_sizes", "failed", "promise", "topics", "waiting")

    def __init__(self, call: Call, request: ProduceRequest) -> None:
        self.topics: list[tuple[TopicProduceData, list[PartitionProduceResponse]]] = []
        self.waiting = 0
        self.failed = ""
        self.promise = Acknowledgement()
        self._call = call
        self._request = request
        self._sizes = 0

    def append_all(self, refused: Refused) -> None:
        self.waiting = 1  # callbacks may come while the loop below runs; the answer is complete when it is done
        by_id = self._call.header.api_version >= 13
        for data in self._request.topic_data:
            answers: list[PartitionProduceResponse] = []
            self.topics.append((data, answers))
            name = data.name
            if by_id:
                topic = self._call.broker.cluster.topic_by_id(data.topic_id)
                name = topic.name if topic is not None else ""
            for each in data.partition_data:
                answers.append(self._append(name, each, answers, refused, by_id))
        self.waiting -= 1

    def response(self) -> ProduceResponse:
        call = self._call
        throttled_ms = call.broker.quotas.charge_bytes(
            PRODUCER, call.peer.principal, call.header.client_id, self._sizes
        )
        return ProduceResponse(
            responses=tuple(
                TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=tuple(answers))
                for data, answers in self.topics
            ),
            throttle_time_ms=throttled_ms,
        )

    def _append(
        self,
        topic: str,
        data: PartitionProduceData,
        answers: list[PartitionProduceResponse],
        refused: Refused,
        by_id: bool,
    ) -> PartitionProduceResponse:
        index = data.index
        partition = self._call.broker.logs.partition(topic, index)
        try:
            if partition is None:
                raise _unknown(topic, index, by_id)
            if refused:
                _raise_refusal(refused.get((topic, index)), topic, index)
            records = data.records
            self._check(partition, records)
            assert records is not None
            appended = partition.append(records)
        except (AppendRefused, StorageFailed) as error:
            return self._error(index, error)
        self._sizes += len(records)
        self._call.broker.metrics.bytes_in[topic] += len(records)
        if self._request.acks != ACKS_ALL:
            partition.commit(appended.last_offset)
        else:
            self._wait(partition, appended.last_offset, answers)
        return PartitionProduceResponse(
            index=index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=appended.log_start_offset,
        )

    def _check(self, partition: Partition, records: Any) -> None:
        if self._request.acks not in (-1, 0, 1):
            raise AppendRefused(
                ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {self._request.acks}, which is none of -1, 0 and 1"
            )
        if not records:
            raise AppendRefused(ErrorCode.INVALID_RECORD, "no records were sent for this partition")
        if partition.topic in INTERNAL_TOPICS and self._call.header.client_id != "__admin_client":
            raise AppendRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic}")

    def _wait(self, partition: Partition, last_offset: int, answers: list[PartitionProduceResponse]) -> None:
        position = len(answers)
        at_once: list[StorageFailed] = []
        self.waiting += 1

        def durable(error: StorageFailed | None) -> None:
            if error is not None and position == len(answers):
                at_once.append(error)
            elif error is not None:
                answers[position] = self._error(partition.index, error)
            self.waiting -= 1
            if not self.waiting:
                self.promise.resolve(self.response())

        partition.when_durable(last_offset, durable)
        if at_once:
            raise at_once[0]

    def _error(self, index: int, error: AppendRefused | StorageFailed) -> PartitionProduceResponse:
        code = error.code if isinstance(error, AppendRefused) else ErrorCode.KAFKA_STORAGE_ERROR
        self.failed = str(error)
        self._call.broker.metrics.error(code.name)
        return PartitionProduceResponse(
            index=index, error_code=code, base_offset=-1, log_start_offset=-1, error_message=str(error)
        )


def _unknown(topic: str, index: int, by_id: bool) -> AppendRefused:
    if by_id and not topic:
        return AppendRefused(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    return AppendRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")


def _raise_refusal(code: ErrorCode | None, topic: str, index: int) -> None:
    if code is not None:
        raise AppendRefused(code, f"the transaction coordinator refused to write to {topic}-{index}")


# -- transactions


def _admit(call: Call, request: ProduceRequest) -> ErrorCode | Awaitable[ErrorCode]:
    """Ask the coordinator about the partitions in which the producer has no open transaction yet."""
    wanted: dict[str, list[int]] = {}
    producer = None
    for topic, data in _partitions(call, request):
        partition = call.broker.logs.partition(topic, data.index)
        if partition is None or not data.records:
            continue
        try:
            header = parse_header(data.records)
        except CorruptBatch:
            continue  # the append says so
        if header.transactional and partition.log.open_transaction(header.producer_id) is None:
            producer = header
            wanted.setdefault(topic, []).append(data.index)
    if producer is None or not call.broker.config.flag("transaction.partition.verification.enable"):
        return ErrorCode.NONE
    assert request.transactional_id is not None
    return call.broker.transactions.admit_produce(
        request.transactional_id,
        producer.producer_id,
        producer.producer_epoch,
        wanted,
        adds_partitions=call.header.api_version >= ADDS_PARTITIONS_FROM,
    )


async def _append_when_admitted(
    call: Call, request: ProduceRequest, admitted: Awaitable[ErrorCode]
) -> ProduceResponse | None:
    code = await admitted
    refused = _NOBODY if code is ErrorCode.NONE else _refuse_all(call, request, code)
    answer = _answer(call, request, refused)
    return await answer if isinstance(answer, Promise) else answer


def _refuse_all(call: Call, request: ProduceRequest, code: ErrorCode) -> Refused:
    return {(topic, data.index): code for topic, data in _partitions(call, request)}


def _partitions(call: Call, request: ProduceRequest) -> list[tuple[str, PartitionProduceData]]:
    found = []
    for data in request.topic_data:
        name = data.name
        if call.header.api_version >= 13:
            topic = call.broker.cluster.topic_by_id(data.topic_id)
            name = topic.name if topic is not None else ""
        found += [(name, each) for each in data.partition_data]
    return found


def _kept(request: ProduceRequest) -> ProduceRequest:
    """The request with its own copy of the records: the receive buffer is used again before the coordinator answers."""
    replace = msgspec.structs.replace
    return replace(
        request,
        topic_data=tuple(
            replace(
                topic,
                partition_data=tuple(
                    replace(data, records=None if data.records is None else bytes(data.records))
                    for data in topic.partition_data
                ),
            )
            for topic in request.topic_data
        ),
    )
