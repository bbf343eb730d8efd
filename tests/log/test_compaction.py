"""Compaction: read back against a model of the history, one guarantee at a time, and killed at every operation."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.disk import Killed, MemoryDisk
from headwater.filesystem import SystemFilesystem
from headwater.log.compaction import CompactionSettings
from headwater.log.groupcommit import GroupCommit
from headwater.log.partition import PartitionLog
from headwater.log.results import AppendRefused
from headwater.log.settings import LogSettings
from headwater.testing import eventually
from headwater.wire.batches import Record, decode_marker, decode_records, encode_batch, split_batches
from log.model import COMPACTED, DAY_MS, STEP, History, Step, apply
from log.support import Store, read_records


@given(steps=st.lists(STEP, max_size=40), keys_max=st.sampled_from([2, 1000]))
@settings(max_examples=150, deadline=None)
def test_random_histories_read_back_as_the_model_says(steps: list[Step], keys_max: int) -> None:
    history = History(keys_max)
    for step in steps:
        apply(history, step)
        if step[0] in ("compact", "restart"):
            history.check()
    for _ in range(3):
        history.compact()
        history.check()
    history.check_producers()


def busy_history(disk: MemoryDisk | None = None) -> History:
    """Everything compaction has to decide about, ready for a pass that merges segments."""
    history = History(disk=disk)
    rng = random.Random(5)
    for number in range(60):
        producer_id = number % 3
        if producer_id:
            history.put([(rng.choice("abcdef"), f"t{number}")], producer_id, transactional=True)
            if number % 5 == 0:
                history.end(producer_id, commit=number % 2 == 0)
        else:
            history.put([(rng.choice("abcdef"), None if number % 4 == 0 else f"v{number}"), ("k" * 30, str(number))])
        if number == 30:
            history.compact()
    history.end(1, commit=False)
    history.end(2, commit=True)
    history.log.roll()
    return history


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
def test_killed_between_any_two_operations_of_a_pass_nothing_is_lost_or_comes_back(power: bool) -> None:
    history = busy_history()
    before = history.disk.operations
    history.compact()
    operations = history.disk.operations - before
    assert operations > 40
    for number in range(operations):
        history = busy_history()
        history.disk.kill_at = history.disk.operations + number
        with pytest.raises(Killed):
            history.compact()
        history.restart("power" if power else "kill", seed=number)
        history.check()
        assert not [finding for finding in history.store.directory.findings if "was not written" not in str(finding)]
        history.compact()
        history.check()
        history.check_producers()


def test_segments_are_merged_up_to_the_segment_size_and_replaced_files_go_after_their_delay() -> None:
    history = busy_history()
    before = len(history.log.segments)
    history.compact()
    assert len(history.log.segments) < before
    assert history.log.size < before * COMPACTED.segment_bytes / 2
    names = {entry.name for entry in history.disk.scan("/data/events-0")}
    assert any(name.endswith(".deleted") for name in names)
    history.store.clock.advance(COMPACTED.file_delete_delay_ms)
    history.compact()
    history.compact()
    names = {entry.name for entry in history.disk.scan("/data/events-0")}
    assert not any(name.endswith((".deleted", ".cleaned", ".swap")) for name in names)


def test_who_reads_a_replaced_segment_finishes_what_it_began() -> None:
    history = busy_history()
    part = history.log.read(0, 1 << 20)
    before = part.records.read()
    history.compact()
    assert part.records.read() == before


def test_a_tombstone_is_kept_for_its_time_and_then_goes() -> None:
    history = History()
    history.put([("a", "1")])
    history.put([("a", None)])
    history.log.roll()
    history.put([("b", "1")])
    history.compact()
    assert history.visible() == [(1, "a", None), (2, "b", "1")]
    history.store.clock.advance(DAY_MS - 100)
    history.put([("b", "2")])
    history.log.roll()
    history.compact()
    assert (1, "a", None) in history.visible()
    history.store.clock.advance(200)
    history.put([("b", "3")])
    history.log.roll()
    history.put([("c", "1")])
    history.compact()
    assert history.visible() == [(4, "b", "3"), (5, "c", "1")]


def test_records_of_aborted_transactions_go_at_once_and_their_marker_after_its_time() -> None:
    history = History()
    history.put([("a", "aborted")], 1, transactional=True)
    history.put([("b", "kept")])
    history.end(1, commit=False)
    history.log.roll()
    history.compact()
    values = [record.value for _, content in history.log.batches() for record in decode_records(content)]
    assert b"aborted" not in values
    controls = [header for header, _ in history.log.batches() if header.control]
    assert len(controls) == 1
    for _ in range(3):  # its batch must be seen gone, then the horizon begins, then it has passed
        history.put([("c", "more")], 1, transactional=True)
        history.end(1, commit=True)
        history.log.roll()
        history.compact()
        history.store.clock.advance(DAY_MS + 1)
    first = [header for header, _ in history.log.batches() if header.control and header.base_offset == 2]
    assert first == []
    assert not history.log.segments[0].aborted.count


def test_an_open_transaction_stops_compaction_before_its_first_record() -> None:
    history = History()
    history.put([("a", "1")])
    history.log.roll()
    history.put([("a", "2")], 1, transactional=True)
    history.log.roll()
    history.put([("a", "3")])
    history.log.roll()
    history.compact()
    assert history.cleaned_upto() == 1
    history.end(1, commit=True)
    history.compact()
    history.check()
    assert history.cleaned_upto() == 3


def test_young_records_wait_for_min_compaction_lag() -> None:
    history = History()
    history.log.settings = settings_with(min_compaction_lag_ms=1000)
    for _ in range(2):
        history.put([("a", "1")])
        history.log.roll()
    history.store.clock.advance(900)
    history.compact()
    assert len(history.visible()) == 2
    history.store.clock.advance(200)
    history.compact()
    assert len(history.visible()) == 1


def test_old_records_do_not_wait_longer_than_max_compaction_lag() -> None:
    history = History()
    lagging = settings_with(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    history.log.settings = lagging
    history.put([("a", "1")])
    history.put([("a", "2")])  # all in the active segment
    history.compact()
    assert len(history.visible()) == 2
    history.store.clock.advance(1001)
    history.compact()
    history.compact()
    assert len(history.visible()) == 1


def test_a_log_is_compacted_when_enough_of_it_is_dirty() -> None:
    history = History()
    history.log.settings = settings_with(min_cleanable_dirty_ratio=0.5)
    for number in range(50):
        history.put([(f"k{number}", "x" * 20)])
    history.log.roll()
    history.compact()
    clean = history.cleaned_upto()
    assert clean == 50
    history.put([("k1", "x")])
    history.log.roll()
    history.compact()
    assert history.cleaned_upto() == clean
    for number in range(60):
        history.put([(f"k{number}", "x" * 20)])
    history.log.roll()
    history.compact()
    assert history.cleaned_upto() == history.log.log_end_offset


def test_damage_stops_the_compaction_of_its_log_and_is_not_copied() -> None:
    history = busy_history()
    path = history.log.segments[-2].file.path
    history.disk.file(path).data[100] ^= 1
    sizes = [segment.size for segment in history.log.segments]
    history.compact()
    assert [segment.size for segment in history.log.segments] == sizes
    assert history.store.directory.maintenance.compactor.log is None


def test_a_topic_deleted_and_made_again_is_compacted_from_its_beginning() -> None:
    history = busy_history()
    history.compact()
    assert history.cleaned_upto() > 0
    history.store.directory.delete("events", 0)
    history.log = history.store.log(COMPACTED)
    history.records.clear()
    assert history.cleaned_upto() == 0
    history.put([("a", "1")])
    history.restart("kill", 0)
    assert history.cleaned_upto() == 0


def settings_with(**changes: object) -> LogSettings:
    from dataclasses import replace

    return replace(COMPACTED, **changes)  # type: ignore[arg-type]


def test_a_pass_runs_beside_appends_and_reads(tmp_path: Path) -> None:
    """On its own thread, with the real disk: the owner goes on, and what it wrote meanwhile is there."""
    calls: list[object] = []
    ready = threading.Condition()

    def soon(callback: object) -> None:
        with ready:
            calls.append(callback)
            ready.notify()

    commits = GroupCommit(soon, SystemFilesystem())
    store = Store(tmp_path, compaction=CompactionSettings(backoff_ms=1))
    store.directory.close()
    from headwater.log.directory import LogDirectory

    directory = LogDirectory(
        str(tmp_path), filesystem=store.filesystem, clock=store.clock, cluster_id="c", commits=commits,
        compaction=CompactionSettings(backoff_ms=1),
    )  # fmt: skip
    store.directory = directory
    log = store.log(COMPACTED)
    wanted: dict[str, str] = {}

    def put(number: int) -> None:
        key, value = f"k{number % 20}", str(number)
        record = Record(key=key.encode(), value=value.encode(), timestamp=store.clock.now_ms())
        log.append(encode_batch([record]), leader_epoch=0)
        log.flush_to_disk()
        wanted[key] = value

    for number in range(150):
        put(number)
    log.roll()
    number = 150

    def passed() -> bool:
        nonlocal number
        store.clock.advance(2)
        directory.maintain(store.clock.now_ms())
        put(number)
        number += 1
        with ready:
            ready.wait(0.01)
            todo, calls[:] = list(calls), []
        for callback in todo:
            callback()  # type: ignore[operator]
        assert {r.key.decode(): r.value.decode() for r in read_records(log, committed=True)} == wanted  # type: ignore[union-attr]
        return directory.maintenance.compactor.passes > 0

    eventually(passed, deadline_s=20)
    directory.maintenance.compactor.stop()
    commits.close()
    directory.close()
    assert log.segments[0].size < 600


def test_keyless_records_of_a_topic_that_was_not_compacted_are_dropped() -> None:
    history = History()
    history.log.settings = settings_with(cleanup_compact=False)
    history.log.append(encode_batch([Record(key=None, value=b"x", timestamp=1)]), leader_epoch=0)
    history.log.flush_to_disk()
    history.log.settings = COMPACTED
    with pytest.raises(AppendRefused):
        history.log.append(encode_batch([Record(key=None, value=b"x", timestamp=1)]), leader_epoch=0)
    history.log.roll()
    history.compact()
    assert history.visible() == []


def test_what_compaction_writes_has_whole_indexes(tmp_path: Path) -> None:
    history = busy_history()
    history.compact()
    log: PartitionLog = history.log
    for offset, key, value in history.visible():
        part = log.read(offset, 1)
        found = [r for r in decode_records(part.records.read()) if r.offset == offset]
        assert [((r.key or b"").decode(), r.value) for r in found] == [(key, None if value is None else value.encode())]


def test_nothing_is_left_of_segments_that_are_superseded_entirely() -> None:
    """Not even empty batches: a client that gets only those takes its fetch size for too small."""
    history = History()
    for number in range(200):
        history.put([("k", f"v{number}")])
    history.log.roll()
    history.put([("k", "last")])
    history.compact()
    assert history.visible() == [(199, "k", "v199"), (200, "k", "last")]
    part = history.log.read(0, 1 << 20)
    assert part.base_offset == 199
    history.restart("kill", 0)
    history.check()
    history.put([("k", "later")])
    history.log.roll()
    history.compact()
    assert len(history.log.segments) == 2
    history.check()


def test_a_topic_that_is_compacted_and_deleted_loses_what_is_too_old() -> None:
    history = History()
    history.log.settings = settings_with(cleanup_delete=True, retention_ms=10_000)
    for number in range(50):
        history.put([(f"k{number}", "old")])
    history.log.roll()
    history.compact()
    assert history.cleaned_upto() == 50
    history.store.clock.advance(11_000)
    history.put([("new", "1")])
    for _ in range(3):
        history.store.clock.advance(2000)
        history.store.directory.maintain(history.store.clock.now_ms())
    assert history.visible() == [(50, "new", "1")]
    assert history.log.log_start_offset == 50
    history.put([("new", "2")])
    history.log.roll()
    history.compact()
    assert history.visible() == [(51, "new", "2")]


def test_many_aborted_transactions_are_left_out_wherever_a_read_begins() -> None:
    history = History()
    history.log.settings = settings_with(cleanup_compact=False)
    for number in range(120):
        history.put([(f"k{number}", f"v{number}")], 1 + number % 3, transactional=True)
        history.end(1 + (number + 1) % 3, commit=number % 4 == 0)
    for producer_id in (1, 2, 3):
        history.end(producer_id, commit=False)
    wanted = [(each.offset, each.key) for each in history.records]
    assert wanted
    for start in range(0, history.log.log_end_offset, 7):
        found, offset = [], start
        while offset < history.log.log_end_offset:
            part = history.log.read(offset, 200, committed=True)
            content = part.records.read()
            found += records_kept(content, part.aborted, offset)
            offset = max(header.last_offset for header, _ in split_batches(content)) + 1
        assert found == [each for each in wanted if each[0] >= start]


def records_kept(content: bytes, aborted: tuple[tuple[int, int], ...], start: int) -> list[tuple[int, str]]:
    """As Kafka's clients do it: an aborted transaction begins at its first offset and ends with its marker."""
    waiting, dead, kept = list(aborted), set(), []
    for header, batch in split_batches(content):
        while waiting and waiting[0][1] <= header.last_offset:
            dead.add(waiting.pop(0)[0])
        if header.control:
            dead.discard(header.producer_id)
        elif header.producer_id not in dead or not header.transactional:
            kept += [(r.offset, (r.key or b"").decode()) for r in decode_records(batch) if r.offset >= start]
    return kept


def test_the_marker_that_remembers_a_producers_epoch_stays_without_its_record() -> None:
    """As the coordinator's offset commits: transactional batches without sequences."""
    history = History()
    record = Record(key=b"k", value=b"v", timestamp=history.store.clock.now_ms())
    content = encode_batch([record], producer_id=9, producer_epoch=3, transactional=True)
    history.log.append(content, leader_epoch=0, client=False)
    history.log.append_marker(9, 3, commit=False, coordinator_epoch=0, leader_epoch=0)
    history.log.flush_to_disk()
    for _ in range(4):
        history.put([("other", "x")])
        history.log.roll()
        history.compact()
        history.store.clock.advance(DAY_MS + 1)
    left = [(header, bytes(batch)) for header, batch in history.log.batches() if header.producer_id == 9]
    assert [(header.control, header.record_count) for header, _ in left] == [(True, 0)]
    assert decode_marker(left[0][1]) is None
    for entry in history.disk.scan("/data/events-0"):
        if entry.name.endswith(".snapshot"):
            history.disk.remove(f"/data/events-0/{entry.name}")
    history.restart("kill", 0)
    history.check()
