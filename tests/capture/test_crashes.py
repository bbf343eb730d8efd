"""`kill -9` of the capture, the broker and PostgreSQL at random instants under a random workload: 0 lost, 0 doubled."""

from __future__ import annotations

import os

import pytest
from tests.capture.crashes import kill_repeatedly


@pytest.mark.soak  # two to three minutes on two cores
def test_killed_fifteen_times_nothing_is_lost_doubled_or_out_of_order() -> None:
    seed = int.from_bytes(os.urandom(3), "big")
    print(f"seed {seed}", *kill_repeatedly(seed, kills=15))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("run", range(8))
def test_killed_two_hundred_times(run: int) -> None:
    seed = int.from_bytes(os.urandom(3), "big")
    print(f"seed {seed}", *kill_repeatedly(seed, kills=25))
