"""Compaction: read back against a model of the history, one guarantee at a time, and killed at every operation."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.disk import Killed, MemoryDisk
from headwater.filesystem import SystemFilesystem
from headwater.log.compaction import CompactionSettings
from headwater.log.compaction_keys import ENTRY_BYTES
from headwater.log.groupcommit import GroupCommit
from headwater.log.partition import PartitionLog
from headwater.log.results import AppendRefused
from headwater.log.settings import FOREVER_MS, LogSettings
from headwater.testing import eventually
from headwater.wire.batches import Record, decode_records, encode_batch
from log.support import Store, read_records

DAY_MS = 86_400_000
COMPACTED = LogSettings(
    cleanup_compact=True,
    cleanup_delete=False,
    segment_bytes=600,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=DAY_MS,
    index_interval_bytes=100,
    file_delete_delay_ms=1000,
    segment_ms=FOREVER_MS,
    producer_id_expiration_ms=FOREVER_MS,
)


def store_on(disk: MemoryDisk, keys_max: int = 1000) -> Store:
    compaction = CompactionSettings(backoff_ms=1, dedupe_buffer_bytes=keys_max * ENTRY_BYTES)
    return Store(Path("/data"), disk, compaction=compaction)


@dataclass(frozen=True)
class Written:
    offset: int
    key: str
    value: str | None
    at_ms: int


class History:
    """A log and the model of it: every record that a committed reader may ever see, in order."""

    def __init__(self, keys_max: int = 1000, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.store = store_on(self.disk, keys_max)
        self.log = self.store.log(COMPACTED)
        self.records: list[Written] = []
        self.open: dict[int, list[Written]] = {}  # producer id -> records of its open transaction
        self.sequences: dict[int, int] = {}
        self.last_batches: dict[int, bytes] = {}

    def put(self, pairs: list[tuple[str, str | None]], producer_id: int = -1, transactional: bool = False) -> None:
        now = self.store.clock.now_ms()
        options = {}
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(pairs)
            options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        records = [
            Record(key=key.encode(), value=None if value is None else value.encode(), timestamp=now)
            for key, value in pairs
        ]
        content = encode_batch(records, transactional=transactional, **options)
        base = self.log.append(content, leader_epoch=0).base_offset
        self.log.flush_to_disk()
        written = [Written(base + number, *pair, now) for number, pair in enumerate(pairs)]
        if producer_id >= 0:
            self.last_batches[producer_id] = content
        if transactional:
            self.open.setdefault(producer_id, []).extend(written)
        else:
            self.records += written

    def end(self, producer_id: int, commit: bool) -> None:
        written = self.open.pop(producer_id, None)
        if written is None:
            return
        self.log.append_marker(producer_id, 0, commit=commit, coordinator_epoch=0, leader_epoch=0)
        self.log.flush_to_disk()
        if commit:
            self.records = sorted(self.records + written, key=lambda each: each.offset)

    def compact(self) -> None:
        for _ in range(3):
            self.store.clock.advance(2)
            self.store.directory.maintain(self.store.clock.now_ms())

    def restart(self, how: str, seed: int) -> None:
        if how == "clean":
            self.store.close()
            self.disk.restart_process()
        elif how == "kill":
            self.disk.restart_process()
        else:
            self.disk.lose_power(random.Random(seed))
        self.log = self.store.reopen()
        self.log.settings = COMPACTED

    # -- what must hold

    def visible(self) -> list[tuple[int, str, str | None]]:
        return [
            (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
            for record in read_records(self.log, committed=True)
        ]

    def check(self) -> None:
        stable, upto = self.log.last_stable_offset, self.cleaned_upto()
        history = [each for each in self.records if each.offset < stable]
        visible = self.visible()
        all_of_them = {(each.offset, each.key, each.value) for each in history}
        assert set(visible) <= all_of_them, "nothing that was not written, or was aborted"
        assert [each[0] for each in visible] == sorted({each[0] for each in visible}), "order and offsets"
        newest = {each.key: each for each in history}
        state = {key: value for _, key, value in visible}
        for key, last in newest.items():
            assert state.get(key) == last.value, f"the last value of {key}"
            if last.value is None and self.store.clock.now_ms() < last.at_ms + DAY_MS:
                assert (last.offset, key, None) in visible, f"the tombstone of {key}"
        active = self.log.bases[-1]
        assert {each for each in all_of_them if each[0] >= active} <= set(visible), "the active segment is untouched"
        below = [each for each in visible if each[0] < upto]
        assert len({key for _, key, _ in below}) == len(below), "compacted below the checkpoint"
        for entry, following in zip(self.log.segments[:-1], self.log.bases[1:], strict=True):
            assert entry.size <= COMPACTED.segment_bytes * 2
            assert entry.base_offset < following

    def cleaned_upto(self) -> int:
        return self.store.directory.cleaned_upto.get(("events", 0), 0)

    def check_producers(self) -> None:
        """Retries are recognised and the next batch is in turn, whatever has been compacted."""
        for producer_id, content in self.last_batches.items():
            assert self.log.append(content, leader_epoch=0).duplicate
            self.put([("after", "all")], producer_id, transactional=producer_id in self.open)


KEYS = st.sampled_from(["a", "b", "c", "a key of more than sixteen bytes"])
PAIRS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.sampled_from("xyz"))), min_size=1, max_size=4)
TRANSACTIONAL = st.sampled_from([1, 2])
STEP = st.one_of(
    st.tuples(st.just("put"), PAIRS),
    st.tuples(st.just("idempotent"), st.sampled_from([11, 12]), PAIRS),
    st.tuples(st.just("transactional"), TRANSACTIONAL, PAIRS),
    st.tuples(st.just("end"), TRANSACTIONAL, st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("advance"), st.sampled_from([1000, DAY_MS])),
    st.tuples(st.just("restart"), st.sampled_from(["clean", "kill", "power"]), st.integers(0, 99)),
)


def apply(history: History, step: tuple) -> None:  # type: ignore[type-arg]
    match step:
        case ("put", pairs):
            history.put(pairs)
        case ("idempotent", producer_id, pairs):
            history.put(pairs, producer_id)
        case ("transactional", producer_id, pairs):
            history.put(pairs, producer_id, transactional=True)
        case ("end", producer_id, commit):
            history.end(producer_id, commit)
        case ("roll",):
            if history.log.segments[-1].size:
                history.log.roll()
        case ("compact",):
            history.compact()
        case ("advance", milliseconds):
            history.store.clock.advance(milliseconds)
        case ("restart", how, seed):
            history.restart(how, seed)


@given(steps=st.lists(STEP, max_size=40), keys_max=st.sampled_from([2, 1000]))
@settings(max_examples=150, deadline=None)
def test_random_histories_read_back_as_the_model_says(steps: list[tuple], keys_max: int) -> None:  # type: ignore[type-arg]
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
