"""Closed segments replaced by one that compaction wrote: readers see the old ones or the new one, also after a crash.

    1  X.*.cleaned                      written and synced; of no value after a crash
    2  others  .cleaned -> .swap        of no value while X.log.swap is not there
    3  X.log.cleaned -> X.log.swap      from here on the new segment is the truth: a crash finishes what follows
    4  old segments -> .deleted         still read by those who hold them
    5  indexes .swap -> final names
    6  X.log.swap -> X.log, then X.covered.swap is removed
    7  the .deleted files are removed after `file.delete.delay.ms`

Each step is on the disk before the next one begins. Which old segments the new one replaces: those from its base offset
on, up to the offset that X.covered says in digits. (Kafka has no such file and goes by the batches of X.log.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.filesystem import Entry
from headwater.log.context import Context
from headwater.log.files import LogFile, read_whole, write_all
from headwater.log.layout import ABORTED, CLEANED, COVERED, INDEX, LOG, SWAP, TIMES, offset_of, segment_name
from headwater.log.scanning import BadBatch, headers
from headwater.log.segment import Segment

if TYPE_CHECKING:
    from headwater.log.partition import PartitionLog

__all__ = ["finish_replacements", "replace"]

_INDEXES = (INDEX, TIMES, ABORTED)


def replace(log: PartitionLog, old: list[Segment], new: Segment, doomed: list[str]) -> Iterator[None]:
    """On the owner's thread; at each stop the caller makes the folder's names durable. `doomed` gets the files that
    can be removed when all is done."""
    filesystem = log.context.filesystem
    stem = f"{log.folder}/{segment_name(new.base_offset)}"
    yield  # the names of the .cleaned files
    for suffix in (*_INDEXES, COVERED):
        filesystem.rename(stem + suffix + CLEANED, stem + suffix + SWAP)
    yield
    filesystem.rename(stem + LOG + CLEANED, stem + LOG + SWAP)
    yield
    for segment in old:
        doomed += segment.set_aside()
    yield
    for suffix in _INDEXES:
        filesystem.rename(stem + suffix + SWAP, stem + suffix)
    yield
    filesystem.rename(stem + LOG + SWAP, stem + LOG)
    sizes = {LOG: new.size, INDEX: new.offsets.bytes, TIMES: new.times.bytes, ABORTED: new.aborted.bytes}
    installed = Segment(log.context, log.folder, new.base_offset, sizes)
    installed.gaps = True
    installed.created_ms = old[-1].created_ms
    installed.first_timestamp = new.first_timestamp
    installed.max_timestamp, installed.max_timestamp_offset = new.max_timestamp, new.max_timestamp_offset
    log.put_in_place_of(old, installed)
    yield
    filesystem.remove(stem + COVERED + SWAP)


def write_covered(new: Segment, upto: int) -> None:
    """Beside the `.cleaned` files of a segment: it replaces those that begin below `upto`. Durable but for its name."""
    filesystem = new.file.filesystem
    fd = filesystem.open(f"{new.folder}/{segment_name(new.base_offset)}{COVERED}{CLEANED}", create=True)
    try:
        filesystem.truncate(fd, 0)
        write_all(filesystem, fd, str(upto).encode(), 0)
        filesystem.datasync(fd)
    finally:
        filesystem.close(fd)


def finish_replacements(context: Context, folder: str, entries: list[Entry]) -> None:
    """What a crash interrupted: taken to its end from step 4 on, undone before. `entries`: what is in the folder."""
    filesystem = context.filesystem
    suffixes: dict[int, set[str]] = defaultdict(set)
    for entry in entries:
        base = offset_of(entry.name)
        if base is not None and entry.name.endswith((SWAP, *_INDEXES, LOG)):
            suffixes[base].add(entry.name[20:])
    for base in sorted(suffixes):
        if LOG + SWAP in suffixes[base]:
            _finish(context, folder, base, suffixes)
        else:
            for suffix in suffixes[base]:
                if suffix.endswith(SWAP):
                    filesystem.remove(f"{folder}/{segment_name(base)}{suffix}")


def _finish(context: Context, folder: str, base: int, suffixes: dict[int, set[str]]) -> None:
    filesystem = context.filesystem
    stem = f"{folder}/{segment_name(base)}"
    has_covered = COVERED + SWAP in suffixes[base]
    end = (
        int(read_whole(filesystem, stem + COVERED + SWAP)) if has_covered else _end_of(context, stem + LOG + SWAP, base)
    )
    for other, found in suffixes.items():
        if base < other < end:
            for suffix in found:
                filesystem.remove(f"{folder}/{segment_name(other)}{suffix}")
    filesystem.sync_directory(folder)
    for suffix in _INDEXES:
        if suffix + SWAP in suffixes[base]:  # otherwise it has its final name already
            filesystem.rename(stem + suffix + SWAP, stem + suffix)
    filesystem.sync_directory(folder)
    filesystem.rename(stem + LOG + SWAP, stem + LOG)
    filesystem.sync_directory(folder)
    if has_covered:
        filesystem.remove(stem + COVERED + SWAP)


def _end_of(context: Context, path: str, base: int) -> int:
    file = LogFile(context.files, path)
    end = base
    try:
        size = context.filesystem.size(file.descriptor())
        for found in headers(file, 0, size):
            end = found.next_offset
    except BadBatch:
        pass  # whoever reads it will be told
    finally:
        file.close()
    return end
