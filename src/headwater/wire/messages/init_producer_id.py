"""InitProducerId, Kafka's API 22, versions 0 to 5."""

from __future__ import annotations

from headwater.wire.fields import Struct, boolean, int16, int32, int64, string

__all__ = ["InitProducerIdRequest", "InitProducerIdResponse"]


class InitProducerIdRequest(Struct):
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
