"""Whatever the program, the data, the batches and the interleaving: the changelog adds up to what SQL says."""

from __future__ import annotations

import pytest
from tests.pipeline.changelogs.programs import Program


def check(seed: int, replays: int = 1) -> None:
    program = Program(seed)
    expected = program.expected()
    assert program.found(program.node.stream.table()) == expected, program.node.sql
    for replay in program.node.stream.replays(replays, seed=seed):
        assert program.found(replay.table()) == expected, program.node.sql


@pytest.mark.parametrize("seed", range(30))
def test_a_random_program_adds_up_to_the_batch_query_over_the_same_data(seed: int) -> None:
    check(seed)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_thousand_random_programs_add_up_to_the_batch_query() -> None:
    for seed in range(1_000, 2_000):
        check(seed)
