"""After a crash only what follows the last checkpoint is read, however long the log is."""

from __future__ import annotations

import pytest

from headwater.log import maintenance
from headwater.log.settings import FOREVER_MS, LogSettings
from headwater.log.verifying import verify_directory
from log.model import History

SETTINGS = LogSettings(segment_bytes=50_000, segment_ms=FOREVER_MS, retention_ms=-1, index_interval_bytes=1000)
HEADERS_BYTES = 4096 + 61  # read to prove an index entry or find a log's first batch


def read_of_logs(history: History) -> int:
    return sum(count for path, count in history.disk.bytes_read.items() if path.endswith(".log"))


def test_a_start_after_a_kill_reads_what_follows_the_checkpoint() -> None:
    history = History(settings=SETTINGS)
    for number in range(1000):
        history.put([(f"k{number}", "x" * 200)], 1, transactional=True)
    history.store.directory.checkpoint()
    before = history.log.size
    for number in range(40):
        history.put([(f"k{number}", "x" * 200)], 1, transactional=True)
    written = history.log.size - before
    assert before > 20 * written
    history.disk.restart_process()
    history.log = history.store.reopen()
    assert written <= read_of_logs(history) <= written + 2 * SETTINGS.index_interval_bytes + HEADERS_BYTES
    assert history.log.open_transaction(1) == 0
    history.end(1, commit=True)
    history.check()


def test_a_start_after_a_clean_stop_reads_headers_only() -> None:
    history = History(settings=SETTINGS)
    for number in range(1000):
        history.put([(f"k{number}", "x" * 200)], 1, transactional=True)
    history.store.close()
    history.disk.restart_process()
    history.log = history.store.reopen()
    assert read_of_logs(history) <= 2 * HEADERS_BYTES
    history.check()


def test_checkpoints_come_by_themselves_so_that_a_start_never_reads_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "CHECKPOINT_BYTES", 10_000)
    history = History(settings=SETTINGS)
    for number in range(500):
        history.put([(f"k{number}", "x" * 200)])
        history.store.directory.maintain(history.store.clock.now_ms())
    history.disk.restart_process()
    history.log = history.store.reopen()
    assert read_of_logs(history) <= 10_000 + 2 * SETTINGS.index_interval_bytes + HEADERS_BYTES
    history.check()


def test_indexes_made_anew_by_a_recovery_are_whole_after_the_next_start_too() -> None:
    history = History(settings=SETTINGS)
    for number in range(600):
        history.store.clock.advance(1)
        history.put([(f"k{number}", "x" * 200)])
    times = {each.offset: each.at_ms for each in history.records}
    history.disk.restart_process()
    history.log = history.store.reopen()
    assert len(history.log.segments) > 2
    history.store.directory.checkpoint()
    history.disk.restart_process()
    history.log = history.store.reopen()
    history.store.close()
    assert verify_directory(history.disk, "/data").damage == []
    history.disk.restart_process()
    history.log = history.store.reopen()
    for offset in (0, 150, 300, 450, 599):
        found = history.log.offset_for_timestamp(times[offset])
        assert found is not None
        assert found.offset == offset
