"""The replication slot: created once, checked at every start, never resumed past a gap.

Our position is kept in the log, with the records. The slot only says what the database still keeps for us; it may lag
behind our position (we are told about acknowledged changes again, and skip them) but must never be ahead of what we
asked it to forget: then somebody else has read from it, and changes are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import sql

from headwater.capture.errors import GapDetected, SourceLost
from headwater.capture.pg_catalog import Catalog, SlotInfo
from headwater.capture.pg_connection import command, format_lsn, parse_lsn, raw_connect, sql_connect
from headwater.capture.pg_visibility import Visibility

__all__ = ["Place", "Server", "check_slot", "create_slot", "drop_slot", "free_slot", "identify"]

FREE_ATTEMPTS_MAX = 100  # a tenth of a second each


@dataclass(frozen=True, slots=True)
class Place:
    """How far a capture has got.

    Every transaction before `lsn` is in the log. Of the one at `unit` (0: none), the first `index` events are too.
    `restart` (at most `lsn`) is where the stream must begin again: prepared transactions and what a running snapshot
    must know about lie behind it.
    """

    system: str
    timeline: int
    lsn: int
    restart: int
    unit: int = 0
    index: int = 0
    base: str = ""  # pg_current_snapshot() of the slot's creation

    def to_state(self) -> dict[str, Any]:
        return {
            "system": self.system,
            "timeline": self.timeline,
            "lsn": format_lsn(self.lsn),
            "restart": format_lsn(self.restart),
            "unit": format_lsn(self.unit),
            "index": self.index,
            "base": self.base,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Place:
        return cls(
            system=state["system"],
            timeline=state["timeline"],
            lsn=parse_lsn(state["lsn"]),
            restart=parse_lsn(state["restart"]),
            unit=parse_lsn(state["unit"]),
            index=state["index"],
            base=state["base"],
        )


@dataclass(frozen=True, slots=True)
class Server:
    """What IDENTIFY_SYSTEM says, and the history of its timelines: (timeline, where the next one left it)."""

    system: str
    timeline: int
    lsn: int
    database: str
    switches: tuple[tuple[int, int], ...] = ()


def identify(dsn: str) -> Server:
    connection = raw_connect(dsn, replication=True)
    try:
        system, timeline, lsn, database = command(connection, "IDENTIFY_SYSTEM")[0]
        history = ""
        if int(timeline or 1) > 1:
            history = command(connection, f"TIMELINE_HISTORY {timeline}")[0][1] or ""
        switches = tuple(
            (int(line.split()[0]), parse_lsn(line.split()[1])) for line in history.splitlines() if line[:1].isdigit()
        )
        return Server(system or "", int(timeline or 1), parse_lsn(lsn or "0/0"), database or "", switches)
    finally:
        connection.finish()


def create_slot(dsn: str, slot: str, server: Server, *, version: int, two_phase: bool, failover: bool) -> Place:
    """A new slot, and which transactions are before it: the snapshot it exports says so exactly.

    The command waits for transactions that are running, so that none is half before and half after.
    """
    options = ["SNAPSHOT 'export'"]
    if two_phase:
        options.append("TWO_PHASE")
    if failover:
        options.append("FAILOVER")
    shown = f"({', '.join(options)})" if version >= 15 else "EXPORT_SNAPSHOT"
    connection = raw_connect(dsn, replication=True)
    try:
        _, lsn, name, _ = command(connection, f'CREATE_REPLICATION_SLOT "{slot}" LOGICAL pgoutput {shown}')[0]
        base = _exported(dsn, name or "")
    finally:
        connection.finish()
    start = parse_lsn(lsn or "0/0")
    return Place(server.system, server.timeline, start, start, base=base)


def _exported(dsn: str, name: str) -> str:
    with sql_connect(dsn) as connection:
        try:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
            found = connection.execute("SELECT pg_current_snapshot()::text").fetchone()
        except psycopg.Error as error:
            raise SourceLost(f"the slot's snapshot cannot be used: {str(error).strip()}") from error
    text = str(found[0]) if found else ""
    Visibility.parse(text)  # fails here rather than at the first chunk
    return text


def check_slot(place: Place, slot: str, found: SlotInfo | None, server: Server) -> Place:
    """The place to resume from; `GapDetected` if anything between it and now may be missing."""
    if server.system != place.system:
        raise _gap(slot, f"this is another server (system {server.system}, our position is of {place.system})")
    if found is None:
        raise _gap(slot, "the slot does not exist any more: dropped, or not carried over by a fail-over")
    if found.invalid_reason or found.wal_status == "lost" or found.restart_lsn is None:
        raise _gap(slot, f"the database has invalidated the slot ({found.invalid_reason or 'its log is gone'})")
    if found.confirmed_lsn is not None and found.confirmed_lsn > place.restart:
        where = f"{format_lsn(found.confirmed_lsn)}, and we need {format_lsn(place.restart)}"
        raise _gap(slot, f"the slot was advanced by somebody else, to {where}")
    if server.lsn < place.lsn:
        where = f"{format_lsn(server.lsn)}, our position is {format_lsn(place.lsn)}"
        raise _gap(slot, f"the server is behind what it sent before ({where}): restored or failed over with loss")
    if server.timeline != place.timeline:
        _check_timeline(place, slot, server)
    return replace(place, timeline=server.timeline)


def _check_timeline(place: Place, slot: str, server: Server) -> None:
    left = next((lsn for timeline, lsn in server.switches if timeline == place.timeline), None)
    if left is None or left < place.lsn:
        shown = "unknown" if left is None else format_lsn(left)
        raise _gap(
            slot,
            f"the server is on timeline {server.timeline}, which left ours ({place.timeline}) at {shown}, "
            f"before our position {format_lsn(place.lsn)}",
        )


def _gap(slot: str, why: str) -> GapDetected:
    return GapDetected(
        f"slot {slot!r}: {why}. Resuming would lose changes. Start again with at_gap='resnapshot' "
        "(--at-gap resnapshot): every table is emptied by a truncate marker and read again"
    )


def drop_slot(catalog: Catalog, slot: str, wait: Callable[[], None]) -> None:
    """Drop a slot that nobody needs."""
    free_slot(catalog, slot, wait)
    if catalog.slot(slot) is not None:
        catalog.drop_slot(slot)


def free_slot(catalog: Catalog, slot: str, wait: Callable[[], None]) -> None:
    """End the connection of its last reader: an earlier capture of our name, which the log has fenced by now."""
    for _ in range(FREE_ATTEMPTS_MAX):
        found = catalog.slot(slot)
        if found is None or not found.active:
            return
        catalog.end_reader(slot)
        wait()
    raise SourceLost(f"slot {slot!r} is in use by another process; stop it, or give this capture another name")
