"""A disk that forgets what was not synced: what was acknowledged is there; the rest is there whole or not at all."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.disk import Killed, MemoryDisk
from headwater.log.settings import FOREVER_MS, LogSettings
from log.model import COMPACTED, STEP, History, Step, apply

PLAIN = LogSettings(
    segment_bytes=600, segment_ms=FOREVER_MS, retention_ms=-1, producer_id_expiration_ms=FOREVER_MS,
    index_interval_bytes=100,
)  # fmt: skip


@pytest.mark.parametrize("topic", [PLAIN, COMPACTED], ids=["plain", "compacted"])
@given(
    lives=st.lists(
        st.tuples(st.lists(STEP, min_size=5, max_size=25), st.integers(1, 150), st.booleans(), st.integers(0, 999)),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=150, deadline=None)
def test_killed_or_without_power_at_any_operation_nothing_acknowledged_is_lost(
    topic: LogSettings, lives: list[tuple[list[Step], int, bool, int]]
) -> None:
    history = History(settings=topic)
    for steps, operations, power, seed in lives:
        history.disk.kill_at = history.disk.operations + operations
        try:
            for step in steps:
                apply(history, step)
                if step[0] == "restart":
                    history.disk.kill_at = None
        except Killed:
            pass
        history.restart("power" if power else "kill", seed)
        history.check()
    history.check_producers()
    history.check()


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
def test_killed_while_it_recovers_it_recovers_all_the_same(power: bool) -> None:
    """At each operation of the recovery itself, again and again."""

    def crashed() -> History:
        history = History(settings=PLAIN)
        rng = random.Random(3)
        for number in range(40):
            history.put([(f"k{number}", "x" * rng.randrange(50))], 1, transactional=True)
            if number % 7 == 6:
                history.end(1, commit=number % 2 == 0)
        history.disk.restart_process()
        file = history.disk.file(history.log.segments[-1].file.path)
        file.data += b"torn" * 30
        return history

    number = 0
    while True:
        history = crashed()
        history.disk.kill_at = number
        try:
            history.store.reopen()
        except Killed:
            history.restart("power" if power else "kill", seed=number)
            history.check()
            history.check_producers()
            number += 1
            continue
        break
    assert number > 3


def test_a_directory_that_is_closed_survives_the_loss_of_power() -> None:
    history = History(settings=PLAIN)
    for number in range(30):
        history.put([(f"k{number}", "v")])
    history.store.close()
    history.disk.lose_power(random.Random(0), keep=0.0)
    history.log = history.store.reopen()
    assert history.store.directory.clean
    history.check()


def test_a_new_partition_is_there_after_the_loss_of_power() -> None:
    disk = MemoryDisk()
    history = History(disk=disk, settings=PLAIN)
    disk.lose_power(random.Random(0), keep=0.0)
    history.log = history.store.reopen()
    assert history.log.topic_id.int == 1
    assert history.log.log_end_offset == 0
