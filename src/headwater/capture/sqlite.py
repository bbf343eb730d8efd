"""SQLite as a source, by triggers: for databases without a log to read.

The changelog (see `sqlite_schema`) is the stream, and its rows are deleted once they are in the log for good. Snapshots
need no watermarks: one read transaction sees the rows of a chunk and everything in the changelog up to the same moment,
so the changes up to there are published first and the chunk behind them.

Schema changes are noticed by SQLite's own counter. A column added or renamed: new triggers, and rows written in between
are read once more. Triggers that were dropped: the table is emptied by a truncate marker and read again, because
changes may have been missed. Nothing is skipped silently.

Limits, which SQLite sets: `INSERT OR REPLACE` that removes *other* rows (a second unique constraint) fires triggers
only with `PRAGMA recursive_triggers = on`; which changes committed together is not known; a column named in a trigger
cannot be dropped while the trigger is there.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from headwater.capture.envelope import EVERY_PARTITION
from headwater.capture.errors import CaptureError, GapDetected, SourceLost
from headwater.capture.pg_rows import TRUNCATE_KEY
from headwater.capture.progress import Progress
from headwater.capture.settings import Settings
from headwater.capture.source import Batch, State
from headwater.capture.sqlite_rows import Place, TablePlan, plan_for
from headwater.capture.sqlite_schema import (
    OWN_PREFIX,
    SCHEMA,
    Table,
    create_log,
    identity_of,
    ordered_by,
    quote,
    read_table,
    table_names,
    trigger_names,
    triggers_on,
    watch,
)
from headwater.errors import SettingError

__all__ = ["SQLiteSource", "connect"]

POLL_S = 0.01  # how soon a commit is noticed; a look costs some microseconds
BUSY_TIMEOUT_S = 30.0  # a writer that holds the database longer than that blocks its own application too
BATCH_ROWS_MAX = 5_000
CLEAN_ROWS_MIN = 1_000  # rows of the log deleted together, while there is something to do
CLEAN_INTERVAL_S = 1.0

_log = logging.getLogger("headwater.capture")


def connect(file: Path) -> sqlite3.Connection:
    """In autocommit; transactions are begun explicitly."""
    if not file.exists():
        raise SettingError(f"there is no SQLite database at {file}")
    try:
        database = sqlite3.connect(file, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return database
    except sqlite3.Error as error:
        raise SourceLost(f"{file} cannot be opened: {error}") from error


class SQLiteSource:
    """One database file."""

    def __init__(self, file: Path, settings: Settings, at_gap: Literal["stop", "resnapshot"]) -> None:
        if settings.transaction_topic:
            raise SettingError("SQLite does not say which changes committed together: no transaction topic")
        if settings.row_filters:
            raise SettingError("row filters are PostgreSQL's; for SQLite capture a table that holds the rows wanted")
        self._file = file
        self._settings = settings
        self._at_gap = at_gap
        self._database: sqlite3.Connection | None = None
        self._confirmed = 0

    def open(self, state: State) -> None:
        self._database = database = connect(self._file)
        self._plans: dict[int, TablePlan] = {}
        self._current: dict[str, int] = {}  # table -> the version that its triggers name
        self._unread: dict[str, dict[str, Any]] = {}  # tables to read, and how far that is
        self._progress: dict[str, Progress] = {}
        self._versions = {k.removeprefix("schema/"): v for k, v in state.items() if k.startswith("schema/")}
        self._pending = Batch()
        self._schema_version = -1
        self._data_version = -1
        self._cleaned = self._confirmed = 0
        self._cleaned_at = time.monotonic()
        self._topics: set[str] = set()
        self._write(create_log)
        self._identity = identity_of(database)
        fresh = self._find_place(state)
        self._write(lambda each: self._register(each, fresh=fresh))
        known = {} if fresh else {k: v for k, v in state.items() if k.startswith("snapshot/")}
        self._known = {k.removeprefix("snapshot/"): dict(v) for k, v in known.items()}
        self._reread = fresh and bool(state.get("position"))
        self._check_schema()

    def _find_place(self, state: State) -> bool:
        """Where to go on; whether that is the beginning."""
        stored = state.get("position")
        self._seq = 0
        if stored is None:
            return True
        reason = self._gap(stored)
        if reason is None:
            self._seq = stored["seq"]
            return False
        what = (
            f"{self._file}: {reason}. Resuming would lose changes. Start again with at_gap='resnapshot' (--at-gap "
            "resnapshot): every table is emptied by a truncate marker and read again"
        )
        if self._at_gap == "stop":
            raise GapDetected(what)
        _log.warning("capture %s: %s", self._settings.name, what)
        return True

    def _gap(self, stored: Mapping[str, Any]) -> str | None:
        if stored["identity"] != self._identity:
            return "this is another database than the one that was followed"
        if self._last_seq() < stored["seq"]:
            return "the database is older than what it told before: restored from a backup"
        row = self._query(f"SELECT confirmed FROM {OWN_PREFIX}captures WHERE name = ?", self._settings.name)
        if not row:
            return "the database does not know this capture any more, and has not kept its changes"
        return None

    def _register(self, database: sqlite3.Connection, *, fresh: bool) -> None:
        """The log keeps for us what is behind this place."""
        if fresh:
            self._seq = self._last_seq()
        database.execute(
            f"INSERT INTO {OWN_PREFIX}captures VALUES (?, ?) ON CONFLICT DO UPDATE SET confirmed = excluded.confirmed",
            [self._settings.name, self._seq],
        )

    def _last_seq(self) -> int:
        found = self._query("SELECT seq FROM sqlite_sequence WHERE name = ?", OWN_PREFIX + "log")
        return int(found[0][0]) if found else 0

    def _query(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        if self._database is None:
            raise CaptureError("the source is not open")
        try:
            return self._database.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise SourceLost(f"{self._file}: {error}") from error

    def _write(self, change: Any) -> None:
        """One transaction of our own in the user's database."""
        self._query("BEGIN IMMEDIATE")
        try:
            change(self._database)
            self._query("COMMIT")
        except sqlite3.Error as error:
            raise SourceLost(f"{self._file}: {error}") from error
        finally:
            if self._database is not None and self._database.in_transaction:
                self._database.execute("ROLLBACK")

    def _check_schema(self) -> None:
        """Triggers for every captured table, as it is now."""
        ((version,),) = self._query("PRAGMA schema_version")
        if version == self._schema_version:
            return
        self._write(self._follow_tables)

    def _follow_tables(self, database: sqlite3.Connection) -> None:
        for name in table_names(database):
            if self._settings.captures(SCHEMA, name):
                intact = triggers_on(database, name) >= set(trigger_names(name))
                self._follow_table(database, name, intact=intact)
        ((self._schema_version,),) = self._query("PRAGMA schema_version")
        if not self._current:
            raise SettingError(f"{self._file}: no table matches {', '.join(self._settings.tables)}")

    def _follow_table(self, database: sqlite3.Connection, name: str, *, intact: bool) -> None:
        table = read_table(database, name)
        found = self._query(
            f"SELECT id, columns FROM {OWN_PREFIX}versions WHERE name = ? ORDER BY id DESC LIMIT 1", name
        )
        known = self._known.get(table.full_name)
        if found and intact and found[0][1] == table.describe():
            version = int(found[0][0])
        else:
            version = watch(database, table)
            if found and intact:
                self._log_again(database, Table.described(name, found[0][1]), int(found[0][0]), table, version)
        missed = known is not None and not intact
        self._current[name] = version
        if known is None or missed:
            self._read_later(table, {}, empty=missed or self._reread)
        elif not known.get("done"):
            again = (
                known.get("after") is not None and known.get("schema") != self._schema_now() and not table.stable_order
            )
            self._read_later(table, {} if again else known, empty=again)

    def _schema_now(self) -> int:
        return int(self._query("PRAGMA schema_version")[0][0])

    def _log_again(
        self, database: sqlite3.Connection, old: Table, old_version: int, table: Table, version: int
    ) -> None:
        """Rows written since the table changed were logged by the old triggers, without what is new: log them whole."""
        places = [i for i, column in enumerate(old.columns) if column.name in table.key]
        names = [column.name for column in old.columns if column.name in table.key]
        if not names or set(names) != set(table.key):
            return
        shown = ", ".join(quote(c.name) for c in table.columns)
        into = ", ".join([*(f"a{i}" for i in range(len(table.columns))), *(f"b{i}" for i in range(len(table.columns)))])
        keys = ", ".join(f"a{i}" for i in places)
        database.execute(
            f"INSERT INTO {OWN_PREFIX}log (tbl, op, {into}) SELECT {version}, 'u', {shown}, {shown}"
            f" FROM {quote(table.name)} WHERE ({', '.join(map(quote, names))}) IN"
            f" (SELECT {keys} FROM {OWN_PREFIX}log WHERE tbl = ? AND seq > ? AND op <> 'd')",
            [old_version, self._seq],
        )

    def _read_later(self, table: Table, known: Mapping[str, Any], *, empty: bool) -> None:
        name = table.full_name
        if self._settings.is_outbox(SCHEMA, table.name) or (not known and self._settings.snapshot == "never"):
            self._known[name] = {"done": True}
            return
        ((total,),) = self._query(f"SELECT count(*) FROM {quote(table.name)}")
        self._unread[table.name] = {"after": known.get("after"), "rows": known.get("rows", 0), "done": False}
        self._known[name] = self._unread[table.name]
        self._progress[name] = Progress(total, known.get("rows", 0), time.monotonic())
        self._pending.state[f"snapshot/{name}"] = dict(self._unread[table.name])
        if empty:
            plan = self._plan(self._current[table.name])
            self._announce(plan)
            value = b'{"before":null,"after":null,"op":"t","ts_ms":%d}' % (time.time_ns() // 1_000_000)
            self._pending.records.append((plan.topic, TRUNCATE_KEY, value, EVERY_PARTITION))

    def _plan(self, version: int) -> TablePlan:
        plan = self._plans.get(version)
        if plan is None:
            ((name, columns),) = self._query(f"SELECT name, columns FROM {OWN_PREFIX}versions WHERE id = ?", version)
            plan = self._plans[version] = plan_for(Table.described(name, columns), self._settings, self._file.stem)
        return plan

    def _announce(self, plan: TablePlan) -> None:
        """The topic is made, and a new version of the table is recorded."""
        if plan.is_outbox:
            return
        self._need_topics({plan.topic}, compacted=bool(plan.key_indexes))
        name, fingerprint = plan.version.name, plan.version.fingerprint()
        known = self._versions.get(name, {"version": 0, "fingerprint": ""})
        if known["fingerprint"] == fingerprint:
            return
        version = {"version": known["version"] + 1, "fingerprint": fingerprint}
        self._versions[name] = self._pending.state[f"schema/{name}"] = version
        if self._settings.schema_topic:
            topic = f"{self._settings.topic_prefix}.schema-changes"
            key = json.dumps({"schema": SCHEMA, "table": plan.table.name}, separators=(",", ":")).encode()
            about = {"ts_ms": time.time_ns() // 1_000_000, "version": version["version"], **plan.version.describe()}
            self._need_topics({topic})
            self._pending.records.append((topic, key, json.dumps(about, separators=(",", ":")).encode(), None))

    def _need_topics(self, topics: set[str], *, compacted: bool = False) -> None:
        """Records of these topics follow: they must exist by then."""
        self._pending.new_topics += [(topic, compacted) for topic in topics - self._topics]
        self._topics |= topics

    def read(self, timeout_s: float) -> Batch | None:
        end = time.monotonic() + timeout_s
        while True:
            self._clean()
            ((changed,),) = self._query("PRAGMA data_version")
            if changed != self._data_version or self._unread or self._pending.records or self._pending.state:
                self._check_schema()
                batch = self._read_some()
                if batch is not None:
                    return batch
                self._data_version = changed
            if time.monotonic() >= end:
                return None
            time.sleep(POLL_S)

    def _read_some(self) -> Batch | None:
        """The next changes; when there are no more, the next rows of a table that is being read."""
        self._query("BEGIN")
        try:
            rows = self._query(
                f"SELECT * FROM {OWN_PREFIX}log WHERE seq > ? ORDER BY seq LIMIT ?", self._seq, BATCH_ROWS_MAX
            )
            self._changes(rows)
            if len(rows) < BATCH_ROWS_MAX and self._unread:
                self._read_chunk(next(iter(self._unread)))
        finally:
            self._query("COMMIT")
        batch, self._pending = self._pending, Batch()
        if not batch.records and not batch.state and not rows:
            return None
        batch.state["position"] = {"identity": self._identity, "seq": self._seq}
        batch.confirm = self._seq
        return batch

    def _changes(self, rows: list[tuple[Any, ...]]) -> None:
        templates: dict[int, tuple[TablePlan, bytes]] = {}
        records = self._pending.records
        for seq, version, op, time_ms, *values in rows:
            found = templates.get(version)
            if found is None:
                plan = self._plan(version)
                if self._settings.captures(SCHEMA, plan.table.name):
                    self._announce(plan)
                found = templates[version] = plan, plan.template(b"false")
            plan, template = found
            if self._settings.captures(SCHEMA, plan.table.name):
                end = 2 * len(plan.table.columns)
                made = plan.change(
                    op,
                    Place(seq, time_ms or 0),
                    before=values[1:end:2],
                    after=values[0:end:2],
                    template=template,
                )
                if plan.is_outbox:
                    self._need_topics({record[0] for record in made})
                records += made
            self._pending.source_time_us = (time_ms or 0) * 1000
        if rows:
            self._seq = rows[-1][0]

    def _read_chunk(self, name: str) -> None:
        """As the database is at this moment, which is also where the changelog has been read to."""
        task, plan = self._unread[name], self._plan(self._current[name])
        table, size = plan.table, self._settings.chunk_rows
        self._announce(plan)
        order, after = ordered_by(table), task["after"]
        where = f" WHERE ({order}) > ({', '.join('?' * len(table.order))})" if after else ""
        columns = ", ".join(quote(column.name) for column in table.columns)
        bounds = [bytes.fromhex(each["hex"]) if isinstance(each, dict) else each for each in after or []]
        rows = self._query(
            f"SELECT {order}, {columns} FROM {quote(name)}{where} ORDER BY {order} LIMIT ?", *bounds, size
        )
        width, template, place = len(table.order), plan.template(b"true"), Place(self._seq, time.time_ns() // 1_000_000)
        self._pending.records += [plan.read(row[width:], place, template) for row in rows]
        task["rows"] += len(rows)
        self._progress[table.full_name].advance(task["rows"], time.monotonic())
        if len(rows) < size:
            del self._unread[name]
            task["after"], task["done"] = None, True
            self._progress[table.full_name].finish(task["rows"])
        else:
            task["schema"] = self._schema_version
            task["after"] = [{"hex": v.hex()} if isinstance(v, bytes) else v for v in rows[-1][:width]]
        self._pending.state[f"snapshot/{table.full_name}"] = dict(task)

    def confirm(self, confirm: int) -> None:
        self._confirmed = max(self._confirmed, confirm)

    def _clean(self) -> None:
        """Delete what every capture has in the log for good; a busy database is tried again later."""
        now, waiting = time.monotonic(), self._confirmed - self._cleaned
        if waiting <= 0 or (waiting < CLEAN_ROWS_MIN and now - self._cleaned_at < CLEAN_INTERVAL_S):
            return
        self._cleaned, self._cleaned_at = self._confirmed, now
        self._write(self._forget)

    def _forget(self, database: sqlite3.Connection) -> None:
        own = f"UPDATE {OWN_PREFIX}captures SET confirmed = ? WHERE name = ?"
        database.execute(own, [self._cleaned, self._settings.name])
        database.execute(f"DELETE FROM {OWN_PREFIX}log WHERE seq <= (SELECT min(confirmed) FROM {OWN_PREFIX}captures)")

    def tick(self) -> None:
        """SQLite has no connection to keep alive."""

    def away(self) -> None:
        """The changelog grows with what is written; its size is in `status`."""

    def close(self) -> None:
        if self._database is not None:
            try:
                self._cleaned_at = float("-inf")
                self._clean()
            except CaptureError as error:
                _log.debug("capture %s: not cleaned up on close: %s", self._settings.name, error)
            self._database.close()
            self._database = None

    def status(self) -> Mapping[str, Any]:
        now = time.monotonic()
        tables = [{"table": name, **progress.describe(now)} for name, progress in self._progress.items()]
        return {"slot": str(self._file), "confirmed": self._confirmed, "snapshot": tables}
