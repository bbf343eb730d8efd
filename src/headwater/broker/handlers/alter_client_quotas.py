"""AlterClientQuotas 0-1: set and remove limits of users and client ids. Connection rates by address are not limited
here."""

from __future__ import annotations

import math

from headwater.broker.call import Call
from headwater.broker.quotas import LIMITS, Entity
from headwater.broker.refusals import Refusal
from headwater.log.results import AppendRefused
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    EntryResult,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 49


async def handle(call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    saved = []
    results = []
    for entry in request.entries:
        result = EntryResult(entity=entry.entity)
        try:
            entity, limits = _changed(call, entry)
            if not request.validate_only:
                saved.append(call.broker.quotas.replace(entity, limits))
        except Refusal as refusal:
            result = EntryResult(error_code=refusal.code, error_message=refusal.message, entity=entry.entity)
        except AppendRefused as error:
            result = EntryResult(error_code=error.code, error_message=error.message, entity=entry.entity)
        results.append(result)
    for promise in saved:
        await promise
    return AlterClientQuotasResponse(entries=tuple(results))


def _changed(call: Call, entry: EntryData) -> tuple[Entity, dict[str, float]]:
    """The entity and all of its limits after the operations."""
    entity = tuple(sorted(((part.entity_type, part.entity_name) for part in entry.entity), key=lambda part: part[0]))
    kinds = [kind for kind, _ in entity]
    if not kinds or len(set(kinds)) != len(kinds):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Invalid client quota entity: {kinds}")
    if not set(kinds) <= {"user", "client-id"}:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Quotas are of users and client ids here, not of {kinds}.")
    limits = dict(call.broker.quotas.limits_of(entity))
    for change in entry.ops:
        if change.key not in LIMITS:
            raise Refusal(
                ErrorCode.INVALID_REQUEST, f"Invalid configuration key {change.key}; there are {', '.join(LIMITS)}"
            )
        if change.remove:
            limits.pop(change.key, None)
        elif not math.isfinite(change.value) or change.value <= 0:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Quota {change.key} must be greater than 0")
        else:
            limits[change.key] = change.value
    return entity, limits
