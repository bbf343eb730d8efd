"""ListTransactions 0-2: transactional ids by state and producer id, by duration (1+) and pattern (2+); all must fit."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.groups.regex import InvalidPattern, TopicPattern
from headwater.broker.transactions.driver import coordinator
from headwater.broker.transactions.metadata import Metadata, State
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 66

_LABELS = {state.label for state in State}


def handle(call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
    try:
        pattern = TopicPattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except InvalidPattern:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    now_ms = call.broker.loop.now_ms()
    return ListTransactionsResponse(
        unknown_state_filters=tuple(each for each in request.state_filters if each not in _LABELS),
        transaction_states=tuple(
            TransactionState(
                transactional_id=transactional_id,
                producer_id=metadata.producer_id,
                transaction_state=metadata.state.label,
            )
            for transactional_id, metadata in coordinator(call.broker)
            if _fits(request, metadata, now_ms) and (pattern is None or pattern.matches(transactional_id))
        ),
    )


def _fits(request: ListTransactionsRequest, metadata: Metadata, now_ms: int) -> bool:
    """An id without a transaction has no start time, so it is as old as can be, as in Kafka."""
    if request.producer_id_filters and metadata.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and metadata.state.label not in request.state_filters:
        return False
    return request.duration_filter < 0 or now_ms - metadata.started_ms > request.duration_filter
