"""Every byte of a small log, cut off and flipped: what is intact is served, what is not is named and never served."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from faults.disk import MemoryDisk
from headwater.errors import Corrupted
from headwater.log.settings import FOREVER_MS, LogSettings
from headwater.wire.batches import split_batches
from log.model import History

SETTINGS = LogSettings(
    segment_bytes=500, segment_ms=FOREVER_MS, retention_ms=-1, producer_id_expiration_ms=FOREVER_MS,
    index_interval_bytes=100,
)  # fmt: skip
FOLDER = "/data/events-0"


@dataclass(frozen=True)
class Batch:
    """Where an acknowledged batch is in its file, and its bytes."""

    path: str
    start: int
    stop: int
    base_offset: int
    content: bytes


def small_log(checkpointed: bool) -> tuple[MemoryDisk, list[Batch]]:
    """Two segments with plain, idempotent and transactional batches and both kinds of markers; then a kill."""
    history = History(settings=SETTINGS)
    history.put([("a", "1"), ("b", "2")])
    history.put([("c", "3")], 11)
    history.put([("d", "4")], 1, transactional=True)
    history.put([("e", "5")], 2, transactional=True)
    history.end(1, commit=False)
    if checkpointed:
        history.store.directory.checkpoint()
    history.end(2, commit=True)
    history.put([("f", "6")])
    history.put([("g", "7" * 40)])
    batches = []
    for segment in history.log.segments:
        position = 0
        content = bytes(history.disk.file(segment.file.path).data)
        for header, part in split_batches(content):
            batches.append(Batch(segment.file.path, position, position + header.size, header.base_offset, bytes(part)))
            position += header.size
    history.disk.restart_process()
    assert len({batch.path for batch in batches}) == 2
    return history.disk, batches


def served(history: History, batches: list[Batch]) -> tuple[dict[int, bytes], list[Corrupted]]:
    """What a reader gets that asks for each batch in turn, as bytes by base offset; what it is told instead."""
    found: dict[int, bytes] = {}
    told: list[Corrupted] = []
    for wanted in batches:
        if not history.log.log_start_offset <= wanted.base_offset < history.log.high_watermark:
            continue
        try:
            content = history.log.read(wanted.base_offset, 1 << 20).records.read()
            for header, part in split_batches(content):
                found[header.base_offset] = bytes(part)
        except Corrupted as damage:
            told.append(damage)
    return found, told


def checked(batch: bytes) -> bytes:
    """Without the leader epoch, which Kafka's format leaves outside of the checksum: `headwater verify` checks it."""
    return batch[:12] + batch[16:]


def assert_found_and_not_served(disk: MemoryDisk, batches: list[Batch], path: str, position: int) -> None:
    history = History(disk=disk, settings=SETTINGS)
    found, told = served(history, batches)
    told += history.store.directory.findings
    for batch in batches:
        damaged = batch.path == path and batch.start <= position < batch.stop
        if batch.base_offset in found:
            assert checked(found[batch.base_offset]) == checked(batch.content), f"wrong bytes of {batch} were served"
        elif not damaged:
            pytest.fail(f"offset {batch.base_offset} is intact and was not served: {told}")
    hit = next((each for each in batches if each.path == path and each.start <= position < each.stop), None)
    if hit is not None and hit.base_offset not in found:
        assert any(path in str(each) and each.position <= position for each in told), f"not named: {told}"
    assert set(found) <= {batch.base_offset for batch in batches}
    end = history.log.log_end_offset
    history.put([("new", "record")])  # it goes on, and gives no offset twice
    assert history.log.log_end_offset == end + 1


def places(batches: list[Batch]) -> Iterator[tuple[str, int]]:
    for path in sorted({batch.path for batch in batches}):
        for position in range(max(batch.stop for batch in batches if batch.path == path)):
            yield path, position


@pytest.mark.parametrize("checkpointed", [False, True], ids=["all scanned", "partly checkpointed"])
def test_every_flipped_bit_of_a_log_is_found(checkpointed: bool) -> None:
    _, batches = small_log(checkpointed)
    for path, position in places(batches):
        for bit in (0, 3, 7):
            disk, _ = small_log(checkpointed)
            disk.file(path).data[position] ^= 1 << bit
            assert_found_and_not_served(disk, batches, path, position)


@pytest.mark.parametrize("checkpointed", [False, True], ids=["all scanned", "partly checkpointed"])
def test_a_log_cut_anywhere_serves_what_is_left(checkpointed: bool) -> None:
    _, batches = small_log(checkpointed)
    for path, position in places(batches):
        disk, _ = small_log(checkpointed)
        del disk.file(path).data[position:]
        history = History(disk=disk, settings=SETTINGS)
        found, told = served(history, batches)
        told += history.store.directory.findings
        left = [batch for batch in batches if batch.path != path or batch.stop <= position]
        assert {batch.base_offset: batch.content for batch in left} == found
        whole_batches_are_gone = position in {batch.start for batch in batches if batch.path == path}
        last_file = path == batches[-1].path
        if not (whole_batches_are_gone and last_file and not checkpointed):  # a shorter log, not a damaged one
            assert any(path in str(each) for each in told) or (last_file and whole_batches_are_gone)
        end = history.log.log_end_offset
        history.put([("new", "record")])
        assert history.log.log_end_offset == end + 1


SMALL_FILES = ("leader-epoch-checkpoint", "partition.metadata", ".index", ".timeindex", ".snapshot")


@pytest.mark.parametrize("suffix", SMALL_FILES)
@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_damage_beside_the_log_costs_no_record(suffix: str, damage: str) -> None:
    _, batches = small_log(checkpointed=True)
    rng = random.Random(2)
    names = [entry.name for entry in small_log(checkpointed=True)[0].scan(FOLDER) if entry.name.endswith(suffix)]
    assert names
    for name in names:
        size = len(small_log(checkpointed=True)[0].file(f"{FOLDER}/{name}").data)
        for position in range(size):
            disk, _ = small_log(checkpointed=True)
            data = disk.file(f"{FOLDER}/{name}").data
            if damage == "cut":
                del data[position:]
            else:
                data[position] ^= 1 << rng.randrange(8)
            history = History(disk=disk, settings=SETTINGS)
            found, told = served(history, batches)
            assert found == {batch.base_offset: batch.content for batch in batches}
            assert not told
            directory = history.store.directory  # who knows the topic gives a damaged id again
            assert directory.create("events", 0, SETTINGS, uuid.UUID(int=1)).topic_id.int == 1


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "meta.properties"])
def test_damage_in_the_directorys_own_files_costs_no_record(name: str) -> None:
    _, batches = small_log(checkpointed=True)
    rng = random.Random(2)
    for position in range(len(small_log(checkpointed=True)[0].file(f"/data/{name}").data)):
        disk, _ = small_log(checkpointed=True)
        disk.file(f"/data/{name}").data[position] ^= 1 << rng.randrange(8)
        history = History(disk=disk, settings=SETTINGS)
        found, _ = served(history, batches)
        kept = [batch for batch in batches if batch.base_offset >= history.log.log_start_offset]
        assert found == {batch.base_offset: batch.content for batch in kept}
        assert name == "log-start-offset-checkpoint" or kept == batches
