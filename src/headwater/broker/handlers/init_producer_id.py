"""InitProducerId 0-5: a producer id, and for a transactional id the epoch that fences its earlier producers.

Two-phase commit (version 6, KIP-939) is not supported, as in the Kafka release whose versions we advertise.
"""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.transactions.driver import coordinator
from headwater.broker.transactions.events import Outcome
from headwater.broker.transactions.metadata import NO_EPOCH, NO_PRODUCER_ID
from headwater.errors import HeadwaterError
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

__all__ = ["API_KEY", "handle"]

API_KEY = 22

KNOWS_FENCED_FROM = 4  # earlier versions say INVALID_PRODUCER_EPOCH to a fenced producer


async def handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    outcome = await _init(call, request)
    error = outcome.error
    if error is ErrorCode.PRODUCER_FENCED and call.header.api_version < KNOWS_FENCED_FROM:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(
        error_code=error, producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch
    )


async def _init(call: Call, request: InitProducerIdRequest) -> Outcome:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return Outcome(ErrorCode.INVALID_REQUEST)
    transactions = coordinator(call.broker)
    if request.transactional_id is None:
        try:
            return Outcome(ErrorCode.NONE, await transactions.next_producer_id(), 0)
        except HeadwaterError:
            return Outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not request.transactional_id:
        return Outcome(ErrorCode.INVALID_REQUEST)
    return await transactions.init_producer(
        request.transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch
    )
