"""What is known of one transactional id: the content of a record of `__transaction_state`.

A `Metadata` is a value. Each change of state makes a new one, which counts once its record is on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "EPOCH_MAX",
    "NO_EPOCH",
    "NO_PRODUCER_ID",
    "NO_TIMESTAMP",
    "Metadata",
    "State",
    "TopicPartition",
    "epoch_exhausted",
]

TopicPartition = tuple[str, int]

NO_PRODUCER_ID = -1
NO_EPOCH = -1  # of a transactional id that nobody has initialised yet
NO_TIMESTAMP = -1
EPOCH_MAX = 2**15 - 1  # epochs are int16 in the protocol and in every batch header

EPOCH_LAST_USABLE = EPOCH_MAX - 1  # a producer is never given the very last one: fencing it must still be possible


class State(IntEnum):
    """Kafka's states of a transaction; the numbers are those of the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = (
        7  # never recorded: fencing and aborting are one record here; listed because clients may ask for it
    )

    @property
    def label(self) -> str:
        """As DescribeTransactions and ListTransactions spell it: `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def preparing(self) -> bool:
        """Decided and recorded; the partitions may not know yet."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def idle(self) -> bool:
        """No transaction is open: a new one may begin, a producer may be initialised, the id may expire."""
        return self in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIMESTAMP
    updated_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID  # the one before `producer_id`, when its epochs were used up
    next_producer_id: int = NO_PRODUCER_ID  # the one that takes over when the transaction being ended is complete
    last_epoch: int = NO_EPOCH  # the epoch before `producer_epoch`, when its holder may ask again; not recorded
    version: int = 0  # transaction version of the client: 2 bumps the epoch at the end of each transaction

    @property
    def exhausted(self) -> bool:
        return epoch_exhausted(self.producer_epoch)

    @property
    def identity_after(self) -> tuple[int, int]:
        """Producer id and epoch that the client goes on with once the transaction being ended is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


def epoch_exhausted(epoch: int) -> bool:
    """A producer at this epoch needs a new producer id instead of the next epoch."""
    return epoch >= EPOCH_LAST_USABLE
