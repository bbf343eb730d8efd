"""What is in a file of the log, item by item, for people and programs that look; nothing is changed.

By the file's name: batches (with their records, if wanted) of `.log`, entries of `.index`, `.timeindex`, `.txnindex`
and `.snapshot`, lines of the small text files. Where bytes are not what they should be, an item says so under
`damage` and the dump goes on after it if it can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from headwater.errors import BadInput, Corrupted
from headwater.filesystem import Filesystem
from headwater.log.aborted import AbortedIndex
from headwater.log.checkpoints import decode_checkpoint, decode_metadata, decode_properties
from headwater.log.epochs import LeaderEpochs
from headwater.log.files import LogFile, OpenFiles, read_whole
from headwater.log.indexes import OffsetIndex, TimeIndex
from headwater.log.layout import ABORTED, EPOCHS_FILE, INDEX, LOG, METADATA_FILE, SNAPSHOT, TIMES, offset_of
from headwater.log.scanning import BadBatch, Found, find_batch_after, whole_batches
from headwater.log.snapshots import snapshot_entries
from headwater.wire.batches import BatchHeader, decode_marker, decode_records
from headwater.wire.compression import Codec
from headwater.wire.errors import CorruptBatch

__all__ = ["dump_file"]

Item = dict[str, Any]
OFFSETS_MAX = 2**63 - 1


def dump_file(filesystem: Filesystem, path: str, *, records: bool = False) -> Iterator[Item]:
    """The items of one file. BadInput when its name is of no file of the log."""
    name = path.rpartition("/")[2]
    base = offset_of(name) or 0
    suffix = "." + name.partition(".")[2].partition(".")[0] if offset_of(name) is not None else name
    try:
        match suffix:
            case ".log":
                yield from _batches(filesystem, path, base, records)
            case ".index":
                for relative, position in _entries(filesystem, path, OffsetIndex):
                    yield {"offset": base + relative, "position": position}
            case ".timeindex":
                for timestamp, relative in _entries(filesystem, path, TimeIndex):
                    yield {"timestamp": timestamp, "offset": base + relative}
            case ".txnindex":
                yield from _aborted(filesystem, path)
            case ".snapshot":
                yield from _producers(filesystem, path)
            case _:
                yield from _text(filesystem, path, name)
    except Corrupted as damage:
        yield {"position": damage.position, "damage": damage.reason}


def _entries(filesystem: Filesystem, path: str, index: type[OffsetIndex | TimeIndex]) -> Iterator[tuple[int, int]]:
    content, size = read_whole(filesystem, path), index.ENTRY.size
    kept = -(-len(content.rstrip(b"\0")) // size) * size  # a running Kafka keeps zeros behind its entries
    yield from index.ENTRY.iter_unpack(content[: min(kept, len(content) // size * size)])
    if len(content) % size:
        raise Corrupted(path, len(content) // size * size, "the last entry is not whole")


def _aborted(filesystem: Filesystem, path: str) -> Iterator[Item]:
    file = LogFile(OpenFiles(filesystem), path)
    size = filesystem.size(file.descriptor())
    for entry in AbortedIndex(file, size).entries():
        yield asdict(entry)
    if size % AbortedIndex.ENTRY_SIZE:
        raise Corrupted(path, size - size % AbortedIndex.ENTRY_SIZE, "the last entry is not whole")


def _producers(filesystem: Filesystem, path: str) -> Iterator[Item]:
    names = (
        "producer_id",
        "producer_epoch",
        "last_sequence",
        "last_offset",
        "offset_delta",
        "timestamp",
        "coordinator_epoch",
        "transaction_start_offset",
    )
    for entry in snapshot_entries(read_whole(filesystem, path), path):
        yield dict(zip(names, entry, strict=True))


def _text(filesystem: Filesystem, path: str, name: str) -> Iterator[Item]:
    content = read_whole(filesystem, path) if filesystem.exists(path) else b""
    if name == EPOCHS_FILE:
        for epoch, start in LeaderEpochs.decoded(content, path).entries:
            yield {"leader_epoch": epoch, "start_offset": start}
    elif name == METADATA_FILE:
        yield {"topic_id": str(decode_metadata(content, path))}
    elif name.endswith("-offset-checkpoint"):
        for (topic, partition), offset in decode_checkpoint(content, path).items():
            yield {"topic": topic, "partition": partition, "offset": offset}
    elif name == "meta.properties":
        yield dict(decode_properties(content))
    else:
        known = ", ".join((LOG, INDEX, TIMES, ABORTED, SNAPSHOT))
        raise BadInput(f"{path} is no file of the log: those are called {known}, or as Kafka's checkpoints")


def _batches(filesystem: Filesystem, path: str, base: int, records: bool) -> Iterator[Item]:
    file = LogFile(OpenFiles(filesystem), path)
    size = filesystem.size(file.descriptor())
    position, expected = 0, base
    while position < size:
        try:
            for found in whole_batches(file, position, size, expected, gaps=True):
                position, expected = found.position + found.size, found.next_offset
                yield _batch(found)
                if records:
                    yield from _records(found)
        except BadBatch as bad:
            yield {"position": bad.position, "damage": bad.reason}
            beyond = find_batch_after(file, bad.position + 1, size, range(expected + 1, OFFSETS_MAX))
            position, expected = (size, expected) if beyond is None else (beyond.position, beyond.header[0])


def _batch(found: Found) -> Item:
    header = BatchHeader(*found.header)
    item: Item = {
        "position": found.position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size": header.size,
        "codec": Codec(header.attributes & 7).name.lower() if header.attributes & 7 <= max(Codec) else "unknown",
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.transactional,
        "control": header.control,
        "log_append_time": header.log_append_time,
        "delete_horizon": header.delete_horizon,
        "crc": header.crc,
    }
    if header.control and header.record_count:
        marker = decode_marker(found.content)
        if marker is not None:
            item["marker"] = "commit" if marker.commit else "abort"
            item["coordinator_epoch"] = marker.coordinator_epoch
    return item


def _records(found: Found) -> Iterator[Item]:
    try:
        for record in decode_records(found.content):
            yield {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": record.key,
                "value": record.value,
                "headers": [list(header) for header in record.headers],
            }
    except CorruptBatch as error:
        yield {"position": found.position, "damage": str(error)}
