"""OffsetDelete 0: committed offsets of topics that the group is not subscribed to."""

from __future__ import annotations

from headwater.broker.call import Call
from headwater.broker.groups.commits import delete_offsets
from headwater.broker.groups.driver import driver_of
from headwater.broker.groups.effects import GroupError
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

__all__ = ["API_KEY", "handle"]

API_KEY = 47


async def handle(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    driver = driver_of(call)
    places = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    try:
        records, codes = delete_offsets(driver.coordinator, request.group_id, places)
    except GroupError as error:
        return OffsetDeleteResponse(error_code=error.code)
    if records:
        code = await driver.store(request.group_id, records)
        if code is not ErrorCode.NONE:
            return OffsetDeleteResponse(error_code=code)
    return OffsetDeleteResponse(
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes[topic.name, partition.partition_index],
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
