"""One partition's state through its versions: open version N, step, commit version N+1, whatever happened before.

Batch N reads version N and writes version N+1. The history beside the checkpoint is the truth, the local store a cache
of one version of it. The order of a commit, and why a kill anywhere is harmless:

    1. the changelog of N+1 is written under its name, whole     killed before: nothing happened; N is run again
    2. the local store applies it and becomes N+1                killed before: the store is at N, the file is there;
                                                                 N is run again, gives the same file, then step 2

A batch that is run again after step 2 finds the store at N+1: it reads version N as N+1 with the changelog's *before*
values laid upon it, gives the same digest, and has nothing to write. So an attempt that comes twice (speculation, a
zombie) never moves a store back, and the loser finds its work done. A store that is behind, on another line of history,
lost or corrupt is brought to version N from snapshot and changelogs first.

Versions have gaps where a partition is not in every batch (co-partitioned with its topic: Spark leaves partitions
without new rows out). Batch N then reads the newest version up to N, and still writes N+1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from headwater.pipeline.stateful.base import Base, Change, Changes, MemoryBase, Undone
from headwater.pipeline.stateful.changelog import ROOT, Header
from headwater.pipeline.stateful.errors import CorruptStateFile, StateLost, StateMismatch
from headwater.pipeline.stateful.history import KEEP_VERSIONS, History, Step
from headwater.pipeline.stateful.schema import TableHistory, TableSpec
from headwater.pipeline.stateful.state import State
from headwater.pipeline.stateful.store import STORE_BYTES_MAX, Mark, Reading, Store, discard_store, invert, open_store

__all__ = ["Partition", "Reached", "Version"]

UNDO_VERSIONS_MAX = 20  # versions that are undone in memory; from further ahead the store is rebuilt
SNAPSHOT_VERSIONS_MIN = 20  # changelogs at least between two snapshots
SNAPSHOT_VERSIONS_MAX = 1000  # and at most: what a new host has to step through
INLINE_SNAPSHOT_BYTES = (
    1 << 20
)  # a state up to this is snapshot in the task (a few ms), a larger one in a process beside

_log = logging.getLogger("headwater.pipeline")


@dataclass(frozen=True, slots=True)
class Reached:
    """How the local store came to hold a version: "here" already (or ahead, and read as it was), "stepped" forward by
    so many changelogs, or "rebuilt" from a snapshot or from nothing; and how long that took."""

    how: str
    versions: int = 0
    ms: float = 0.0


@dataclass
class Version:
    """An open version: what a step reads, and what its commit is compared with."""

    number: int
    digest: str
    state: State
    tables: tuple[TableHistory, ...]
    store_mark: Mark  # what the store held when the version was opened
    undone: tuple[Changes, ...]  # the changelogs between the version and the store, newest first
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    next: int = 0  # the version that its commit makes
    reached: Reached = field(default_factory=lambda: Reached("here"))


class Partition:
    """The versions of one operator's partition on this host."""

    def __init__(
        self,
        history: History,
        store_path: Path,
        specs: Sequence[TableSpec],
        *,
        keep_versions: int = KEEP_VERSIONS,
        store_bytes_max: int = STORE_BYTES_MAX,
        snapshot_beside: Callable[[Partition], None] | None = None,
        gaps: bool = False,
    ) -> None:
        self.history, self.store_path, self.specs, self._gaps = history, store_path, tuple(specs), gaps
        self.keep_versions, self._store_bytes_max = keep_versions, store_bytes_max
        self._snapshot_beside = snapshot_beside

    @contextmanager
    def at(self, batch: int) -> Iterator[Version]:
        """The version that a batch reads, open until the block ends."""
        with self.version(self._newest(batch) if self._gaps else batch) as version:
            version.next = batch + 1
            yield version

    @contextmanager
    def version(self, number: int) -> Iterator[Version]:
        """Version `number`, open until the block ends."""
        started = perf_counter()
        line = self._head(number)
        store, reached = self._bring_near(number, line)
        with store.reading() as reading:
            version = self._open(reading, number, line)
            version.reached = replace(reached, ms=(perf_counter() - started) * 1000)
            yield version

    def commit(self, version: Version, metrics: Mapping[str, Any] | None = None) -> Header:
        """Make the state's changes version N+1, once, whoever else does the same."""
        started = perf_counter()
        changes = version.state.changes()
        step = self.history.step(version.next, version.digest, version.tables, changes, metrics or {})
        written = self._write(version, step)
        self._advance(version, changes, step, written, (perf_counter() - started) * 1000)
        return step.header

    def _write(self, version: Version, step: Step) -> int:
        """Put the changelog beside the checkpoint, unless an equal one is there; the bytes written."""
        if self._gaps or version.store_mark.version > version.number:
            existing = self._head_or_none(step.header.version)
            if existing is not None and existing.digest == step.header.digest:
                return 0
            if existing is None and self._gaps:
                return self.history.write(step)
            self._check_alone(existing, step)
            _log.warning(
                "%s partition %d: batch %d was run again with another result: its code or its input changed, or its "
                "step is not deterministic",
                self.history.operator,
                self.history.partition,
                version.number,
            )
        return self.history.write(step)

    def _advance(self, version: Version, changes: Changes, step: Step, written: int, ms: float) -> None:
        store = open_store(self.store_path, self._store_bytes_max)
        before = Mark(version.number, version.digest)
        at = version.store_mark
        mark = Mark(
            step.header.version,
            step.header.digest,
            version.tables,
            at.versions_since + 1,
            at.bytes_since + written,
            ms,
        )
        if store.commit([before], [changes], mark):
            self._snapshot_if_due(store, mark)
        elif written and version.undone:
            store.commit([at], [*map(invert, version.undone), changes], mark)
        elif self._gaps:
            self._check_alone(self._head_or_none(step.header.version), step)

    def _check_alone(self, existing: Header | None, step: Step) -> None:
        """StateMismatch if another task of the same run made this version of other rows: one would undo the other."""
        mine, theirs = (
            str(metrics.get("origin", "")).rpartition(":")
            for metrics in (step.header.metrics, {} if existing is None else existing.metrics)
        )
        if mine[0] and mine[0] == theirs[0] and mine[2] != theirs[2]:
            raise StateMismatch(
                f"{self.history.operator}: tasks {theirs[2]} and {mine[2]} both have rows of partition "
                f"{self.history.partition}: copartitioned=True needs a partition to be read by one task, so one topic, "
                "and no minPartitions or maxRecordsPerPartition"
            )

    # ---- reaching a version

    def _newest(self, batch: int) -> int:
        """The newest version up to `batch`. One beyond what the batch makes is of a query that is ahead of this one."""
        versions = sorted({0, *self.history.changelogs(), *self.history.snapshots()})
        if versions[-1] > batch + 1:
            raise StateMismatch(
                f"{self.history.operator} partition {self.history.partition} is at version {versions[-1]}, ahead of "
                f"batch {batch}: another run of the query went further, or the checkpoint was set back without its "
                "folder 'headwater'"
            )
        return max(version for version in versions if version <= batch)

    def _between(self, low: int, high: int) -> list[int]:
        """The versions with changelogs, low < version <= high."""
        if not self._gaps:
            return list(range(low + 1, high + 1))
        return [version for version in self.history.changelogs() if low < version <= high]

    def _head(self, number: int) -> str | None:
        """The digest that version `number` has in the history; None when its changelog was already forgotten."""
        if number == 0:
            return ROOT
        header = self._head_or_none(number)
        return None if header is None else header.digest

    def _head_or_none(self, number: int) -> Header | None:
        try:
            return self.history.head(number)
        except CorruptStateFile as error:
            _log.error("%s", error)
            return None

    def _bring_near(self, number: int, line: str | None) -> tuple[Store, Reached]:
        """A store from which version `number` can be read: at it, or a little ahead on the same line."""
        store = open_store(self.store_path, self._store_bytes_max)
        with store.reading() as reading:
            mark = reading.mark
        if number == 0 or self._is_at(mark, number, line):
            return store, Reached("here")
        if mark.version > number and self._undo_chain(mark, number, line) is not None:
            return store, Reached("here")
        if mark.version and mark.version < number and self._step_forward(store, mark, number, line):
            return store, Reached("stepped", number - mark.version)
        self._rebuild(store, number, line)
        return open_store(self.store_path, self._store_bytes_max), Reached("rebuilt")

    @staticmethod
    def _is_at(mark: Mark, number: int, line: str | None) -> bool:
        return mark.version == number and (line is None or mark.digest == line)

    def _open(self, reading: Reading, number: int, line: str | None) -> Version:
        mark = reading.mark
        if number == 0 and mark.version > 0:
            return self._version(Mark(), MemoryBase(), mark)
        if mark.version == number:
            return self._version(mark, reading, mark, sizes=reading.sizes())
        chain = self._undo_chain(mark, number, line) if mark.version > number else None
        if chain is None:
            raise StateLost(
                f"{self.history.operator} partition {self.history.partition}: the store moved from version {number} to "
                f"{mark.version} while it was being opened; the task can be run again"
            )
        headers, undone = chain
        here = replace(mark, version=number, digest=headers[-1].parent)
        return self._version(here, Undone(reading, _before(undone)), mark, undone, reading.sizes())

    def _version(
        self,
        here: Mark,
        base: Base,
        store: Mark,
        undone: tuple[Changes, ...] = (),
        sizes: Mapping[str, tuple[int, int]] | None = None,
    ) -> Version:
        tables = evolve(here.tables, self.specs)
        return Version(here.version, here.digest, State(tables, base), tables, store, undone, sizes or {})

    def _undo_chain(self, mark: Mark, number: int, line: str | None) -> tuple[list[Header], tuple[Changes, ...]] | None:
        """The changelogs from the store back to version `number`, newest first; None when they do not lead there."""
        if mark.version - number > UNDO_VERSIONS_MAX:
            return None
        headers: list[Header] = []
        undone: list[Changes] = []
        expected = mark.digest
        for version in reversed(self._between(number, mark.version)):
            found = self._changes_or_none(version)
            if found is None or found[0].digest != expected:
                return None
            headers.append(found[0])
            undone.append(found[1])
            expected = found[0].parent
        return (headers, tuple(undone)) if line is None or expected == line else None

    def _step_forward(self, store: Store, mark: Mark, number: int, line: str | None) -> bool:
        """Apply the changelogs from the store's version to `number`; False when they do not follow on from it."""
        for version in self._between(mark.version, number):
            found = self._changes_or_none(version)
            if found is None or found[0].parent != mark.digest:
                return False
            header, changes = found
            after = Mark(version, header.digest, header.tables, mark.versions_since + 1, mark.bytes_since)
            if not store.commit([mark], [changes], after):
                return False
            mark = after
        return mark.version == number and (line is None or mark.digest == line)

    def _changes_or_none(self, version: int) -> tuple[Header, dict[str, list[Change]]] | None:
        try:
            return self.history.changes(version)
        except CorruptStateFile as error:
            _log.error("%s", error)
            return None

    def _rebuild(self, store: Store, number: int, line: str | None) -> None:
        """The store at version `number` from the newest snapshot that leads there."""
        _log.warning(
            "%s partition %d: rebuilding the local store at version %d",
            self.history.operator,
            self.history.partition,
            number,
        )
        candidates = [version for version in reversed(self.history.snapshots()) if version <= number]
        for snapshot in [*candidates, 0]:
            if self._load(store, snapshot):
                with store.reading() as reading:
                    mark = reading.mark
                if self._step_forward(store, mark, number, line):
                    return
        self._raise_lost(number)

    def _load(self, store: Store, snapshot: int) -> bool:
        if snapshot == 0:
            store.rebuild([], Mark())
            return True
        try:
            found = self.history.snapshot(snapshot)
        except CorruptStateFile as error:
            _log.error("%s", error)
            return False
        if found is None:
            return False
        header, rows = found
        store.rebuild(rows, Mark(snapshot, header.digest, header.tables))
        return True

    def _raise_lost(self, number: int) -> None:
        """Name the file that is missing or damaged: without it version `number` cannot be had."""
        snapshots, changelogs = self.history.snapshots(), self.history.changelogs()
        for version in changelogs:
            if version <= number:
                self.history.changes(version)
        raise StateLost(
            f"{self.history.operator} partition {self.history.partition}: version {number} cannot be rebuilt from "
            f"{self.history.files.where}/{self.history.folder} (snapshots {snapshots}, changelogs {changelogs[:1]} to "
            f"{changelogs[-1:]}): restart with a new checkpoint"
        )

    # ---- snapshots

    def _snapshot_if_due(self, store: Store, mark: Mark) -> None:
        with store.reading() as reading:
            size = sum(size for _, size in reading.sizes().values())
        enough = mark.versions_since >= SNAPSHOT_VERSIONS_MIN and mark.bytes_since >= size
        if not enough and mark.versions_since < SNAPSHOT_VERSIONS_MAX:
            return
        if size <= INLINE_SNAPSHOT_BYTES or self._snapshot_beside is None:
            self.snapshot()
        else:
            self._snapshot_beside(self)

    def snapshot(self) -> int:
        """Write a snapshot of the store's version, and forget what it makes unnecessary; the version."""
        store = open_store(self.store_path, self._store_bytes_max)
        with store.reading() as reading:
            mark = reading.mark
            self.history.write_snapshot(reading, mark.version, mark.digest, mark.tables)
        store.note_snapshot(mark.version)
        self.history.forget(mark.version, self.keep_versions)
        return mark.version

    def discard_local(self) -> None:
        discard_store(self.store_path)


def evolve(tables: Sequence[TableHistory], specs: Sequence[TableSpec]) -> tuple[TableHistory, ...]:
    """The tables on disk as the operator now declares them; tables it declares no more are kept as they are."""
    known = {table.name: table for table in tables}
    evolved = {
        spec.name: known[spec.name].evolve(spec) if spec.name in known else TableHistory.new(spec) for spec in specs
    }
    kept = tuple(evolved.pop(table.name, table) for table in tables)
    return (*kept, *evolved.values())


def _before(undone: Sequence[Changes]) -> dict[str, dict[bytes, bytes | None]]:
    """The values before all of the changes (newest first): the oldest one's word counts."""
    before: dict[str, dict[bytes, bytes | None]] = {}
    for changes in undone:
        for table, entries in changes.items():
            before.setdefault(table, {}).update({key: value for key, value, _ in entries})
    return before
