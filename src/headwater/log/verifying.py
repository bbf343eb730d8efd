"""Every byte of a data directory checked, without changing any: what is wrong is named by file and position.

Batches: checksum, records, offsets in order, leader epochs as recorded. Indexes, transaction indexes and producer
snapshots: against what the batches say. The small text files: that they can be read and fit the logs. What a crash
leaves behind (`.cleaned`, `.swap`, `.deleted`, `.tmp`) is of no meaning and not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.errors import Corrupted
from headwater.filesystem import Filesystem
from headwater.log.aborted import AbortedIndex, AbortedTransaction
from headwater.log.checkpoints import Offsets, decode_checkpoint, decode_metadata
from headwater.log.epochs import LeaderEpochs
from headwater.log.files import LogFile, OpenFiles, read_whole
from headwater.log.indexes import OffsetIndex, TimeIndex
from headwater.log.layout import (
    ABORTED,
    CONTROL,
    EPOCHS_FILE,
    INDEX,
    LOG,
    METADATA_FILE,
    RELATIVE_OFFSET_MAX,
    SNAPSHOT,
    TIMES,
    TRANSACTIONAL,
    offset_of,
    segment_name,
)
from headwater.log.scanning import BadBatch, Found, corrupted, find_batch_after, whole_batches
from headwater.log.snapshots import snapshot_entries
from headwater.wire.batches import decode_marker, decode_records
from headwater.wire.errors import CorruptBatch

__all__ = ["Verified", "verify_directory"]

FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]+)")
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint")


@dataclass(slots=True)
class Verified:
    """What was looked at."""

    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    damage: list[Corrupted] = field(default_factory=list)


def verify_directory(filesystem: Filesystem, path: str) -> Verified:
    """A data directory that no broker uses."""
    verified = Verified()
    checkpoints = {name: _checkpoint(filesystem, f"{path}/{name}", verified) for name in CHECKPOINTS}
    for entry in sorted(filesystem.scan(path), key=lambda each: each.name):
        match = FOLDER.fullmatch(entry.name)
        if entry.is_directory and match is not None:
            key = match["topic"], int(match["partition"])
            compacted = key in checkpoints["cleaner-offset-checkpoint"]
            partition = _Partition(filesystem, f"{path}/{entry.name}", compacted, verified)
            partition.run()
            for name, offsets in checkpoints.items():
                partition.check_offset(f"{path}/{name}", offsets.get(key))
    return verified


def _checkpoint(filesystem: Filesystem, path: str, verified: Verified) -> Offsets:
    if not filesystem.exists(path):
        return {}
    content = read_whole(filesystem, path)
    verified.bytes += len(content)
    try:
        return decode_checkpoint(content, path)
    except Corrupted as damage:
        verified.damage.append(damage)
        return {}


class _Partition:
    """One folder, segment after segment; transactions go across them."""

    def __init__(self, filesystem: Filesystem, folder: str, compacted: bool, verified: Verified) -> None:
        self._filesystem = filesystem
        self._folder = folder
        self._compacted = compacted
        self._verified = verified
        self._files = OpenFiles(filesystem)
        self._sizes = {entry.name: entry.size for entry in filesystem.scan(folder) if not entry.is_directory}
        self._epochs = LeaderEpochs()
        self._open: dict[int, int] = {}  # producer id -> first offset of its open transaction
        self._end = 0

    def run(self) -> None:
        self._verified.partitions += 1
        self._small_files()
        bases = sorted(base for name in self._sizes if name.endswith(LOG) and (base := offset_of(name)) is not None)
        self._end = bases[0] if bases else 0
        for base, following in zip(bases, [*bases[1:], None], strict=True):
            self._segment(base, following)
        self._snapshots()

    def check_offset(self, checkpoint: str, offset: int | None) -> None:
        """An offset that a checkpoint names must be one that the log has had."""
        if offset is not None and offset > self._end:
            self._damaged(checkpoint, 0, f"offset {offset} of {self._folder}, whose batches end at {self._end}")

    def _damaged(self, path: str, position: int, reason: str) -> None:
        self._verified.damage.append(Corrupted(path, position, reason))

    def _small_files(self) -> None:
        for name, decode in ((METADATA_FILE, decode_metadata), (EPOCHS_FILE, LeaderEpochs.decoded)):
            if name not in self._sizes:
                continue
            path = f"{self._folder}/{name}"
            content = read_whole(self._filesystem, path)
            self._verified.bytes += len(content)
            try:
                decoded = decode(content, path)
            except Corrupted as damage:
                self._verified.damage.append(damage)
            else:
                self._epochs = decoded if isinstance(decoded, LeaderEpochs) else self._epochs

    def _segment(self, base: int, following: int | None) -> None:
        self._verified.segments += 1
        stem = f"{self._folder}/{segment_name(base)}"
        if base > self._end and not self._compacted:
            self._damaged(stem + LOG, 0, f"begins with offset {base} where {self._end} is next")
        facts = _Facts()
        aborted = {entry.last_offset: entry for entry in self._aborted_entries(stem + ABORTED)}
        for found in self._batches(stem + LOG, base, following or base + RELATIVE_OFFSET_MAX):
            facts.add(found)
            self._batch(stem, found, aborted)
        for entry in aborted.values():
            self._damaged(stem + ABORTED, 0, f"{entry} is not in the log")
        if facts.count:
            self._offset_index(stem + INDEX, base, facts)
            self._time_index(stem + TIMES, base, facts, closed=following is not None)

    def _batches(self, path: str, base: int, limit: int) -> Iterator[Found]:
        """Those that are right; what is between them is reported and stepped over."""
        file, size = LogFile(self._files, path), self._sizes[path.rpartition("/")[2]]
        self._verified.bytes += size
        position, expected = 0, base
        while position < size:
            try:
                for found in whole_batches(file, position, size, expected, gaps=self._compacted):
                    position, expected = found.position + found.size, found.next_offset
                    yield found
            except BadBatch as bad:
                self._verified.damage.append(corrupted(file, bad))
                beyond = find_batch_after(file, bad.position + 1, size, range(expected + 1, limit))
                position, expected = (size, expected) if beyond is None else (beyond.position, beyond.header[0])
        self._end = expected
        file.close()

    def _batch(self, stem: str, found: Found, aborted: dict[int, AbortedTransaction]) -> None:
        header = found.header
        self._verified.batches += 1
        self._verified.records += header[12]
        known = self._epochs.of(header[0])
        if known >= 0 and header[2] != known:
            reason = f"leader epoch {header[2]} at offset {header[0]}, {EPOCHS_FILE} says {known}"
            self._damaged(stem + LOG, found.position + 12, reason)
        try:
            offsets = [record.offset for record in decode_records(found.content)]
            if offsets != sorted(set(offsets)) or (
                offsets and not header[0] <= offsets[0] <= offsets[-1] < found.next_offset
            ):
                self._damaged(stem + LOG, found.position, f"records with the offsets {offsets}")
            if header[5] & CONTROL and offsets:
                self._marker(stem, found, aborted)
            elif header[5] & TRANSACTIONAL:
                self._open.setdefault(header[9], header[0])
        except CorruptBatch as error:
            self._damaged(stem + LOG, found.position, str(error))

    def _marker(self, stem: str, found: Found, aborted: dict[int, AbortedTransaction]) -> None:
        marker, header = decode_marker(found.content), found.header
        if marker is None:
            return
        first = self._open.pop(header[9], None)
        entry = aborted.pop(header[0], None)
        if marker.commit:
            if entry is not None:
                self._damaged(stem + ABORTED, 0, f"{entry} was committed")
        elif entry is None:
            if first is not None:
                reason = f"the transaction of producer {header[9]}, aborted at offset {header[0]}, is missing"
                self._damaged(stem + ABORTED, 0, reason)
        elif (entry.producer_id, entry.first_offset) != (header[9], first or entry.first_offset) or not (
            entry.first_offset <= entry.last_offset and entry.last_stable_offset <= entry.last_offset + 1
        ):
            self._damaged(stem + ABORTED, 0, f"{entry} began at offset {first}")

    def _aborted_entries(self, path: str) -> list[AbortedTransaction]:
        size = self._sizes.get(path.rpartition("/")[2], 0)
        self._verified.bytes += size
        if size % AbortedIndex.ENTRY_SIZE:
            self._damaged(path, size - size % AbortedIndex.ENTRY_SIZE, "the last entry is not whole")
        file = LogFile(self._files, path)
        entries = AbortedIndex(file, size).entries()
        for number in range(len(entries)):
            version = file.read(2, number * AbortedIndex.ENTRY_SIZE)
            if version != b"\0\0":
                self._damaged(path, number * AbortedIndex.ENTRY_SIZE, f"entry of version {version.hex()}")
        file.close()
        return entries

    def _index_content(self, path: str, entry_size: int) -> bytes | None:
        """Without the zeros that a running Kafka keeps behind its entries; None when it cannot be read."""
        size = self._sizes.get(path.rpartition("/")[2])
        if size is None:
            self._damaged(path, 0, "the index is missing")
            return None
        self._verified.bytes += size
        content = read_whole(self._filesystem, path)
        kept = -(-len(content.rstrip(b"\0")) // entry_size) * entry_size
        if kept > len(content):
            self._damaged(path, len(content) // entry_size * entry_size, "the last entry is not whole")
            return None
        if len(content) % entry_size:
            self._damaged(path, len(content) // entry_size * entry_size, "the last entry is not whole")
        return content[:kept]

    def _offset_index(self, path: str, base: int, facts: _Facts) -> None:
        content = self._index_content(path, OffsetIndex.ENTRY.size)
        for number, (relative, position) in enumerate(OffsetIndex.ENTRY.iter_unpack(content or b"")):
            if facts.last_offset_at.get(position) != base + relative:
                reason = f"offset {base + relative} at position {position}: no such batch is there"
                self._damaged(path, number * OffsetIndex.ENTRY.size, reason)

    def _time_index(self, path: str, base: int, facts: _Facts, *, closed: bool) -> None:
        content = self._index_content(path, TimeIndex.ENTRY.size)
        if content is None:
            return
        last = -1
        for number, (timestamp, relative) in enumerate(TimeIndex.ENTRY.iter_unpack(content)):
            at = number * TimeIndex.ENTRY.size
            if facts.timestamp_of.get(base + relative) != timestamp:
                self._damaged(path, at, f"timestamp {timestamp} at offset {base + relative}: no such batch is there")
            elif timestamp <= last and number:
                self._damaged(path, at, f"timestamp {timestamp} after {last}")
            last = timestamp
        if closed and last < facts.max_timestamp:
            self._damaged(path, len(content), f"ends with timestamp {last}, the log has {facts.max_timestamp}")

    def _snapshots(self) -> None:
        for name in sorted(self._sizes):
            offset = offset_of(name)
            if not name.endswith(SNAPSHOT) or offset is None:
                continue
            path = f"{self._folder}/{name}"
            content = read_whole(self._filesystem, path)
            self._verified.bytes += len(content)
            try:
                beyond = [entry for entry in snapshot_entries(content, path) if max(entry[3], entry[7]) >= offset]
            except Corrupted as damage:
                self._verified.damage.append(damage)
                continue
            if beyond:
                self._damaged(path, 0, f"of offset {offset}, but it knows offset {max(beyond[0][3], beyond[0][7])}")


class _Facts:
    """What a segment's batches say that its indexes must agree with."""

    def __init__(self) -> None:
        self.count = 0
        self.max_timestamp = -1
        self.last_offset_at: dict[int, int] = {}  # position of a batch -> its last offset
        self.timestamp_of: dict[int, int] = {}  # last offset of a batch -> its greatest timestamp

    def add(self, found: Found) -> None:
        self.count += 1
        self.max_timestamp = max(self.max_timestamp, found.header[8])
        self.last_offset_at[found.position] = found.next_offset - 1
        self.timestamp_of[found.next_offset - 1] = found.header[8]
