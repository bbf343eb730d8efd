"""UpdateFeatures, Kafka's API 57, versions 0 to 2."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, boolean, int8, int16, int32, string

__all__ = ["FeatureUpdateKey", "UpdatableFeatureResult", "UpdateFeaturesRequest", "UpdateFeaturesResponse"]


class FeatureUpdateKey(Struct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Struct):
    timeout_ms: int = int32(default=60000)
    feature_updates: tuple[FeatureUpdateKey, ...] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class UpdateFeaturesResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: tuple[UpdatableFeatureResult, ...] = array(UpdatableFeatureResult, "0-1")
