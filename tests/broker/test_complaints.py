"""Warnings about clients are few, whatever clients do, and what was left out is said."""

from __future__ import annotations

import logging

import pytest

from headwater.broker.complaints import INTERVAL_MS, PER_INTERVAL_MAX, Complaints
from headwater.broker.loop import Loop


class HandMovedLoop(Loop):
    """Its clock stands still unless the test moves it."""

    def __init__(self) -> None:
        super().__init__()
        self.at_ms = 0.0

    def monotonic_ms(self) -> float:
        return self.at_ms


def test_warnings_beyond_the_bound_are_left_out_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    loop = HandMovedLoop()
    complaints = Complaints(loop)
    with caplog.at_level(logging.WARNING, "headwater.broker"):
        for number in range(PER_INTERVAL_MAX + 7):
            complaints.warn("client %d misbehaves", number)
        assert len(caplog.records) == PER_INTERVAL_MAX
        loop.at_ms = INTERVAL_MS
        complaints.warn("client %d misbehaves", 99)
    assert [record.getMessage() for record in caplog.records[PER_INTERVAL_MAX:]] == [
        "7 more warnings about clients were left out; see the metrics",
        "client 99 misbehaves",
    ]
    loop.close()
