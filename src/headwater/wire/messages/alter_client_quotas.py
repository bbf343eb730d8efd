"""AlterClientQuotas, Kafka's API 49, versions 0 to 1."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, boolean, float64, int16, int32, string

__all__ = ["AlterClientQuotasRequest", "AlterClientQuotasResponse", "EntityData", "EntryData", "EntryResult", "OpData"]


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class OpData(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(Struct):
    entity: tuple[EntityData, ...] = array(EntityData)
    ops: tuple[OpData, ...] = array(OpData)


class AlterClientQuotasRequest(Struct):
    entries: tuple[EntryData, ...] = array(EntryData)
    validate_only: bool = boolean()


class EntryResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: tuple[EntityData, ...] = array(EntityData)


class AlterClientQuotasResponse(Struct):
    throttle_time_ms: int = int32()
    entries: tuple[EntryResult, ...] = array(EntryResult)
