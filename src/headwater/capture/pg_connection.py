"""Connections to PostgreSQL: SQL for the catalog, raw libpq for the replication stream and for COPY.

psycopg has no replication support of its own, but its libpq wrapper gives access to what is needed. A connection that
reported an error is never used again: the caller connects anew.
"""

from __future__ import annotations

import select
from collections.abc import Iterator, Mapping
from struct import Struct

import psycopg
from psycopg import conninfo, pq

from headwater.capture.errors import DecodingFailed, SourceLost

__all__ = ["ReplicationStream", "copy_rows", "format_lsn", "parse_lsn", "raw_connect", "sql_connect"]

CONNECT_TIMEOUT_S = 10  # a server that does not answer by then counts as away
COMMAND_TIMEOUT_S = 60.0  # creating a slot waits for transactions that were running: see create_slot

# One text form for every type, whatever the database's or the role's settings are.
SESSION = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
    "xmloption": "content",
    "search_path": "pg_catalog",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}

INTERNAL_ERROR = b"XX"  # SQLSTATE class
POSTGRES_EPOCH_US = 946_684_800_000_000
_STATUS = Struct(">cQQQqB").pack


def _options(dsn: str, application: str, extra: Mapping[str, str]) -> str:
    settings = " ".join(f"-c {name}={value}" for name, value in {**SESSION, **extra}.items())
    given = conninfo.conninfo_to_dict(dsn)
    return conninfo.make_conninfo(
        dsn,
        options=f"{given.get('options') or ''} {settings}".strip(),
        application_name=application,
        client_encoding="UTF8",
        connect_timeout=CONNECT_TIMEOUT_S,
    )


def sql_connect(dsn: str, application: str = "headwater capture") -> psycopg.Connection[tuple[object, ...]]:
    """A connection for catalog queries, in autocommit."""
    try:
        return psycopg.connect(_options(dsn, application, {}), autocommit=True)
    except psycopg.Error as error:
        raise SourceLost(f"cannot connect to PostgreSQL: {str(error).strip()}") from error


def raw_connect(dsn: str, *, replication: bool) -> pq.abc.PGconn:
    """A bare libpq connection; with `replication` the server takes replication commands on it."""
    text = _options(dsn, "headwater capture", {})
    if replication:
        text = conninfo.make_conninfo(text, replication="database")
    connection = pq.PGconn.connect(text.encode())
    if connection.status != pq.ConnStatus.OK:
        raise SourceLost(f"cannot connect to PostgreSQL: {_reason(connection)}")
    return connection


def command(connection: pq.abc.PGconn, text: str) -> list[list[str | None]]:
    """Run one command; its rows as text."""
    result = connection.exec_(text.encode())
    if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        raise SourceLost(f"PostgreSQL refused `{text[:100]}`: {_reason(connection)}")
    return [
        [None if (cell := result.get_value(row, column)) is None else cell.decode() for column in range(result.nfields)]
        for row in range(result.ntuples)
    ]


class ReplicationStream:
    """START_REPLICATION on a slot: frames in, status updates out. Used by one thread."""

    def __init__(self, dsn: str, slot: str, start_lsn: int, options: Mapping[str, str]) -> None:
        self._connection = raw_connect(dsn, replication=True)
        shown = ", ".join(f"{name} '{value}'" for name, value in options.items())
        text = f'START_REPLICATION SLOT "{slot}" LOGICAL {format_lsn(start_lsn)} ({shown})'
        result = self._connection.exec_(text.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            reason = _reason(self._connection)
            self._connection.finish()
            raise SourceLost(f"PostgreSQL does not stream slot {slot!r}: {reason}")
        self._readable = select.poll()  # unlike select, it takes descriptors beyond 1,023
        self._readable.register(self._connection.socket, select.POLLIN)

    def next_frame(self) -> bytes | None:
        """The next frame that has arrived, or None when nothing has."""
        try:
            size, data = self._connection.get_copy_data(1)
        except psycopg.Error as error:
            raise SourceLost(f"PostgreSQL ended the stream: {str(error).strip()}") from error
        if size > 0:
            return bytes(data)
        if size == 0:
            return None
        result = self._connection.get_result()
        state = result.error_field(pq.DiagnosticField.SQLSTATE) if result is not None else None
        kind = DecodingFailed if (state or b"").startswith(INTERNAL_ERROR) else SourceLost
        raise kind(f"PostgreSQL ended the stream: {_reason(self._connection)}")

    def wait(self, timeout_s: float) -> None:
        """Until something arrives or the time is over."""
        if self._readable.poll(timeout_s * 1000):
            try:
                self._connection.consume_input()
            except psycopg.Error as error:
                raise SourceLost(f"PostgreSQL ended the stream: {str(error).strip()}") from error

    def send_status(self, flushed_lsn: int, now_us: int, *, ask: bool = False) -> None:
        """Everything before `flushed_lsn` is ours for good: the server may forget it; `ask` for its own place."""
        frame = _STATUS(b"r", flushed_lsn, flushed_lsn, flushed_lsn, now_us - POSTGRES_EPOCH_US, ask)
        try:
            self._connection.put_copy_data(frame)
            self._connection.flush()
        except psycopg.Error as error:
            raise SourceLost(f"PostgreSQL ended the stream: {str(error).strip()}") from error

    def close(self) -> None:
        self._connection.finish()


def copy_rows(connection: pq.abc.PGconn, query: str) -> Iterator[bytes]:
    """The rows of COPY's text format, without their line ends."""
    result = connection.exec_(f"COPY ({query}) TO STDOUT".encode())
    if result.status != pq.ExecStatus.COPY_OUT:
        raise SourceLost(f"PostgreSQL refused to copy: {_reason(connection)}")
    get = connection.get_copy_data
    while True:
        size, data = get(0)
        if size < 0:
            break
        yield bytes(data[: size - 1])
    finished = connection.get_result()
    if size == -2 or (finished is not None and finished.status != pq.ExecStatus.COMMAND_OK):
        raise SourceLost(f"PostgreSQL ended a copy early: {_reason(connection)}")
    while connection.get_result() is not None:
        pass


def format_lsn(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def _reason(connection: pq.abc.PGconn) -> str:
    return connection.get_error_message().strip() or "the connection is gone"
