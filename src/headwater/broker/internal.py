"""The coordinators' own topics: `__consumer_offsets` and `__transaction_state`, in Kafka's formats.

Both have one partition unless the settings (`offsets.topic.num.partitions`, `transaction.state.log.num.partitions`)
say otherwise: one disk and one thread gain nothing from more, and one log shares its fsyncs best. A data directory
that has more keeps them, so always ask `partition_of`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.broker.promise import Promise

if TYPE_CHECKING:
    from headwater.broker.cluster import Cluster
    from headwater.broker.partitions import Partitions
    from headwater.log.partition import Appended
    from headwater.wire.batches import BatchHeader

__all__ = ["CONSUMER_OFFSETS", "TRANSACTION_STATE", "InternalTopics", "java_string_hash"]

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"


def java_string_hash(text: str) -> int:
    """Java's String.hashCode made non-negative as Kafka does (`& 0x7fffffff`): which partition a key lives in."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        value = (31 * value + (data[position] << 8 | data[position + 1])) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


class InternalTopics:
    """Create on first use, append and wait for the disk, replay."""

    def __init__(self, cluster: Cluster, logs: Partitions) -> None:
        self._cluster = cluster
        self._logs = logs

    def exists(self, topic: str) -> bool:
        return self._cluster.topic(topic) is not None

    def ensure(self, topic: str) -> int:
        """The topic's number of partitions; it is created (compacted, internal) when it is not there yet."""
        found = self._cluster.topic(topic) or self._cluster.create_internal(topic)
        return found.partitions

    def partition_of(self, topic: str, key: str) -> int:
        """Which partition a group or a transactional id belongs to, as Kafka computes it."""
        return java_string_hash(key) % self.ensure(topic)

    def append(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> Promise[Appended]:
        """Append a batch made by `wire.batches`; kept when it is on disk.

        The append itself happens before this returns, so batches land in the order of calls. It fails with
        `AppendRefused` (a full disk, say), which the caller answers as COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR,
        as Kafka does.
        """
        self.ensure(topic)
        return self._logs.require(topic, partition).append_durably(batch)

    def replay(self, topic: str) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """(partition, header, whole batch) of everything kept, oldest first within a partition; control batches too."""
        found = self._cluster.topic(topic)
        for index in range(found.partitions if found else 0):
            for header, batch in self._logs.require(topic, index).batches():
                yield index, header, batch
