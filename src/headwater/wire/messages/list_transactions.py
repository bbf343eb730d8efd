"""ListTransactions, Kafka's API 66, versions 0 to 2."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, int16, int32, int64, string

__all__ = ["ListTransactionsRequest", "ListTransactionsResponse", "TransactionState"]


class ListTransactionsRequest(Struct):
    state_filters: tuple[str, ...] = array(string)
    producer_id_filters: tuple[int, ...] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: tuple[str, ...] = array(string)
    transaction_states: tuple[TransactionState, ...] = array(TransactionState)
