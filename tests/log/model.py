"""A log on a disk in memory, and the model of what it must hold whatever happens to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from faults.disk import MemoryDisk
from headwater.log.compaction import CompactionSettings
from headwater.log.compaction_keys import ENTRY_BYTES
from headwater.log.settings import FOREVER_MS, LogSettings
from headwater.wire.batches import Record, encode_batch, parse_header
from log.support import Store, read_records

__all__ = ["COMPACTED", "DAY_MS", "STEP", "History", "Step", "Written", "apply"]

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

    def __init__(self, keys_max: int = 1000, disk: MemoryDisk | None = None, settings: LogSettings = COMPACTED) -> None:
        self.disk = disk or MemoryDisk()
        self.settings = settings
        self._unsure: Callable[[], None] | None = None  # finds out whether what was going on at a kill was written
        self.store = store_on(self.disk, keys_max)
        self.log = self.store.log(settings)
        self.records: list[Written] = []
        self.open: dict[int, list[Written]] = {}  # producer id -> records of its open transaction
        self.sequences: dict[int, int] = {}
        self.last_batches: dict[int, bytes] = {}

    def put(self, pairs: list[tuple[str, str | None]], producer_id: int = -1, transactional: bool = False) -> None:
        now = self.store.clock.now_ms()
        options = {}
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        records = [
            Record(key=key.encode(), value=None if value is None else value.encode(), timestamp=now)
            for key, value in pairs
        ]
        content = encode_batch(records, transactional=transactional, **options)
        base = self.log.log_end_offset

        def remember(base: int = base) -> None:
            written = [Written(base + number, *pair, now) for number, pair in enumerate(pairs)]
            if producer_id >= 0:
                self.sequences[producer_id] = sequence_of(content) + len(pairs)
                self.last_batches[producer_id] = content
            if transactional:
                self.open.setdefault(producer_id, []).extend(written)
            else:
                self.records.extend(written)

        self._unsure = lambda: remember() if self.log.log_end_offset > base else None
        appended = self.log.append(content, leader_epoch=0)
        self.log.flush_to_disk()
        self._unsure = None
        remember(appended.base_offset)

    def end(self, producer_id: int, commit: bool) -> None:
        if producer_id not in self.open:
            return
        end = self.log.log_end_offset

        def remember() -> None:
            written = self.open.pop(producer_id)
            if commit:
                self.records = sorted(self.records + written, key=lambda each: each.offset)

        self._unsure = lambda: remember() if self.log.log_end_offset > end else None
        self.log.append_marker(producer_id, 0, commit=commit, coordinator_epoch=0, leader_epoch=0)
        self.log.flush_to_disk()
        self._unsure = None
        remember()

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
        self.log.settings = self.settings
        if self._unsure is not None:
            self._unsure()
            self._unsure = None

    # -- what must hold

    def visible(self) -> list[tuple[int, str, str | None]]:
        return [
            (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
            for record in read_records(self.log, committed=True)
        ]

    def check(self) -> None:
        """A committed reader sees what it should: all of it, or, of a compacted topic, the last of each key."""
        if not self.settings.cleanup_compact:
            stable = self.log.last_stable_offset
            wanted = [(each.offset, each.key, each.value) for each in self.records if each.offset < stable]
            assert self.visible() == wanted
            assert stable == min((written[0].offset for written in self.open.values()), default=self.log.log_end_offset)
            return
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
        for producer_id, content in list(self.last_batches.items()):
            assert self.log.append(content, leader_epoch=0).duplicate
            self.put([("after", "all")], producer_id, transactional=producer_id in self.open)


def sequence_of(batch: bytes) -> int:
    return parse_header(batch).base_sequence


KEYS = st.sampled_from(["a", "b", "c", "a key of more than sixteen bytes"])
PAIRS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.sampled_from("xyz"))), min_size=1, max_size=4)
TRANSACTIONAL = st.sampled_from([1, 2])
Step = tuple[Any, ...]
STEP: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("put"), PAIRS),
    st.tuples(st.just("idempotent"), st.sampled_from([11, 12]), PAIRS),
    st.tuples(st.just("transactional"), TRANSACTIONAL, PAIRS),
    st.tuples(st.just("end"), TRANSACTIONAL, st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("advance"), st.sampled_from([1000, DAY_MS])),
    st.tuples(st.just("restart"), st.sampled_from(["clean", "kill", "power"]), st.integers(0, 99)),
)


def apply(history: History, step: Step) -> None:
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
