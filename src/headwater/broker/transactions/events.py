"""What happens to a transactional id, and what is to be done about it.

Events go into `TransactionMachine.step`, effects come out of it. `Reply.token` is whatever the event carried: the
machine never looks at it.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.broker.transactions.metadata import NO_EPOCH, NO_PRODUCER_ID, Metadata, TopicPartition
from headwater.wire.errors import ErrorCode

__all__ = [
    "AddPartitions",
    "Effect",
    "EndTransaction",
    "Event",
    "InitProducer",
    "MarkersFailed",
    "MarkersWritten",
    "Outcome",
    "Reply",
    "Tick",
    "Write",
    "WriteFailed",
    "WriteMarkers",
    "Written",
]


# -- events: what clients ask


@dataclass(frozen=True, slots=True)
class InitProducer:
    token: object
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID  # what the producer had, when it wants to go on after an error (KIP-360)
    producer_epoch: int = NO_EPOCH
    fresh_producer_id: int = NO_PRODUCER_ID  # never used before; needed when `TransactionMachine.needs_fresh_id`


@dataclass(frozen=True, slots=True)
class AddPartitions:
    token: object
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    version: int  # transaction version the client speaks: 0 or 2


@dataclass(frozen=True, slots=True)
class EndTransaction:
    token: object
    producer_id: int
    producer_epoch: int
    commit: bool
    version: int
    fresh_producer_id: int = NO_PRODUCER_ID


# -- events: what became of the effects, and time


@dataclass(frozen=True, slots=True)
class Written:
    """The metadata of the last `Write` is on disk."""


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """It is not, as far as we know: after a crash it may be found there, or not."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """The marker is on disk in every partition of the last `WriteMarkers` that still exists."""


@dataclass(frozen=True, slots=True)
class MarkersFailed:
    """At least one is missing; a later `Tick` tries again."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: time-outs, expiry of unused ids, and whatever a crash or a failure has left undone."""

    expiration_ms: int


Event = InitProducer | AddPartitions | EndTransaction | Written | WriteFailed | MarkersWritten | MarkersFailed | Tick


# -- effects


@dataclass(frozen=True, slots=True)
class Outcome:
    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Write:
    """Record this, durably, then `Written`. A metadata whose state is DEAD is recorded as a tombstone."""

    metadata: Metadata


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Put a commit or abort marker into every partition of the metadata, durably, then `MarkersWritten`."""

    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Reply:
    token: object
    outcome: Outcome


Effect = Write | WriteMarkers | Reply
