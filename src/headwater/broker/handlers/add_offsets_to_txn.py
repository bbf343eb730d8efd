"""AddOffsetsToTxn 0-4: the partition that holds a group's offsets joins the transaction; TxnOffsetCommit follows."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.transactions.driver import coordinator
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

__all__ = ["API_KEY", "handle"]

API_KEY = 25

KNOWS_FENCED_FROM = 2  # earlier versions say INVALID_PRODUCER_EPOCH to a fenced producer


async def handle(call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    if not request.transactional_id or not request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    transactions = coordinator(call.broker)
    outcome = await transactions.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        frozenset([transactions.partition_of_group(request.group_id)]),
        0,
    )
    error = outcome.error
    if error is ErrorCode.PRODUCER_FENCED and call.header.api_version < KNOWS_FENCED_FROM:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=error)
