"""FindCoordinator, Kafka's API 10, versions 0 to 6."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, int8, int16, int32, string

__all__ = ["Coordinator", "FindCoordinatorRequest", "FindCoordinatorResponse"]


class FindCoordinatorRequest(Struct):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: tuple[str, ...] = array(string, "4+")


class Coordinator(Struct):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+")


class FindCoordinatorResponse(Struct):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: tuple[Coordinator, ...] = array(Coordinator, "4+")
