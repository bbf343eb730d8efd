"""The versions of one partition beside the checkpoint: one changelog per version, a snapshot now and then.

    <operator>/<partition>/changelog-<version>   leads from version-1 to version
    <operator>/<partition>/snapshot-<version>    the whole state at a version

Versions form a chain: each file names the digest of its version and of the one it starts from, so a file that belongs
to another line of history (a re-run with changed code, a restored checkpoint) is noticed and not applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.pipeline.stateful.base import Base, Change, Changes
from headwater.pipeline.stateful.changelog import (
    Header,
    block,
    decode_changes,
    digest_of,
    encode_changes,
    end,
    read_blocks,
    read_changes,
    read_header,
    start,
)
from headwater.pipeline.stateful.errors import CorruptStateFile
from headwater.pipeline.stateful.files import Files
from headwater.pipeline.stateful.schema import TableHistory

__all__ = ["KEEP_VERSIONS", "History", "Step"]

KEEP_VERSIONS = 100  # versions that a query can go back by: as many as Spark keeps batches (minBatchesToRetain)
HEAD_BYTES = 64 << 10  # the first read of a file: holds the header of any but the widest operators
SNAPSHOT_BLOCK_ROWS = 50_000  # rows of a snapshot that are in memory at once


@dataclass(frozen=True, slots=True)
class Step:
    """The changes that lead to a version, ready to be written."""

    header: Header
    raws: tuple[bytes, ...]

    def chunks(self) -> Iterator[bytes]:
        yield start(self.header)
        yield from map(block, self.raws)
        yield end()


class History:
    """The files of one operator's partition."""

    def __init__(self, files: Files, operator: str, partition: int, folder: str | None = None) -> None:
        self.files, self.operator, self.partition = files, operator, partition
        self.folder = f"{folder or operator}/{partition}"

    def newest(self) -> int:
        """The newest version there is; 0 when there is none."""
        return max([0, *self.changelogs(), *self.snapshots()])

    def step(
        self, version: int, parent: str, tables: Sequence[TableHistory], changes: Changes, metrics: Mapping[str, Any]
    ) -> Step:
        """The changelog that leads from version-1 (known by `parent`) to `version`."""
        raws = tuple(
            encode_changes(number, changes[table.name])
            for number, table in enumerate(tables)
            if changes.get(table.name)
        )
        digest = digest_of(parent, raws)
        header = Header("changelog", self.operator, self.partition, version, digest, parent, tuple(tables), metrics)
        return Step(header, raws)

    def write(self, step: Step) -> int:
        return self.files.write(self._changelog(step.header.version), step.chunks())

    def head(self, version: int) -> Header | None:
        """The header of the changelog that leads to a version; None when there is none."""
        return self._head(self._changelog(version))

    def changes(self, version: int) -> tuple[Header, dict[str, list[Change]]] | None:
        """A changelog, verified as a whole; None when there is none."""
        name = self._changelog(version)
        data = self.files.read(name)
        return None if data is None else read_changes(data, self._where(name))

    def snapshots(self) -> list[int]:
        return self._versions("snapshot-")

    def changelogs(self) -> list[int]:
        return self._versions("changelog-")

    def write_snapshot(self, base: Base, version: int, digest: str, tables: Sequence[TableHistory]) -> int:
        header = Header("snapshot", self.operator, self.partition, version, digest, digest, tuple(tables))
        return self.files.write(self._snapshot(version), _snapshot_chunks(header, base))

    def snapshot(self, version: int) -> tuple[Header, Iterator[tuple[str, Sequence[Change]]]] | None:
        """A snapshot's header and its rows by table, as changes from nothing; verified before the first row."""
        name = self._snapshot(version)
        data = self.files.read(name)
        if data is None:
            return None
        where = self._where(name)
        header = read_header(data, where)
        for _ in read_blocks(data, where):
            pass
        rows = ((header.tables[t].name, entries) for t, entries in map(decode_changes, read_blocks(data, where)))
        return header, rows

    def forget(self, version: int, keep: int) -> list[str]:
        """Delete what is not needed to reach the last `keep` versions before `version`; the names deleted."""
        reachable = [snapshot for snapshot in self.snapshots() if snapshot <= version - keep]
        if not reachable:
            return []
        oldest = reachable[-1]
        names = [self._snapshot(v) for v in reachable[:-1]]
        names += [self._changelog(v) for v in self.changelogs() if v <= oldest]
        for name in names:
            self.files.delete(name)
        return names

    def _head(self, name: str) -> Header | None:
        head = self.files.head(name, HEAD_BYTES)
        if head is None:
            return None
        try:
            return read_header(head, self._where(name))
        except CorruptStateFile:
            if len(head) < HEAD_BYTES:
                raise
            whole = self.files.read(name)
            return None if whole is None else read_header(whole, self._where(name))

    def _versions(self, prefix: str) -> list[int]:
        names = self.files.names(self.folder)
        return [int(name[len(prefix) :]) for name in names if name.startswith(prefix)]

    def _changelog(self, version: int) -> str:
        return f"{self.folder}/changelog-{version:012d}"

    def _snapshot(self, version: int) -> str:
        return f"{self.folder}/snapshot-{version:012d}"

    def _where(self, name: str) -> str:
        return f"{self.files.where}/{name}"


def _snapshot_chunks(header: Header, base: Base) -> Iterator[bytes]:
    yield start(header)
    for number, table in enumerate(header.tables):
        for rows in _in_blocks(base.scan(table.name, b"", b"")):
            yield block(encode_changes(number, rows))
    yield end()


def _in_blocks(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[list[Change]]:
    rows: list[Change] = []
    for key, value in pairs:
        rows.append((bytes(key), None, bytes(value)))
        if len(rows) == SNAPSHOT_BLOCK_ROWS:
            yield rows
            rows = []
    if rows:
        yield rows
