"""What PostgreSQL's catalog knows beyond the replication stream: types, keys, defaults, publications, slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import psycopg
from psycopg import sql

from headwater.capture.errors import SourceLost
from headwater.capture.pg_connection import parse_lsn, sql_connect
from headwater.capture.pg_types import TypeInfo
from headwater.capture.settings import Settings
from headwater.errors import SettingError

__all__ = ["Catalog", "ColumnDetails", "SlotInfo", "TableDetails", "TableRef"]

# The key of a table's records: its primary key, unless the user made another index its identity in the stream
_KEY_INDEX = (
    "CASE (SELECT relreplident FROM pg_class WHERE oid = i.indrelid)"
    " WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END"
)


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table that the settings choose."""

    oid: int
    schema: str
    name: str

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class ColumnDetails:
    name: str
    type_oid: int
    type_name: str
    modifier: int
    not_null: bool
    default: str | None


@dataclass(frozen=True, slots=True)
class TableDetails:
    """A table as it is now (which may be later than the row being decoded)."""

    columns: Mapping[str, ColumnDetails] = field(default_factory=dict)
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotInfo:
    plugin: str
    active: bool
    restart_lsn: int | None
    confirmed_lsn: int | None
    wal_status: str | None
    invalid_reason: str | None
    kept_bytes: int
    two_phase: bool


class Catalog:
    """One SQL connection, used by one thread."""

    def __init__(self, dsn: str) -> None:
        self._connection = sql_connect(dsn)
        self.version = self._connection.info.server_version // 10000
        self._types: dict[int, TypeInfo] = {}

    def close(self) -> None:
        self._connection.close()

    def rows(self, query: str | sql.Composed, *parameters: Any) -> list[tuple[Any, ...]]:
        try:
            cursor = self._connection.execute(cast("Any", query), parameters or None)
            return cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError as error:
            raise SourceLost(f"PostgreSQL's catalog cannot be read: {str(error).strip()}") from error
        except psycopg.Error as error:
            shown = query if isinstance(query, str) else query.as_string(self._connection)
            raise SettingError(f"PostgreSQL refused `{shown[:200]}`: {str(error).strip()}") from error

    def types(self, needed: int | None = None) -> Mapping[int, TypeInfo]:
        """All types by oid; read again when `needed` is not among them (created since)."""
        if not self._types or (needed is not None and needed not in self._types):
            labels = {
                oid: tuple(names)
                for oid, names in self.rows(
                    "SELECT enumtypid::int8, array_agg(enumlabel::text ORDER BY enumsortorder) FROM pg_enum GROUP BY 1"
                )
            }
            self._types = {
                oid: TypeInfo(name, kind, element, base, modifier, labels.get(oid, ()))
                for oid, name, kind, element, base, modifier in self.rows(
                    "SELECT oid::int8, typname::text, typtype::text, typelem::int8, typbasetype::int8, typtypmod"
                    " FROM pg_type"
                )
            }
        return self._types

    def details(self, oid: int) -> TableDetails:
        columns = {
            name: ColumnDetails(name, type_oid, type_name, modifier, not_null, default)
            for name, type_oid, type_name, modifier, not_null, default in self.rows(
                "SELECT a.attname::text, a.atttypid::int8, format_type(a.atttypid, a.atttypmod), a.atttypmod,"
                " a.attnotnull, pg_get_expr(d.adbin, d.adrelid) FROM pg_attribute a"
                " LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.attgenerated = ''"
                " WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''"
                " ORDER BY a.attnum",
                oid,
            )
        }
        key = self.rows(
            "SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
            " AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])"
            f" WHERE i.indrelid = %s AND {_KEY_INDEX} ORDER BY a.attnum",
            oid,
        )
        return TableDetails(columns, tuple(name for (name,) in key))

    def key_order(self, oid: int) -> list[str]:
        """The key's columns in the order of its index, by which chunks are cut."""
        return [
            name
            for (name,) in self.rows(
                "SELECT a.attname::text FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(attnum, place),"
                f" pg_attribute a WHERE i.indrelid = %s AND {_KEY_INDEX} AND a.attrelid = i.indrelid"
                " AND a.attnum = k.attnum AND k.place <= i.indnkeyatts ORDER BY k.place",
                oid,
            )
        ]

    def tables(self, settings: Settings, also: str = "") -> list[TableRef]:
        """The ordinary and partitioned tables that the settings choose, and the one named `also`."""
        found = self.rows(
            "SELECT c.oid::int8, n.nspname::text, c.relname::text"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'"
            " AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%%'"
            " ORDER BY n.nspname, c.relname"
        )
        tables = (TableRef(*row) for row in found)
        return [t for t in tables if settings.captures(t.schema, t.name) or t.full_name == also]

    def without_identity(self, tables: Sequence[TableRef]) -> list[TableRef]:
        """Those whose rows an update or delete in the stream could not name."""
        bare = {
            oid
            for (oid,) in self.rows(
                "SELECT c.oid::int8 FROM pg_class c WHERE c.oid = ANY(%s::oid[]) AND (c.relreplident = 'n'"
                " OR c.relreplident = 'd' AND NOT EXISTS"
                " (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))",
                [table.oid for table in tables],
            )
        }
        return [table for table in tables if table.oid in bare]

    def estimate(self, table: TableRef) -> int:
        """The planner's guess at the number of rows, also where statistics are missing."""
        query = sql.SQL("EXPLAIN (FORMAT JSON) SELECT FROM {}").format(sql.Identifier(table.schema, table.name))
        return int(self.rows(query)[0][0][0]["Plan"]["Plan Rows"])

    def ensure_publication(self, name: str, tables: Sequence[TableRef], settings: Settings) -> None:
        """Put these tables, with their row filters, into the publication; one that is made by users keeps its own."""
        exists = self.rows("SELECT puballtables FROM pg_publication WHERE pubname = %s", name)
        if not exists:
            self.rows(
                sql.SQL("CREATE PUBLICATION {} WITH (publish_via_partition_root = true)").format(sql.Identifier(name))
            )
        elif exists[0][0]:
            return
        listed = {
            f"{schema}.{table}"
            for schema, table in self.rows(
                "SELECT n.nspname::text, c.relname::text FROM pg_publication p JOIN pg_publication_rel r"
                " ON r.prpubid = p.oid JOIN pg_class c ON c.oid = r.prrelid"
                " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %s",
                name,
            )
        }
        for table in tables:
            if table.full_name not in listed:
                self.rows(_change_publication("ADD", name, [table], settings))

    def set_publication(self, name: str, tables: Sequence[TableRef], settings: Settings) -> None:
        """Make the publication hold exactly these tables: some may have been left out since, or filters changed."""
        self.rows(_change_publication("SET", name, tables, settings))

    def slot(self, name: str) -> SlotInfo | None:
        invalid = "invalidation_reason" if self.version >= 17 else "NULL"
        two_phase = "two_phase" if self.version >= 15 else "false"
        found = self.rows(
            f"SELECT plugin::text, active, restart_lsn::text, confirmed_flush_lsn::text, wal_status, {invalid},"
            f" coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::int8, {two_phase}"
            " FROM pg_replication_slots WHERE slot_name = %s",
            name,
        )
        if not found:
            return None
        plugin, active, restart, confirmed, wal_status, reason, kept, prepared = found[0]
        return SlotInfo(
            plugin,
            active,
            parse_lsn(restart) if restart else None,
            parse_lsn(confirmed) if confirmed else None,
            wal_status,
            reason,
            kept,
            prepared,
        )

    def current_lsn(self) -> int:
        return parse_lsn(self.rows("SELECT pg_current_wal_lsn()::text")[0][0])

    def end_reader(self, name: str) -> None:
        self.rows(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
            " WHERE slot_name = %s AND active_pid IS NOT NULL",
            name,
        )

    def drop_slot(self, name: str) -> None:
        self.rows("SELECT pg_drop_replication_slot(%s)", name)


def _change_publication(how: str, publication: str, tables: Sequence[TableRef], settings: Settings) -> sql.Composed:
    listed = []
    for table in tables:
        condition = settings.row_filters.get(table.full_name)
        where = sql.SQL(" WHERE ({})").format(sql.SQL(cast("Any", condition))) if condition else sql.SQL("")
        listed.append(sql.Identifier(table.schema, table.name) + where)
    return sql.SQL("ALTER PUBLICATION {} {} TABLE {}").format(
        sql.Identifier(publication), sql.SQL(cast("Any", how)), sql.SQL(", ").join(listed)
    )
