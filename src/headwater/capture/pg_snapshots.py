"""Which tables still have to be read, and where their chunks join the stream.

Tables with a primary key are read by `ChunkReader` while the stream goes on. A table without one has no order to cut
chunks by and no key to recognise a row by: it is read in one go, in one snapshot and one Kafka transaction, while the
stream waits; changes of transactions that the snapshot saw are then left out of the stream.

State, by table, under `snapshot/<schema>.<table>`:

    {"after": key of the last row in the log, "rows": n, "done": bool, "kind": "true"|"incremental", "holds": snapshot}
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from headwater.capture.pg_catalog import Catalog, TableRef
from headwater.capture.pg_plan import TablePlan
from headwater.capture.pg_rows import RowWriter
from headwater.capture.pg_snapshot import CHUNK_PREFIX, Chunk, ChunkReader, TableTask, whole_table
from headwater.capture.pg_visibility import ChangeLog, Visibility
from headwater.capture.pgoutput import LogicalMessage
from headwater.capture.progress import Progress
from headwater.capture.settings import Settings
from headwater.capture.source import Batch

__all__ = ["Snapshots"]

WHOLE_TABLE_BATCH_ROWS = 5_000
READY_POLL_S = 0.05

Announce = Callable[[TablePlan, int], None]


class Snapshots:
    """The snapshots of one capture; used by the reader's thread."""

    def __init__(self, dsn: str, settings: Settings, catalog: Catalog) -> None:
        self._dsn = dsn
        self._settings = settings
        self._catalog = catalog
        self._tasks: dict[int, TableTask] = {}
        self._whole: list[TableTask] = []
        self._whole_batches: Iterator[Batch] | None = None
        self._holds: dict[int, tuple[Visibility, int]] = {}  # table -> (seen by its snapshot, until this place)
        self._state: dict[str, Any] = {}
        self._progress: dict[str, Progress] = {}
        self._failure: Exception | None = None
        self._reader: ChunkReader | None = None
        self._paused = False
        self._look_again_at = 0.0
        self._base: Visibility | None = None
        self._waiting: list[Chunk] = []  # chunks whose marker came while paused

    def begin(
        self,
        writer: RowWriter,
        changes: ChangeLog,
        state: Mapping[str, Any],
        *,
        base: Visibility | None,
        tables: Sequence[TableRef],
        announce: Announce,
    ) -> None:
        self._writer, self._changes, self._announce = writer, changes, announce
        self._base = base
        self._reader = ChunkReader(self._dsn, self._settings, base, self._failed)
        running = "position" in state  # the slot was there before the tables that are new now
        for table in tables:
            known = state.get(f"snapshot/{table.full_name}", {})
            if known.get("holds"):
                self._holds[table.oid] = Visibility.parse(known["holds"]), known["until"]
            if known.get("done") or (not known and self._settings.snapshot == "never"):
                continue
            self._plan(table, known or {"added": running})

    def _plan(self, table: TableRef, known: Mapping[str, Any]) -> None:
        task = TableTask(
            table.oid,
            table.schema,
            table.name,
            after=known.get("after"),
            rows=known.get("rows", 0),
            total=self._catalog.estimate(table),
            kind=known.get("kind", "true"),
            added=known.get("added", False),
        )
        self._progress[table.full_name] = Progress(task.total, task.rows, time.monotonic())
        if self._catalog.details(table.oid).key:
            self._tasks[table.oid] = task
        else:
            self._whole.append(task)
        self._state[f"snapshot/{table.full_name}"] = _state(task)

    def resume(self) -> None:
        for task in self._tasks.values():
            self._start(task)

    def _start(self, task: TableTask) -> None:
        task.must_see = self._changes.watch(task.oid)
        self._writer.touched[task.oid] = self._changes.note
        if self._reader is not None:
            self._reader.start(task)

    def add(self, table: TableRef, kind: str, *, added: bool = False) -> None:
        """Read this table, again if need be; `added`: it has just been published."""
        if table.oid in self._tasks:
            return
        self._plan(table, {"kind": kind, "added": added})
        if table.oid in self._tasks:
            self._start(self._tasks[table.oid])

    def cancel(self, names: Sequence[str]) -> None:
        """Stop reading these tables (none named: all)."""
        for task in list(self._tasks.values()):
            if not names or task.full_name in names:
                if self._reader is not None:
                    self._reader.cancel(task.full_name)
                self._finish(task)

    def pause(self, paused: bool) -> None:
        self._paused = paused
        if not paused:
            waiting, self._waiting = self._waiting, []
            for chunk in waiting:
                self._catalog_marker(chunk)

    def _catalog_marker(self, chunk: Chunk) -> None:
        """Read it again: what changed since its marker is not known to be in or out."""
        if self._reader is not None:
            self._reader.read_again(self._catalog, chunk)

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _failed(self, error: Exception) -> None:
        self._failure = error

    def marker(self, lsn: int, message: LogicalMessage) -> bool:
        """Whether this message was the marker of a chunk; then its rows have joined the stream."""
        if message.prefix != CHUNK_PREFIX:
            return False
        chunk = self._reader.ready.pop(message.content.decode(errors="replace"), None) if self._reader else None
        if chunk is None:  # of an earlier run, or of another capture
            return True
        if self._tasks.get(chunk.task.oid) is not chunk.task:  # cancelled meanwhile, perhaps begun again
            self._taken()
        elif self._paused:
            self._waiting.append(chunk)
        elif not self._changes.complete(chunk.task.oid, chunk.snapshot):
            self._catalog_marker(chunk)
        else:
            self._publish(chunk, lsn)
        return True

    def _publish(self, chunk: Chunk, lsn: int) -> None:
        task, writer = chunk.task, self._writer
        stale = self._changes.stale(task.oid, chunk.snapshot)
        rows = [] if stale is None else [row for row in chunk.rows if row[0] not in stale] if stale else chunk.rows
        self._announce(chunk.plan, lsn)
        writer.add_topic(chunk.plan.topic, compacted=True)
        writer.records.extend(writer.snapshot_rows(chunk.plan, rows, lsn, task.kind.encode()))
        self._changes.seen(chunk.snapshot)
        task.after = chunk.last
        task.rows += len(chunk.rows)
        self._progress[task.full_name].advance(task.rows, time.monotonic())
        self._taken()
        if chunk.last is None:
            self._finish(task)
        else:
            self._state[f"snapshot/{task.full_name}"] = _state(task)

    def _taken(self) -> None:
        if self._reader is not None:
            self._reader.taken()

    def _finish(self, task: TableTask) -> None:
        self._tasks.pop(task.oid, None)
        self._changes.unwatch(task.oid)
        self._writer.touched.pop(task.oid, None)
        self._state[f"snapshot/{task.full_name}"] = {**_state(task), "after": None, "done": True}
        self._progress[task.full_name].finish(task.rows)

    def next_whole_table_batch(self) -> Batch | None:
        """The next rows of a table without a key, before anything else of the stream."""
        if self._whole_batches is None:
            if not self._whole or not self._ready(self._whole[0]):
                return None
            self._whole_batches = self._read_whole(self._whole.pop(0))
        batch = next(self._whole_batches, None)
        if batch is None:
            self._whole_batches = None
            return self.next_whole_table_batch()
        return batch

    def _ready(self, task: TableTask) -> bool:
        """Whether a snapshot taken now sees all that the stream does not bring (see `ChunkReader`)."""
        if time.monotonic() < self._look_again_at:
            return False
        self._look_again_at = time.monotonic() + READY_POLL_S
        now = Visibility.parse(self._catalog.rows("SELECT pg_current_snapshot()::text")[0][0])
        if task.added and task.not_before is None:
            task.not_before = now.xmax
        ready = (self._base is None or now.covers(self._base)) and now.xmin >= (task.not_before or 0)
        if ready:
            self._look_again_at = 0.0
        return ready

    def _read_whole(self, task: TableTask) -> Iterator[Batch]:
        rows = whole_table(self._catalog, self._dsn, task, self._settings)
        snapshot: Visibility = next(rows)
        until = self._catalog.current_lsn()
        plan: TablePlan = next(rows)
        self._announce(plan, until)
        self._writer.add_topic(plan.topic, compacted=False)
        if task.kind == "incremental":  # rows without a key cannot replace those that were read before
            self._writer.records.append(self._writer.emptied(plan.topic))
        while part := list(islice(rows, WHOLE_TABLE_BATCH_ROWS)):
            task.rows += len(part)
            self._writer.records.extend(self._writer.snapshot_rows(plan, part, until, task.kind.encode()))
            self._progress[task.full_name].advance(task.rows, time.monotonic())
            yield Batch(self._writer.take(), new_topics=self._writer.take_topics(), more=True)
        self._holds[task.oid] = snapshot, until
        state = {**_state(task), "done": True, "holds": _text(snapshot), "until": until}
        self._state.pop(f"snapshot/{task.full_name}", None)
        self._progress[task.full_name].finish(task.rows)
        yield Batch(self._writer.take(), {f"snapshot/{task.full_name}": state}, new_topics=self._writer.take_topics())

    def holds_already(self, oid: int, xid: int) -> bool:
        """Whether the table's snapshot saw this transaction: its rows are in the topic already."""
        held = self._holds.get(oid) if self._holds else None
        return held is not None and held[0].sees(xid)

    def release(self, lsn: int) -> None:
        """The stream has passed `lsn`: snapshots taken before it need no more comparing."""
        for oid, (_, until) in list(self._holds.items()):
            if lsn > until:
                del self._holds[oid]

    def take_state(self) -> dict[str, Any]:
        state, self._state = self._state, {}
        return state

    def progress(self) -> list[dict[str, Any]]:
        now = time.monotonic()
        return [{"table": name, **progress.describe(now)} for name, progress in self._progress.items()]


def _state(task: TableTask) -> dict[str, Any]:
    state = {"after": task.after, "rows": task.rows, "done": False, "kind": task.kind}
    return {**state, "added": True} if task.added else state


def _text(snapshot: Visibility) -> str:
    return f"{snapshot.xmin}:{snapshot.xmax}:{','.join(map(str, sorted(snapshot.running)))}"
