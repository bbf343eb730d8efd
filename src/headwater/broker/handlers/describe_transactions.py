"""DescribeTransactions 0: what the coordinator knows of transactional ids."""

from __future__ import annotations

from itertools import groupby

from headwater.broker.call import Call
from headwater.broker.transactions.driver import coordinator
from headwater.broker.transactions.metadata import Metadata
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 65


def handle(call: Call, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=tuple(
            _describe(each, coordinator(call.broker).metadata(each)) for each in request.transactional_ids
        )
    )


def _describe(transactional_id: str, metadata: Metadata | None) -> TransactionState:
    if metadata is None:
        return TransactionState(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.label,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.started_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=tuple(
            TopicData(topic=topic, partitions=tuple(index for _, index in group))
            for topic, group in groupby(sorted(metadata.partitions), key=lambda each: each[0])
        ),
    )
