"""EndTxn, Kafka's API 26, versions 0 to 5."""

from __future__ import annotations

from headwater.wire.fields import Struct, boolean, int16, int32, int64, string

__all__ = ["EndTxnRequest", "EndTxnResponse"]


class EndTxnRequest(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)
