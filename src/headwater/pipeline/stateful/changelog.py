"""The files of a state's history: changelogs and snapshots. The format is described in docs/formats/state.md.

    file   := magic(8) block... end
    block  := raw length(u32) stored length(u32) crc32c of both and of the stored bytes(u32) zstd bytes
    end    := a block whose lengths are 0; nothing comes behind it

The first block is the header (JSON), the others hold entries. A file without its end, or with a block that does not
match its checksum, is CorruptStateFile: nothing of it is used.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import google_crc32c
import numpy as np
import pyarrow as pa

from headwater.pipeline.stateful.base import Change
from headwater.pipeline.stateful.errors import CorruptStateFile, StateMismatch
from headwater.pipeline.stateful.schema import TableHistory

__all__ = ["FORMAT", "ROOT", "Header", "block", "digest_of", "end", "read_changes", "read_header", "start"]

FORMAT = 1
MAGIC = b"HWSTATE\x01"
ROOT = "0" * 32  # the digest of version 0: the empty state
BLOCK_BYTES_MAX = 1 << 31  # the length fields' range, kept clear of the sign bit
_LENGTHS = struct.Struct("<III")
_PAIR = struct.Struct("<II")
_COUNT = struct.Struct("<I")
_ABSENT = 0xFFFFFFFF  # the length that stands for "no value"
_CODEC = pa.Codec("zstd", compression_level=1)


@dataclass(frozen=True, slots=True)
class Header:
    """What a file is: of which operator and partition, the version it leads to, and where it comes from."""

    kind: str  # "changelog" or "snapshot"
    operator: str
    partition: int
    version: int
    digest: str
    parent: str
    tables: tuple[TableHistory, ...]
    metrics: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        body = {
            "format": FORMAT,
            "kind": self.kind,
            "operator": self.operator,
            "partition": self.partition,
            "version": self.version,
            "digest": self.digest,
            "parent": self.parent,
            "tables": [table.to_json() for table in self.tables],
            "metrics": self.metrics,
        }
        return json.dumps(body, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, raw: bytes, path: str) -> Header:
        body = json.loads(raw)
        if body["format"] > FORMAT:
            raise StateMismatch(
                f"{path} has state format {body['format']}, this headwater reads up to {FORMAT}: use the newer one"
            )
        return cls(
            kind=body["kind"],
            operator=body["operator"],
            partition=body["partition"],
            version=body["version"],
            digest=body["digest"],
            parent=body["parent"],
            tables=tuple(TableHistory.from_json(table) for table in body["tables"]),
            metrics=body["metrics"],
        )


def start(header: Header) -> bytes:
    """The first bytes of a file."""
    return MAGIC + block(header.to_bytes())


def block(raw: bytes) -> bytes:
    stored: bytes = _CODEC.compress(raw, asbytes=True)
    return _LENGTHS.pack(len(raw), len(stored), _checksum(len(raw), stored)) + stored


def end() -> bytes:
    return _LENGTHS.pack(0, 0, _checksum(0, b""))


def _checksum(raw_length: int, stored: bytes) -> int:
    return int(google_crc32c.extend(google_crc32c.value(_PAIR.pack(raw_length, len(stored))), stored))


def digest_of(parent: str, raws: Sequence[bytes]) -> str:
    """What a version is known by: its changes and everything before them."""
    digest = hashlib.blake2b(bytes.fromhex(parent), digest_size=16)
    for raw in raws:
        digest.update(raw)
    return digest.hexdigest()


def encode_changes(table: int, changes: Sequence[Change]) -> bytes:
    """A block's entries of one table: table number, count, three columns of lengths, then the bytes."""
    keys, befores, afters = zip(*changes, strict=True) if changes else ((), (), ())
    pieces = [_COUNT.pack(table), _COUNT.pack(len(changes))]
    pieces += [_lengths(column) for column in (keys, befores, afters)]
    for column in (keys, befores, afters):
        pieces.append(b"".join([value for value in column if value is not None]))
    return b"".join(pieces)


def decode_changes(raw: bytes) -> tuple[int, list[Change]]:
    (table,), (count,) = _COUNT.unpack_from(raw, 0), _COUNT.unpack_from(raw, 4)
    lengths = np.frombuffer(raw, dtype="<u4", count=3 * count, offset=8)
    position = 8 + 12 * count
    columns: list[list[bytes | None]] = []
    for column in range(3):
        values, position = _values(raw, lengths[column * count : (column + 1) * count], position)
        columns.append(values)
    return table, list(zip(*columns, strict=True))


def _lengths(values: Sequence[bytes | None]) -> bytes:
    if None not in values:
        return np.fromiter(map(len, cast("Sequence[bytes]", values)), dtype="<u4", count=len(values)).tobytes()
    lengths = [_ABSENT if value is None else len(value) for value in values]
    return np.array(lengths, dtype="<u4").tobytes()


def _values(raw: bytes, lengths: Any, position: int) -> tuple[list[bytes | None], int]:
    values: list[bytes | None] = []
    for length in lengths.tolist():
        if length == _ABSENT:
            values.append(None)
        else:
            values.append(raw[position : position + length])
            position += length
    return values, position


def read_header(head: bytes, path: str) -> Header:
    """The header from a file's first bytes (or the whole file)."""
    if head[: len(MAGIC)] != MAGIC:
        raise CorruptStateFile(path, 0, f"it starts with {head[:8]!r}, not with a state file's magic")
    raw, _ = _block_at(head, len(MAGIC), path)
    return Header.from_bytes(raw, path)


def read_blocks(data: bytes, path: str) -> Iterator[bytes]:
    """The entry blocks, each checked; complains at the end about a file that just stops."""
    _, position = _block_at(data, len(MAGIC), path)
    while True:
        raw, position = _block_at(data, position, path)
        if not raw:
            break
        yield raw
    if position != len(data):
        raise CorruptStateFile(path, position, f"{len(data) - position} bytes come behind the end")


def read_changes(data: bytes, path: str) -> tuple[Header, dict[str, list[Change]]]:
    """A whole changelog, verified from the first byte to the last before anything of it is returned."""
    header = read_header(data, path)
    raws = list(read_blocks(data, path))
    if digest_of(header.parent, raws) != header.digest:
        raise CorruptStateFile(path, 0, "its entries do not have the digest in its header")
    changes: dict[str, list[Change]] = {}
    for raw in raws:
        table, entries = decode_changes(raw)
        changes.setdefault(header.tables[table].name, []).extend(entries)
    return header, changes


def _block_at(data: bytes, position: int, path: str) -> tuple[bytes, int]:
    if position + _LENGTHS.size > len(data):
        raise CorruptStateFile(path, position, "the file ends in the middle")
    raw_length, stored_length, checksum = _LENGTHS.unpack_from(data, position)
    begin = position + _LENGTHS.size
    stored = data[begin : begin + stored_length]
    if raw_length > BLOCK_BYTES_MAX or len(stored) < stored_length:
        raise CorruptStateFile(path, position, f"a block of {stored_length} bytes goes beyond the end")
    if _checksum(raw_length, stored) != checksum:
        raise CorruptStateFile(path, position, "a block does not match its checksum")
    if not raw_length:
        return b"", begin
    return _CODEC.decompress(stored, raw_length, asbytes=True), begin + stored_length
