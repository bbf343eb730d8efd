"""UpdateFeatures 0-2: features are fixed; asking for what they are already is fine, anything else is refused."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.handlers.api_versions import FEATURES
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 57


def handle(call: Call, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    results = tuple(map(_result, request.feature_updates))
    failed = next((result for result in results if result.error_code), None)
    if failed is not None and call.header.api_version >= 2:  # from then on the whole request has one result
        return UpdateFeaturesResponse(error_code=failed.error_code, error_message=failed.error_message)
    return UpdateFeaturesResponse(results=results)


def _result(update: FeatureUpdateKey) -> UpdatableFeatureResult:
    levels = FEATURES.get(update.feature)
    if levels is None:
        reason = f"this broker does not know the feature {update.feature}"
    elif update.max_version_level != levels[1]:
        reason = f"{update.feature} is {levels[1]} in this release and cannot be changed to {update.max_version_level}"
    else:
        return UpdatableFeatureResult(feature=update.feature)
    return UpdatableFeatureResult(
        feature=update.feature, error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=reason
    )
