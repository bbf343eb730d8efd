"""What a test does to its streams, in order, and other orders in which the same could have come.

A script is a list of batches, a batch a list of steps: rows of a source, or a tick. The order of the rows of one
lane (a producer in a partition of a source) is a fact; how lanes interleave and where batches end is chance. `shuffled`
draws another chance. Ticks stay where they are: rows do not cross them, and a batch ends behind each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

__all__ = ["Batch", "Fed", "Ticked", "shuffled"]


@dataclass(frozen=True, slots=True)
class Fed:
    """A row of a source."""

    source: str
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ticked:
    """Processing time moves on: microseconds since 1970."""

    at: int


@dataclass
class Batch:
    """The steps of one micro-batch."""

    steps: list[Fed | Ticked] = field(default_factory=list)


Lane = tuple[Any, ...]


def shuffled(script: Sequence[Batch], lane_of: Callable[[Fed], Lane], chance: Random) -> list[Batch]:
    """The script with its lanes interleaved anew and its batches cut anew."""
    batches: list[Batch] = []
    segment: list[Fed] = []
    for step in [step for batch in script for step in batch.steps]:
        if isinstance(step, Fed):
            segment.append(step)
            continue
        batches += _cut(_interleaved(segment, lane_of, chance), chance)
        if batches and chance.random() < 0.5:
            batches[-1].steps.append(step)
        else:
            batches.append(Batch([step]))
        segment = []
    return batches + _cut(_interleaved(segment, lane_of, chance), chance)


def _interleaved(rows: Sequence[Fed], lane_of: Callable[[Fed], Lane], chance: Random) -> list[Fed]:
    """The rows of each lane in their order, the lanes in any."""
    lanes: dict[Lane, list[Fed]] = {}
    for row in rows:
        lanes.setdefault(lane_of(row), []).append(row)
    turns = [lane for lane, own in lanes.items() for _ in own]
    chance.shuffle(turns)
    waiting = {lane: iter(own) for lane, own in lanes.items()}
    return [next(waiting[lane]) for lane in turns]


def _cut(rows: Sequence[Fed], chance: Random) -> list[Batch]:
    """The rows in batches, from one of all to one for each row."""
    share = chance.choice((0.0, 0.1, 0.3, 0.6, 1.0))
    batches: list[Batch] = []
    for number, row in enumerate(rows):
        if number == 0 or chance.random() < share:
            batches.append(Batch())
        batches[-1].steps.append(row)
    return batches
