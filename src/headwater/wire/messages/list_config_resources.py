"""ListConfigResources, Kafka's API 74, versions 0 to 1."""

from __future__ import annotations

from headwater.wire.fields import Struct, array, int8, int16, int32, string

__all__ = ["ConfigResource", "ListConfigResourcesRequest", "ListConfigResourcesResponse"]


class ListConfigResourcesRequest(Struct):
    resource_types: tuple[int, ...] = array(int8, "1+")


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


class ListConfigResourcesResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: tuple[ConfigResource, ...] = array(ConfigResource)
