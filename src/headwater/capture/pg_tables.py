"""The captured tables: which they are, how their rows are encoded, which versions they had.

A relation message announces a table before its first row and after every change of it; rows are encoded by the plan
made from the last one. Each new version of a table gets a number and a record in `<prefix>.schema-changes`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from psycopg import sql

from headwater.capture.pg_catalog import Catalog, TableRef
from headwater.capture.pg_connection import format_lsn
from headwater.capture.pg_plan import TablePlan, plan_for
from headwater.capture.pg_rows import RowWriter
from headwater.capture.pg_snapshots import Snapshots
from headwater.capture.pg_visibility import ChangeLog, Visibility
from headwater.capture.pgoutput import UNCHANGED, LogicalMessage, Relation, Tuple
from headwater.capture.settings import Settings
from headwater.capture.source import Batch
from headwater.errors import InvariantViolated, SettingError

__all__ = ["SIGNAL_PREFIX", "Tables"]

SIGNAL_PREFIX = "headwater.signal"  # of a logical message {"capture": name, "type": ..., "data": {...}}
OWN_PUBLICATIONS = "headwater_"  # others are the user's: tables are only added to them
TABLES_CHECK_S = 5.0  # how soon a table that was just created is noticed

_log = logging.getLogger("headwater.capture")


class Tables:
    """All tables of one capture; used by the reader's thread."""

    def __init__(self, dsn: str, publication: str, signal_table: str, settings: Settings, catalog: Catalog) -> None:
        self._publication = publication
        self._signal_table = signal_table
        self._settings = settings
        self._catalog = catalog
        self._plans: dict[int, TablePlan | None] = {}
        self._versions: dict[str, dict[str, Any]] = {}  # table -> {"version", "fingerprint"}
        self._state: dict[str, Any] = {}
        self._known: set[int] = set()
        self._checked_at = time.monotonic()
        self.snapshots = Snapshots(dsn, settings, catalog)

    def publish(self) -> None:
        """Put the chosen tables into the publication."""
        chosen = self._chosen()
        if not chosen:
            raise SettingError(
                f"no table matches {', '.join(self._settings.tables)}: names are schema.table; is it this database?"
            )
        self._known = {table.oid for table in chosen}
        self._catalog.ensure_publication(self._publication, chosen, self._settings)
        if self._publication.startswith(OWN_PUBLICATIONS):
            self._catalog.set_publication(self._publication, chosen, self._settings)

    def _chosen(self) -> list[TableRef]:
        tables = self._catalog.tables(self._settings, self._signal_table)
        self._refuse_without_identity(tables)
        return tables

    def _refuse_without_identity(self, tables: Sequence[TableRef]) -> None:
        """PostgreSQL refuses updates of a published table whose rows it cannot identify: never do that to a user."""
        bare = [t.full_name for t in self._catalog.without_identity(tables) if t.oid not in self._known]
        if bare:
            raise SettingError(
                f"without a primary key, updates and deletes in {', '.join(bare)} would fail once it is captured. "
                "Add a primary key, or run ALTER TABLE ... REPLICA IDENTITY FULL, or exclude the table"
            )

    def begin(
        self,
        writer: RowWriter,
        changes: ChangeLog,
        state: Mapping[str, Any],
        base: Visibility | None,
        *,
        reread: bool,
    ) -> None:
        """Start from `state`; `reread`: everything is read again after a gap."""
        self._writer = writer
        self._versions = {key.removeprefix("schema/"): v for key, v in state.items() if key.startswith("schema/")}
        tables = [t for t in self._catalog.tables(self._settings) if not self._settings.is_outbox(t.schema, t.name)]
        if reread:
            self._empty(tables)
        self.snapshots.begin(writer, changes, state, base=base, tables=tables, announce=self._announce)

    def _empty(self, tables: Sequence[TableRef]) -> None:
        for table in tables:
            topic = self._settings.topic(table.schema, table.name)
            self._writer.add_topic(topic, compacted=bool(self._catalog.details(table.oid).key))
            self._writer.records.append(self._writer.emptied(topic))

    def resume(self) -> None:
        """The stream is running: read what is to be read."""
        self.snapshots.resume()

    def stop(self) -> None:
        self.snapshots.stop()

    def check(self) -> None:
        self.snapshots.check()

    def look_for_new(self) -> None:
        """Tables created since that match the settings: published, and read once."""
        if time.monotonic() - self._checked_at < TABLES_CHECK_S:
            return
        self._checked_at = time.monotonic()
        new = [t for t in self._catalog.tables(self._settings, self._signal_table) if t.oid not in self._known]
        if not new:
            return
        bare = {table.oid for table in self._catalog.without_identity(new)}
        self._known |= {table.oid for table in new}
        for table in new:
            if table.oid in bare:
                _log.warning(
                    "capture %s: new table %s is left out: it has no primary key and its replica identity is not FULL",
                    self._settings.name,
                    table.full_name,
                )
        found = [table for table in new if table.oid not in bare]
        self._catalog.ensure_publication(self._publication, found, self._settings)
        for table in found:
            if self._settings.snapshot != "never" and not self._settings.is_outbox(table.schema, table.name):
                self.snapshots.add(table, kind="true", added=True)

    def plan(self, oid: int, xid: int) -> TablePlan | None:
        """How rows of this relation are encoded; None: they are not captured."""
        if oid not in self._plans:
            raise InvariantViolated(f"PostgreSQL sent a row of relation {oid}, which it has not announced")
        return None if self.snapshots.holds_already(oid, xid) else self._plans[oid]

    def relation(self, relation: Relation, lsn: int, *, skipped: bool) -> None:
        """The rows that follow were written under this version of the table."""
        name = f"{relation.schema}.{relation.name}"
        if not self._settings.captures(relation.schema, relation.name) and name != self._signal_table:
            self._plans[relation.oid] = None
            return
        plan = self._plans.get(relation.oid)
        if plan is None or plan.relation != relation:
            plan = self._plans[relation.oid] = self._new_plan(relation)
            self._writer.forget(relation.oid)
        if not skipped and not plan.is_signal:
            self._announce(plan, lsn)

    def _new_plan(self, relation: Relation) -> TablePlan:
        types = self._catalog.types()
        if any(column.type_oid not in types for column in relation.columns):
            types = self._catalog.types(max(c.type_oid for c in relation.columns if c.type_oid not in types))
        plan = plan_for(relation, self._catalog.details(relation.oid), types, self._settings)
        plan.is_signal = f"{relation.schema}.{relation.name}" == self._signal_table
        return plan

    def _announce(self, plan: TablePlan, lsn: int) -> None:
        """Record the table's version if it is new."""
        name = plan.version.name
        known = self._versions.get(name, {"version": 0, "fingerprint": ""})
        fingerprint = plan.version.fingerprint()
        if known["fingerprint"] == fingerprint:
            return
        version = {"version": known["version"] + 1, "fingerprint": fingerprint}
        self._versions[name] = self._state[f"schema/{name}"] = version
        if not self._settings.schema_topic:
            return
        topic = f"{self._settings.topic_prefix}.schema-changes"
        self._writer.add_topic(topic, compacted=False)
        key = json.dumps({"schema": plan.version.schema, "table": plan.version.table}, separators=(",", ":"))
        about = {
            "ts_ms": time.time_ns() // 1_000_000,
            "lsn": format_lsn(lsn),
            "version": version["version"],
            **plan.version.describe(),
        }
        self._writer.records.append((topic, key.encode(), json.dumps(about, separators=(",", ":")).encode(), None))

    def reselect(self, plan: TablePlan, new: Tuple) -> Tuple:
        """Values that the update left out, as they are in the table now; unknown where the row is gone."""
        columns = plan.relation.columns
        missing = [i for i, value in enumerate(new) if value is UNCHANGED]
        where = [(columns[i].name, new[i]) for i in plan.key_indexes]
        if not where or any(not isinstance(value, bytes) for _, value in where):
            return new
        query = sql.SQL("SELECT {} FROM {} WHERE {}").format(
            sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(columns[i].name)) for i in missing),
            sql.Identifier(plan.relation.schema, plan.relation.name),
            sql.SQL(" AND ").join(
                sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(cast("bytes", value).decode()))
                for name, value in where
            ),
        )
        try:
            found = self._catalog.rows(query)
        except SettingError:  # the table or a column is gone since
            return new
        if not found:
            return new
        filled = list(new)
        for i, text in zip(missing, found[0], strict=True):
            filled[i] = None if text is None else text.encode()
        return filled

    def internal_message(self, lsn: int, message: LogicalMessage) -> bool:
        """Whether this logical message was one of ours; then it has been dealt with."""
        if self.snapshots.marker(lsn, message):
            return True
        if message.prefix != SIGNAL_PREFIX:
            return False
        try:
            signal = json.loads(message.content)
            if signal.get("capture") in (None, self._settings.name):
                self.signal(signal["type"], signal.get("data") or {})
        except (ValueError, KeyError, AttributeError) as error:
            _log.warning("capture %s: signal %r not understood: %s", self._settings.name, message.content, error)
        return True

    def table_signals(self) -> None:
        """Rows inserted into the signal table (id, type, data)."""
        signals, self._writer.signals = self._writer.signals, []
        for row in signals:
            try:
                self.signal((row.get("type") or b"").decode(), json.loads(row.get("data") or b"{}"))
            except (ValueError, AttributeError) as error:
                _log.warning("capture %s: signal %r not understood: %s", self._settings.name, row, error)

    def signal(self, kind: str, data: Mapping[str, Any]) -> None:
        names = [str(name) for name in data.get("data-collections", [])]
        if kind == "execute-snapshot":
            for table in self._catalog.tables(self._settings):
                if table.full_name in names:
                    self.snapshots.add(table, kind="incremental")
        elif kind == "stop-snapshot":
            self.snapshots.cancel(names)
        elif kind in ("pause-snapshot", "resume-snapshot"):
            self.snapshots.pause(kind == "pause-snapshot")
        else:
            _log.warning("capture %s: unknown signal %r", self._settings.name, kind)

    def next_whole_table_batch(self) -> Batch | None:
        return self.snapshots.next_whole_table_batch()

    def take_state(self) -> dict[str, Any]:
        """What changed since the last call."""
        state = {**self._state, **self.snapshots.take_state()}
        self._state = {}
        return state

    def progress(self) -> list[dict[str, Any]]:
        return self.snapshots.progress()
