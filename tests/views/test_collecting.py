"""The cycle collector while batches are applied."""

from __future__ import annotations

import gc

from headwater.views.collecting import collector_held_back


def test_the_collector_goes_on_when_the_last_batch_is_done() -> None:
    assert gc.isenabled()
    with collector_held_back():
        with collector_held_back():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_held_back():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
