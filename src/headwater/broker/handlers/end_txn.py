"""EndTxn 0-5: commit or abort. Version 5 (transaction version 2) moves the producer's epoch on and answers it."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.transactions.driver import coordinator
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

__all__ = ["API_KEY", "handle"]

API_KEY = 26

KNOWS_FENCED_FROM = 2  # earlier versions say INVALID_PRODUCER_EPOCH to a fenced producer
TRANSACTION_VERSION_2_FROM = 5


async def handle(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    version = call.header.api_version
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    outcome = await coordinator(call.broker).end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        commit=request.committed,
        version=2 if version >= TRANSACTION_VERSION_2_FROM else 0,
    )
    error = outcome.error
    if error is ErrorCode.PRODUCER_FENCED and version < KNOWS_FENCED_FROM:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=error, producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch)
