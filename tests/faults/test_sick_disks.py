"""A full disk and one that fails: writes are refused with the right error, nothing is lost, it goes on by itself."""

from __future__ import annotations

import errno

import pytest

from headwater.log.results import AppendRefused, StorageFailed
from headwater.log.settings import FOREVER_MS, LogSettings
from headwater.wire.errors import ErrorCode
from log.model import COMPACTED, History

PLAIN = LogSettings(segment_bytes=2000, segment_ms=FOREVER_MS, retention_ms=-1, index_interval_bytes=100)


def fill(history: History) -> AppendRefused:
    """Write until the disk is full."""
    for number in range(1000):
        try:
            history.put([(f"k{number}", "x" * 50)], 11)
        except AppendRefused as refused:
            return refused
    raise AssertionError("the disk never was full")


@pytest.mark.parametrize("room", range(1000, 1400, 7))
def test_a_full_disk_refuses_writes_serves_reads_and_takes_writes_again_when_there_is_room(room: int) -> None:
    history = History(settings=PLAIN)
    history.put([("a", "1")], 1, transactional=True)
    history.end(1, commit=True)
    history.disk.capacity = room
    refused = fill(history)
    assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "No space left" in str(refused)
    history.check()
    with pytest.raises(AppendRefused):
        history.put([("a", "2" * 500)])
    history.check()
    history.disk.capacity = None
    for number in range(50):
        history.put([(f"k{number}", "y" * 50)], 11)  # the same producer's next sequence: what was refused is not there
    history.check()
    history.restart("kill", 0)
    history.check()
    history.check_producers()


def test_a_broker_killed_on_a_full_disk_starts_again_when_there_is_room() -> None:
    history = History(settings=PLAIN)
    history.disk.capacity = 5000
    fill(history)
    history.disk.capacity = None
    history.restart("kill", 0)
    history.check()
    history.put([("a", "1")], 11)
    history.check()


@pytest.mark.parametrize("operation", ["datasync", "pwritev", "sync_directory"])
def test_after_a_failed_operation_nothing_is_acknowledged_until_the_disk_works(operation: str) -> None:
    history = History(settings=PLAIN)
    for number in range(10):
        history.put([(f"k{number}", "x" * 50)], 11)
    history.log.roll()
    broken = OSError(errno.EIO, "Input/output error")
    history.disk.fails = lambda name, path: broken if name == operation else None
    for _ in range(3):
        with pytest.raises((AppendRefused, StorageFailed), match="Input/output error"):
            history.put([("lost", "x")], 11)
        assert history.visible() == [(each.offset, each.key, each.value) for each in history.records]
    history.disk.fails = lambda name, path: None
    history.put([("after", "x")], 11)
    history.check()
    history.restart("power", 0)
    history.check()
    history.check_producers()


@pytest.mark.parametrize("operation", ["datasync", "pwritev", "sync_directory", "rename", "pread"])
def test_compaction_on_a_failing_disk_changes_nothing_and_is_tried_again(operation: str) -> None:
    def dirty() -> History:
        history = History()
        for number in range(60):
            history.put([(f"k{number % 7}", f"v{number}")])
        history.log.roll()
        return history

    history = dirty()
    before = history.disk.operations
    history.compact()
    for number in range(history.disk.operations - before):
        history = dirty()
        left = number
        failed = False

        def fails(name: str, path: str) -> OSError | None:
            nonlocal left, failed
            left -= 1
            if name == operation and left <= 0 and not failed and "events-0" in path:
                failed = True
                return OSError(errno.EIO, "Input/output error")
            return None

        history.disk.fails = fails
        history.compact()
        history.disk.fails = lambda name, path: None
        history.check()
        history.restart("kill", number)
        history.check()
        history.compact()
        history.check()
        assert history.log.settings is COMPACTED
