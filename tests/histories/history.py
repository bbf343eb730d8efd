"""What concurrent clients did, as each of them saw it: the input of the checker.

A *value* is a number that is sent once in the whole history, so that whoever reads it knows who wrote it. Times are of
one monotonic clock shared by all processes of the machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

__all__ = ["Operation", "Outcome", "Read", "Send", "load", "save"]

Partition = str


class Outcome(StrEnum):
    OK = "ok"  # acknowledged; of a transaction: its commit was
    FAILED = "failed"  # certainly without effect: never asked to commit, or aborted
    UNKNOWN = "unknown"  # no answer, or one that leaves it open


@dataclass(frozen=True)
class Send:
    partition: Partition
    value: int
    offset: int | None = None  # None: no acknowledgement


@dataclass(frozen=True)
class Read:
    partition: Partition
    offset: int
    value: int


@dataclass(frozen=True)
class Operation:
    """One step of a process: a send, a poll, or a transaction of both. `process` does one at a time."""

    process: int
    started: float
    ended: float
    outcome: Outcome = Outcome.OK
    sends: tuple[Send, ...] = field(default=())  # in the order of sending
    reads: tuple[Read, ...] = field(default=())  # in the order of receiving, all polls together
    committing: float | None = None  # when the commit was asked for; None: not a transaction, or never
    rewound: bool = False  # the process set its positions anew before these reads


def save(path: Path, operations: Iterable[Operation]) -> None:
    with path.open("a") as file:
        for operation in operations:
            file.write(json.dumps(asdict(operation)) + "\n")


def load(path: Path) -> Iterator[Operation]:
    with path.open() as file:
        for line in file:
            fields = json.loads(line)
            yield Operation(
                **{
                    **fields,
                    "outcome": Outcome(fields["outcome"]),
                    "sends": tuple(Send(**each) for each in fields["sends"]),
                    "reads": tuple(Read(**each) for each in fields["reads"]),
                }
            )
