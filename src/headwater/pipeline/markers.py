"""Whether a task of a micro-batch has already been written: the decision, without a broker.

Each task commits, in the transaction of its rows, a marker: a consumer-group offset in the group `<query>.batches`,
for partition `task` of the coverage topic. Its offset is the batch number; its metadata says who wrote it:

    {"id": Spark's query id, "writers": number of tasks, "inputs": digest of the batch's entry in the offset log}

Spark runs batch n+1 only after every task of batch n is done, and after a crash it runs the last batch again with the
same input. So a task whose marker is at its batch is done; one whose marker is behind has not written anything of
it; anything else is a contradiction that must not be resolved by guessing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.pipeline.errors import CheckpointConflict

__all__ = ["Attempt", "Marker", "already_written"]

_log = logging.getLogger("headwater.pipeline")


@dataclass(frozen=True, slots=True)
class Marker:
    """The last batch that a task has committed, and under which circumstances."""

    batch: int
    query_id: str
    writers: int
    inputs: str

    def metadata(self) -> str:
        return json.dumps({"id": self.query_id, "writers": self.writers, "inputs": self.inputs}, separators=(",", ":"))

    @classmethod
    def parse(cls, batch: int, metadata: str) -> Marker:
        try:
            body = json.loads(metadata)
            return cls(batch, str(body["id"]), int(body["writers"]), str(body["inputs"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointConflict(
                f"a consumer group ending in `.batches` holds an offset that the sink did not write ({metadata!r}): "
                "give the query another name"
            ) from error


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at one task of one micro-batch, as the task itself sees it."""

    query: str
    query_id: str
    run_id: str
    batch: int
    task: int
    writers: int
    inputs: str

    def marker(self) -> Marker:
        return Marker(self.batch, self.query_id, self.writers, self.inputs)


def already_written(attempt: Attempt, markers: Mapping[int, Marker]) -> bool:
    """True: skip, the rows are in the topic. False: write. `CheckpointConflict`: neither would be right."""
    _check_same_checkpoint(attempt, markers)
    ours = {task: marker for task, marker in markers.items() if marker.query_id == attempt.query_id}
    if _other_number_of_writers(attempt, ours):
        return True  # the batch is whole, under its old number of tasks
    marker = ours.get(attempt.task)
    if marker is None or marker.batch < attempt.batch:
        return False
    if marker.batch > attempt.batch:
        raise CheckpointConflict(
            f"query {attempt.query!r} is at batch {attempt.batch}, but task {attempt.task} has already written batch "
            f"{marker.batch}: another driver has gone on with this query, or its checkpoint was restored to an earlier "
            "state. Stop this one; after a restore, give the query a new name and a new checkpoint"
        )
    if marker.inputs != attempt.inputs:
        raise CheckpointConflict(
            f"query {attempt.query!r} has already written batch {attempt.batch} from other input than this checkpoint "
            "says: the checkpoint was restored or edited. Give the query a new name and a new checkpoint"
        )
    return True


def _check_same_checkpoint(attempt: Attempt, markers: Mapping[int, Marker]) -> None:
    """Task 0 exists whatever the number of tasks: its marker says which checkpoint the name belongs to."""
    first = markers.get(0)
    if first is None or first.query_id == attempt.query_id:
        return
    if attempt.batch > 0:
        raise CheckpointConflict(
            f"the name {attempt.query!r} has since been used by a query with another checkpoint (Spark's id "
            f"{first.query_id}; this one is {attempt.query_id}): give one of the two another name"
        )
    _log.warning("query %r starts anew: its earlier checkpoint got to batch %d", attempt.query, first.batch)


def _other_number_of_writers(attempt: Attempt, ours: Mapping[int, Marker]) -> bool:
    """Whether this very batch was written, wholly, by another number of tasks; partly cannot be completed."""
    others = [m for m in ours.values() if m.batch == attempt.batch and m.writers != attempt.writers]
    if not others:
        return False
    if len(others) == others[0].writers:
        return True
    raise CheckpointConflict(
        f"batch {attempt.batch} of query {attempt.query!r} was written by {len(others)} of {others[0].writers} tasks "
        f"when the query stopped, and now has {attempt.writers} tasks: run it once more with "
        f"writers={others[0].writers}, then change the number"
    )
