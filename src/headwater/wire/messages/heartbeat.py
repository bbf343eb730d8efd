"""Heartbeat, Kafka's API 12, versions 0 to 4."""

from __future__ import annotations

from headwater.wire.fields import Struct, int16, int32, string

__all__ = ["HeartbeatRequest", "HeartbeatResponse"]


class HeartbeatRequest(Struct):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Struct):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
