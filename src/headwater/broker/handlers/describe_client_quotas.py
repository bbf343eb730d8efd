"""DescribeClientQuotas 0-1: the limits of entities that match every component asked for.

A component matches a name (0), the default entity (1), or any of its type (2); `strict` leaves out entities with
further components.
"""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.quotas import Entity
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 48

EXACT, DEFAULT, ANY = range(3)
ENTITY_TYPES = ("user", "client-id", "ip")


def handle(call: Call, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    unknown = [each.entity_type for each in request.components if each.entity_type not in ENTITY_TYPES]
    if unknown:
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message=f"Custom entity type '{unknown[0]}' not supported",
            entries=None,
        )
    return DescribeClientQuotasResponse(
        entries=tuple(
            EntryData(
                entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
                values=tuple(ValueData(key=key, value=value) for key, value in sorted(limits.items())),
            )
            for entity, limits in call.broker.quotas.entities()
            if _matches(entity, request)
        )
    )


def _matches(entity: Entity, request: DescribeClientQuotasRequest) -> bool:
    parts = dict(entity)
    if request.strict and len(parts) != len(request.components):
        return False
    return all(
        component.entity_type in parts and _fits(component, parts[component.entity_type])
        for component in request.components
    )


def _fits(component: ComponentData, name: str | None) -> bool:
    if component.match_type == EXACT:
        return name is not None and name == component.match
    return name is None if component.match_type == DEFAULT else True
