"""Is the compacted topic the table? Both are read whole and compared row by row, while both go on changing.

The database's rows are read in one snapshot. The topic is then read from offset 0 to a place behind that snapshot, and
what the snapshot does not see yet is left out: a key with such a change counts as `changing` and is not compared,
because compaction may have removed what it was before. Flat rows and tombstones do not say which transaction wrote
them: a comparison that finds differences is made again, and only what differs every time is reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from headwater.capture.rebuild import Event, Rebuilt, canonical, read_events
from headwater.client import Connection

__all__ = ["TableVerdict", "Verifiable", "compare", "verify"]

ATTEMPTS = 3
EXAMPLES_MAX = 5  # differences shown for a table

Row = tuple[bytes | None, bytes]  # key and row as the records have them


class Verifiable(Protocol):
    """A database that can be compared with its topics."""

    def tables(self) -> Iterator[tuple[str, str, Iterable[Row]]]:
        """Each table's name, topic and rows, all of one snapshot."""
        ...

    def wait(self) -> None:
        """Until the topics hold everything that the snapshot sees."""
        ...

    def sees(self, event: Event) -> bool:
        """Whether the snapshot saw this change."""
        ...


@dataclass(slots=True)
class TableVerdict:
    """What the comparison of one table found."""

    table: str
    topic: str
    equal: int = 0
    missing: int = 0  # in the database and not in the topic
    extra: int = 0  # in the topic and not in the database
    different: int = 0
    older: int = (
        0  # equal in the columns that the table had when the row was written: a change of the table is no event
    )
    changing: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        return not (self.missing or self.extra or self.different)

    def describe(self) -> dict[str, Any]:
        return {**asdict(self), "same": self.same}

    def note(self, what: str, key: bytes | None, row: bytes) -> None:
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{what}: {(key or row)[:200].decode(errors='replace')}")


def verify(
    open_snapshot: Callable[[], AbstractContextManager[Verifiable]], connection: Connection
) -> list[TableVerdict]:
    """Every table of a capture; `open_snapshot` begins a new snapshot of the database."""
    verdicts: list[TableVerdict] = []
    for _ in range(ATTEMPTS):
        with open_snapshot() as database:
            database.wait()
            verdicts = [
                compare(table, topic, rows, read_events(connection, topic), database.sees)
                for table, topic, rows in database.tables()
            ]
        if all(verdict.same for verdict in verdicts):
            break
    return verdicts


def compare(
    table: str, topic: str, rows: Iterable[Row], events: Iterable[Event], sees: Callable[[Event], bool]
) -> TableVerdict:
    """One table's rows against the events of its topic."""
    verdict = TableVerdict(table, topic)
    with Rebuilt() as copy:
        changing = _replay(copy, events, sees)
        if changing is None:
            verdict.note("changing", None, b"truncated while it was compared: verify again")
            return verdict
        for key, row in rows:
            _compare_row(verdict, copy, None if key is None else _plain(key), _plain(row), changing)
        for left in copy.rows():
            verdict.extra += 1
            verdict.note("only in the topic", None, str(left).encode())
    verdict.changing = len(changing)
    return verdict


def _replay(copy: Rebuilt, events: Iterable[Event], sees: Callable[[Event], bool]) -> set[bytes] | None:
    """The keys with changes that the snapshot does not see; None when it does not see a truncate."""
    changing: set[bytes] = set()
    for event in events:
        if sees(event):
            copy.apply(event)
        elif event.op == "t":
            return None
        elif event.key is not None:
            changing.add(event.key)
    for key in changing:
        copy.forget(key)
    return changing


def _compare_row(verdict: TableVerdict, copy: Rebuilt, key: bytes | None, row: bytes, changing: set[bytes]) -> None:
    if key is not None and key in changing:
        return
    found = copy.take(key, row)
    if found is None:
        verdict.missing += 1
        verdict.note("not in the topic", key, row)
    elif found == row:
        verdict.equal += 1
    elif _written_before(found, row):
        verdict.older += 1
    else:
        verdict.different += 1
        verdict.note("different", key, row)


def _written_before(found: bytes, row: bytes) -> bool:
    """Whether the two differ only in columns that one of them has not got."""
    then, now = json.loads(found), json.loads(row)
    common = then.keys() & now.keys()
    return then.keys() != now.keys() and all(then[name] == now[name] for name in common)


def _plain(text: bytes) -> bytes:
    """Canonical, and without the schema that keys may carry."""
    if text.startswith(b'{"schema":'):
        body = json.loads(text)
        if body.keys() == {"schema", "payload"}:
            text = json.dumps(body["payload"]).encode()
    return canonical(text)
