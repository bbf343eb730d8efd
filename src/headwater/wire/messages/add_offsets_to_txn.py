"""AddOffsetsToTxn, Kafka's API 25, versions 0 to 4."""

from __future__ import annotations

from headwater.wire.fields import Struct, int16, int32, int64, string

__all__ = ["AddOffsetsToTxnRequest", "AddOffsetsToTxnResponse"]


class AddOffsetsToTxnRequest(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
