"""From PostgreSQL's committed rows to records. Knows Debezium's contract; does not know sockets or Kafka.

The hot path is `row`: two slices of bytes, one converter per column, two templates. All that is the same for the rows
of a table in one transaction is in `_templates`, which is emptied when the next one begins.

`index` counts the events of the transaction as the server sent them, captured or not: with the transaction's place in
the log it is the position that a restart goes on from. Rows up to `skip` were published before.
"""

from __future__ import annotations

import base64
import importlib.metadata
import logging
import time
from collections.abc import Callable, Iterable
from struct import Struct

from headwater.capture import pgoutput
from headwater.capture.envelope import EVERY_PARTITION, NULL, Headers, Record, quoted
from headwater.capture.outbox import outbox_record, refused_record
from headwater.capture.pg_plan import TablePlan
from headwater.capture.pg_transactions import Transaction
from headwater.capture.pgoutput import UNCHANGED, LogicalMessage, RowChange, Tuple, read_row, read_tuple
from headwater.capture.schema import json_string
from headwater.capture.settings import Settings
from headwater.errors import BadInput

__all__ = ["INTERNAL_PREFIX", "RowWriter", "Touched"]

VERSION = importlib.metadata.version("headwater")
INTERNAL_PREFIX = "headwater."  # of logical messages that are ours and not the user's
TRUNCATE_KEY = b'{"__truncated":true}'  # compacted topics take no record without a key

_log = logging.getLogger("headwater.capture")

_U32 = Struct(">I").unpack_from
_INSERT = b"I"[0]

Touched = Callable[[int, "bytes | None"], None]  # (relation, key of a changed row or None for all of them)


class RowWriter:
    """Turns the rows of one transaction after the other into records."""

    def __init__(
        self,
        settings: Settings,
        database: str,
        find_plan: Callable[[int, int], TablePlan | None],
        reselect: Callable[[TablePlan, Tuple], Tuple],
    ) -> None:
        self._settings = settings
        self._find_plan = find_plan
        self._reselect = reselect
        self._flat = settings.form == "flat"
        self._head = b'{"version":%b,"connector":"postgresql","name":%b,"ts_ms":' % (
            quoted(VERSION),
            quoted(settings.topic_prefix),
        )
        self._database = quoted(database)
        self._templates: dict[int, tuple[TablePlan, bytes]] = {}
        self._transaction = Transaction(0, 0, 0)
        self._last_commit = 0
        self._now_ns = 0
        self._counts: dict[str, int] = {}  # captured events by table, for the transaction topic
        self._total = 0
        self.records: list[Record] = []
        self.index = 0
        self.skip = 0
        self.touched: dict[int, Touched] = {}  # relations whose changed keys somebody wants to know
        self.signals: list[dict[str, bytes | None]] = []
        self._topics: set[str] = set()
        self._new_topics: list[tuple[str, bool]] = []

    def begin(self, transaction: Transaction, last_commit: int, skip: int) -> None:
        """Rows of this transaction follow, of which the first `skip` were published before."""
        self._transaction, self._last_commit, self.skip = transaction, last_commit, skip
        self.index = self._total = 0
        self._now_ns = time.time_ns()
        self._templates.clear()
        self._counts.clear()

    def row(self, lsn: int, kind: int, data: bytes, at: int) -> None:
        """One insert, update or delete, whose body begins at this place."""
        self.index += 1
        oid = _U32(data, at)[0]
        found = self._templates.get(oid) or self._template(oid)
        if found is None:
            return
        plan, template = found
        if self.touched and oid in self.touched:
            self._touch(plan, kind, data, at)
        if self.index <= self.skip:
            self._count(plan)
            return
        if plan.is_outbox or plan.is_signal:
            self._inserted(plan, lsn, kind, data, at)
        elif kind == _INSERT:
            fragments = plan.inserted(data, at + 5)
            row = plan.row % tuple(fragments)
            if not self._flat:
                row = template % (NULL, row, lsn, lsn, self._count(plan), b"c")
            self.records.append((plan.topic, plan.key_of(fragments), row, None))
        else:
            self._change(plan, template, lsn, read_row(data, at, kind))

    def _change(self, plan: TablePlan, template: bytes, lsn: int, change: RowChange) -> None:
        old, new = change.old, change.new
        before: list[bytes] | None = None
        if old is not None:
            before = plan.key_fragments(old) if change.old_is_key else plan.fragments(old)
        if new is None:
            self._delete(plan, template, lsn, before or [], None)
            return
        if UNCHANGED in new:
            new = self._fill(plan, old, new)
        after = plan.fragments(new)
        key, row = plan.key_of(after), plan.row % tuple(after)
        headers: Headers | None = None
        if before is not None:
            old_key = plan.key_of(before)
            if old_key != key:
                self._delete(plan, template, lsn, before, key)
                headers = [("__debezium.oldkey", old_key)]
        if not self._flat:
            shown = NULL if before is None or headers or change.old_is_key else plan.row % tuple(before)
            row = template % (shown, row, lsn, lsn, self._count(plan), b"c" if headers else b"u")
        self.records.append((plan.topic, key, row, headers))

    def _delete(self, plan: TablePlan, template: bytes, lsn: int, before: list[bytes], new_key: bytes | None) -> None:
        key = plan.key_of(before)
        headers: Headers | None = [("__debezium.newkey", new_key)] if new_key is not None else None
        if not self._flat:
            value = template % (plan.row % tuple(before), NULL, lsn, lsn, self._count(plan), b"d")
            self.records.append((plan.topic, key, value, headers))
        if key is not None and (self._flat or self._settings.tombstones):
            self.records.append((plan.topic, key, None, None))

    def _fill(self, plan: TablePlan, old: Tuple | None, new: Tuple) -> Tuple:
        """Large values that the update did not touch: from the old row where it was sent, else as the user chose."""
        if old is not None:
            new = [o if n is UNCHANGED and o is not None else n for o, n in zip(old, new, strict=True)]
        if UNCHANGED in new and self._settings.reselects:
            new = self._reselect(plan, new)
        return new

    def _touch(self, plan: TablePlan, kind: int, data: bytes, at: int) -> None:
        note = self.touched[plan.relation.oid]
        change = read_row(data, at, kind)
        for values in (change.old, change.new):
            if values is not None:
                note(plan.relation.oid, plan.key_of(plan.fragments(values)))

    def _inserted(self, plan: TablePlan, lsn: int, kind: int, data: bytes, at: int) -> None:
        """A row of an outbox or of the signal table: only its insert means something."""
        if kind != _INSERT:
            return
        values = read_tuple(data, at + 5)[0]
        names = (column.name for column in plan.relation.columns)
        row = {name: value if isinstance(value, bytes) else None for name, value in zip(names, values, strict=True)}
        if plan.is_signal:
            self.signals.append(row)
            return
        try:
            record = outbox_record(plan.version.name, row)
        except BadInput as error:
            record = refused_record(self._settings.name, plan.topic, lsn, row, str(error))
            _log.warning("capture %s: %s; kept in %s", self._settings.name, error, record[0])
        self.add_topic(record[0], compacted=False)
        self.records.append(record)

    def truncate(self, lsn: int, data: bytes, at: int) -> None:
        """A marker in every partition: all keys are gone."""
        self.index += 1
        for oid in pgoutput.truncate(data, at).relations:
            found = self._templates.get(oid) or self._template(oid)
            if found is None:
                continue
            plan, template = found
            if oid in self.touched:
                self.touched[oid](oid, None)
            if self.index <= self.skip:
                self._count(plan)
            elif self._settings.truncates and not plan.is_outbox and not plan.is_signal:
                value = template % (NULL, NULL, lsn, lsn, self._count(plan), b"t")
                key = TRUNCATE_KEY if plan.key_indexes else None
                self.records.append((plan.topic, key, value, EVERY_PARTITION))

    def emptied(self, topic: str) -> Record:
        """A truncate that no transaction made: what the topic says so far no longer counts."""
        now = time.time_ns() // 1_000_000
        return topic, TRUNCATE_KEY, b'{"before":null,"after":null,"op":"t","ts_ms":%d}' % now, EVERY_PARTITION

    def message(self, lsn: int, message: LogicalMessage) -> None:
        """A logical message, with base64 content, in `<prefix>.message`."""
        self.index += 1
        if self.index <= self.skip or not self._settings.messages or message.prefix.startswith(INTERNAL_PREFIX):
            return
        now = time.time_ns()
        prefix = json_string(message.prefix.encode())
        source = self._source("", "", b"false") % (lsn, lsn)
        times = b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d' % (now // 1_000_000, now // 1000, now)
        content = b'{"prefix":%b,"content":"%b"}' % (prefix, base64.b64encode(message.content))
        value = b'{"op":"m",%b,"source":%b,"transaction":null,"message":%b}' % (times, source, content)
        topic = f"{self._settings.topic_prefix}.message"
        self.add_topic(topic, compacted=False)
        self.records.append((topic, b'{"prefix":%b}' % prefix, value, None))

    def snapshot_rows(
        self, plan: TablePlan, rows: Iterable[tuple[bytes | None, bytes]], lsn: int, kind: bytes
    ) -> list[Record]:
        """Rows (key, row as JSON) read from the table, as `r` events."""
        if self._flat:
            return [(plan.topic, key, row, None) for key, row in rows]
        source = self._source(plan.version.schema, plan.version.table, kind)
        template = plan.envelope.template(source, time.time_ns())
        start, end = (template % (NULL, b"\0", lsn, lsn, NULL, b"r")).split(b"\0")
        topic = plan.topic
        return [(topic, key, start + row + end, None) for key, row in rows]

    def _begun(self) -> Record:
        """The transaction topic's BEGIN."""
        return self._boundary(b'{"status":"BEGIN","id":"%b","event_count":null,"data_collections":null,"ts_ms":%d}')

    def _ended(self) -> Record:
        """The transaction topic's END, with the number of events of each table."""
        tables = b",".join(
            b'{"data_collection":%b,"event_count":%d}' % (json_string(name.encode()), count)
            for name, count in self._counts.items()
        )
        head = b'{"status":"END","id":"%%b","event_count":%d,"data_collections":[%b],"ts_ms":%%d}'
        return self._boundary(head % (self._total, tables))

    def end(self) -> None:
        """The transaction is complete."""
        if self._total and self.index >= self.skip:
            self.records.append(self._ended())

    def _boundary(self, template: bytes) -> Record:
        number = b"%d:%d" % (self._transaction.xid, self._transaction.lsn)
        topic = f"{self._settings.topic_prefix}.transaction"
        self.add_topic(topic, compacted=False)
        value = template % (number, self._transaction.time_us // 1000)
        return topic, b'{"id":"%b"}' % number, value, None

    def _count(self, plan: TablePlan) -> bytes:
        """The event's place in its transaction; `null` unless transaction metadata is asked for."""
        if not self._settings.transaction_topic:
            return NULL
        self._total += 1
        name = plan.version.name
        if self._total == 1 and self.index > self.skip:
            self.records.append(self._begun())
        order = self._counts[name] = self._counts.get(name, 0) + 1
        return b'{"id":"%d:%d","total_order":%d,"data_collection_order":%d}' % (
            self._transaction.xid,
            self._transaction.lsn,
            self._total,
            order,
        )

    def _template(self, oid: int) -> tuple[TablePlan, bytes] | None:
        plan = self._find_plan(oid, self._transaction.xid)
        if plan is None:
            return None
        if not plan.is_outbox and not plan.is_signal:
            self.add_topic(plan.topic, compacted=bool(plan.key_indexes))
        source = self._source(plan.version.schema, plan.version.table, b"false")
        found = self._templates[oid] = plan, plan.envelope.template(source, self._now_ns)
        return found

    def _source(self, schema: str, table: str, snapshot: bytes) -> bytes:
        """The source block, with two slots for the event's place in the log."""
        time_us = self._transaction.time_us
        last = b'\\"%d\\"' % self._last_commit if self._last_commit else NULL
        return (
            b'%b%d,"snapshot":"%b","db":%b,"sequence":"[%b,\\"%%d\\"]","ts_us":%d,"ts_ns":%d,"schema":%b,"table":%b,'
            b'"txId":%b,"lsn":%%d,"xmin":null,"origin":null,"origin_lsn":null}'
            % (
                self._head,
                time_us // 1000,
                snapshot,
                self._database,
                last,
                time_us,
                time_us * 1000,
                quoted(schema),
                quoted(table),
                b"%d" % self._transaction.xid if snapshot == b"false" else NULL,
            )
        )

    def forget(self, oid: int) -> None:
        """The relation has another plan now."""
        self._templates.pop(oid, None)

    def add_topic(self, topic: str, *, compacted: bool) -> None:
        """Records of this topic follow: it must exist by then."""
        if topic not in self._topics:
            self._topics.add(topic)
            self._new_topics.append((topic, compacted))

    def take_topics(self) -> list[tuple[str, bool]]:
        topics, self._new_topics = self._new_topics, []
        return topics

    def take(self) -> list[Record]:
        """The records made since the last call."""
        records, self.records = self.records, []
        return records
