"""Whether a task has been written: every case of marker against attempt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.pipeline.errors import CheckpointConflict
from headwater.pipeline.markers import Attempt, Marker, already_written

ATTEMPT = Attempt(query="q", query_id="id-1", run_id="run-1", batch=5, task=1, writers=2, inputs="digest")
OURS = ATTEMPT.marker()


def before(marker: Marker) -> Marker:
    return replace(marker, batch=marker.batch - 1, inputs="earlier")


def test_a_marker_survives_being_written_down() -> None:
    assert Marker.parse(OURS.batch, OURS.metadata()) == OURS


def test_a_task_that_never_wrote_writes() -> None:
    assert already_written(ATTEMPT, {}) is False
    assert already_written(ATTEMPT, {0: OURS}) is False


def test_a_task_that_wrote_the_batch_before_writes() -> None:
    assert already_written(ATTEMPT, {0: OURS, 1: before(OURS)}) is False


def test_a_task_that_wrote_this_batch_is_skipped() -> None:
    assert already_written(ATTEMPT, {0: before(OURS), 1: OURS}) is True


def test_a_task_ahead_of_its_driver_is_a_zombies_or_a_restored_checkpoints() -> None:
    with pytest.raises(CheckpointConflict, match="at batch 5, but task 1 has already written batch 6"):
        already_written(ATTEMPT, {0: OURS, 1: replace(OURS, batch=6)})


def test_the_same_batch_from_other_input_is_never_taken_for_done() -> None:
    with pytest.raises(CheckpointConflict, match="already written batch 5 from other input"):
        already_written(ATTEMPT, {0: OURS, 1: replace(OURS, inputs="other")})


def test_the_name_of_another_checkpoint_is_refused() -> None:
    with pytest.raises(CheckpointConflict, match="has since been used by a query with another checkpoint"):
        already_written(ATTEMPT, {0: replace(OURS, query_id="id-2")})


def test_a_query_that_starts_anew_takes_its_name_over() -> None:
    first = replace(ATTEMPT, batch=0)
    assert already_written(first, {task: replace(OURS, query_id="id-2") for task in range(2)}) is False


def test_a_batch_that_is_whole_under_another_number_of_tasks_is_done() -> None:
    assert already_written(replace(ATTEMPT, writers=3), {0: OURS, 1: OURS}) is True
    assert already_written(replace(ATTEMPT, writers=1, task=0), {0: OURS, 1: OURS}) is True


def test_a_batch_that_is_partly_written_is_completed_by_the_same_tasks_or_not_at_all() -> None:
    with pytest.raises(CheckpointConflict, match="written by 1 of 2 tasks when the query stopped, and now has 3"):
        already_written(replace(ATTEMPT, writers=3), {0: OURS, 1: before(OURS)})


def test_an_offset_that_somebody_else_committed_is_not_guessed_at() -> None:
    with pytest.raises(CheckpointConflict, match="holds an offset that the sink did not write"):
        Marker.parse(3, "mine")
