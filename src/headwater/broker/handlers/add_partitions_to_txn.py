"""AddPartitionsToTxn 0-5: partitions join a transaction, which begins with the first of them.

Versions 0-3 are clients' (one transaction, all partitions or none). 4 and 5 are brokers' in a cluster (several
transactions, or only asking whether partitions belong to one); they are answered to whoever speaks them.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.broker.call import Call
from headwater.broker.transactions.driver import coordinator
from headwater.broker.transactions.metadata import TopicPartition
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 24

KNOWS_FENCED_FROM = 2  # earlier versions say INVALID_PRODUCER_EPOCH to a fenced producer
BATCHED_FROM = 4
KNOWS_ABORTABLE_FROM = 5

Topics = tuple[AddPartitionsToTxnTopic, ...]
Results = tuple[AddPartitionsToTxnTopicResult, ...]


async def handle(call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    if call.header.api_version >= BATCHED_FROM:
        return AddPartitionsToTxnResponse(
            results_by_transaction=tuple([await _transaction(call, each) for each in request.transactions])
        )
    results = await _add(
        call,
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


async def _transaction(call: Call, each: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    arguments = (call, each.transactional_id, each.producer_id, each.producer_epoch, each.topics)
    results = _verify(*arguments) if each.verify_only else await _add(*arguments)
    return AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=results)


async def _add(call: Call, transactional_id: str, producer_id: int, producer_epoch: int, topics: Topics) -> Results:
    if not transactional_id:
        return _all(topics, ErrorCode.INVALID_REQUEST)
    unknown = {each for each in _partitions(topics) if call.broker.logs.partition(*each) is None}
    if unknown:
        return _results(topics, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED)
    version = 2 if call.header.api_version >= BATCHED_FROM else 0
    outcome = await coordinator(call.broker).add_partitions(
        transactional_id, producer_id, producer_epoch, frozenset(_partitions(topics)), version
    )
    return _all(topics, _for_version(call, outcome.error))


def _verify(call: Call, transactional_id: str, producer_id: int, producer_epoch: int, topics: Topics) -> Results:
    transactions = coordinator(call.broker)
    codes = {
        each: _for_version(call, transactions.verify(transactional_id, producer_id, producer_epoch, each))
        for each in _partitions(topics)
    }
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(_result(index, codes[topic.name, index]) for index in topic.partitions),
        )
        for topic in topics
    )


def _for_version(call: Call, code: ErrorCode) -> ErrorCode:
    version = call.header.api_version
    if code is ErrorCode.PRODUCER_FENCED and version < KNOWS_FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < KNOWS_ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _partitions(topics: Topics) -> Iterable[TopicPartition]:
    return ((topic.name, index) for topic in topics for index in topic.partitions)


def _all(topics: Topics, code: ErrorCode) -> Results:
    return _results(topics, set(), code, code)


def _results(topics: Topics, chosen: set[TopicPartition], code: ErrorCode, other: ErrorCode) -> Results:
    """`code` for the chosen partitions, `other` for the rest."""
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                _result(index, code if (topic.name, index) in chosen else other) for index in topic.partitions
            ),
        )
        for topic in topics
    )


def _result(index: int, code: ErrorCode) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
