"""The topics as the group machines see them: names, ids and numbers of partitions at this moment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol
from uuid import UUID

__all__ = ["TopicFacts", "TopicPartition", "Topics", "metadata_hash"]


class TopicPartition(NamedTuple):
    topic_id: UUID
    partition: int


class TopicFacts(NamedTuple):
    name: str
    topic_id: UUID
    partitions: int


class Topics(Protocol):
    """Answered by the driver from the cluster's metadata, by tests from a dictionary."""

    def by_name(self, name: str) -> TopicFacts | None: ...

    def by_id(self, topic_id: UUID) -> TopicFacts | None: ...

    def names(self) -> Iterator[str]:
        """Every topic a client could subscribe to (internal ones too, as in Kafka)."""
        ...


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """A fingerprint of what a group is subscribed to: another value means that the partitions must be shared out anew.

    Kafka stores such a number too (another function; a group taken over from Kafka is assigned anew once).
    """
    digest = hashlib.blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        facts = topics.by_name(name)
        if facts is not None:
            found = True
            digest.update(b"%b\0%b%d\0" % (name.encode(), facts.topic_id.bytes, facts.partitions))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0
