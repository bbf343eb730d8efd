"""ApiVersions 0-4: what this broker speaks, and its finalized features.

A request of an unknown version is answered in version 0 with error 35 and all ranges (KIP-511), so that the client
tries again. Features are those of a Kafka 4.3 without share and streams groups. Only `transaction.version` changes
what clients do: from 2 on Java and franz-go add partitions to transactions by producing to them. Features that start
at 0 are left out before version 4, whose readers refuse 0.
"""

from __future__ import annotations

import re
from functools import cache

from headwater.broker.call import Call
from headwater.broker.dispatch import supported_apis
from headwater.wire.apis import APIS
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

__all__ = ["API_KEY", "FEATURES", "handle", "unsupported_version"]

API_KEY = 18

# name -> (smallest, largest) level; the largest is in force
FEATURES = {
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 30),
    "transaction.version": (0, 2),
}
FINALIZED_EPOCH = 1  # clients ignore features with an epoch below 0; ours never change

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.header.api_version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, names)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        call.peer.software = names
    return _response(call.header.api_version)


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in version 0, to a version we do not know."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges())


@cache
def _response(version: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=_ranges(),
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in FEATURES.items()
            if low > 0 or version >= 4
        ),
        finalized_features_epoch=FINALIZED_EPOCH,
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, min_version_level=high, max_version_level=high)
            for name, (_, high) in FEATURES.items()
            if name != "kraft.version"
        ),
    )


@cache
def _ranges() -> tuple[ApiVersion, ...]:
    return tuple(
        ApiVersion(api_key=key, min_version=APIS[key].min_version, max_version=APIS[key].max_version)
        for key in sorted(supported_apis())
    )
