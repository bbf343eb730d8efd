"""A view as its readers see it.

view = View.open("users", bootstrap="127.0.0.1:9092")
row = view.get(42)                                        # as far as the view has got
row = view.get(42, at_least=token)                        # not before it has seen the write that gave the token
with view.read(at_least=token, otherwise="stale") as answer:
    answer.get(42), answer.position, answer.stale         # several reads of one moment, and which moment it was
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from headwater.client import Connection
from headwater.positions import Position
from headwater.views.bookmark import Bookmark
from headwater.views.coverage import CoverageReader
from headwater.views.declared import find_definition
from headwater.views.definition import Definition
from headwater.views.errors import BadView, NotCovered
from headwater.views.feed import ChangeFeed
from headwater.views.manage import VersionStatus, definition_of, status
from headwater.views.rows import Row, key_text, normalise_key
from headwater.views.stores import Reader, Snapshot

__all__ = ["Answer", "Otherwise", "View"]

Otherwise = Literal["fail", "stale"]

READ_TIMEOUT_S = 5.0  # to wait for a position, unless the caller says otherwise
FIRST_PAUSE_S = 0.0005  # between two looks at the position; doubled up to what is worth it for the store


class Answer:
    """What was read, all of one moment."""

    def __init__(self, snapshot: Snapshot, *, stale: bool) -> None:
        self.snapshot, self.stale = snapshot, stale

    @property
    def position(self) -> str:
        """How far the rows go, as a token."""
        return self.snapshot.bookmark.position.token()

    @property
    def bookmark(self) -> Bookmark:
        return self.snapshot.bookmark

    @property
    def version(self) -> int:
        return self.snapshot.version

    def get(self, key: object) -> Row | None:
        return self.snapshot.get(key)

    def scan(self) -> Iterator[Row]:
        return self.snapshot.scan()

    def count(self) -> int:
        return self.snapshot.count()

    def query(self, text: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """An SQL query, where the store speaks SQL (SQLite, PostgreSQL, Delta by DuckDB)."""
        return self._ability("query")(text, parameters)  # type: ignore[no-any-return]

    def search(self, text: str, **how: Any) -> Any:
        """A search, where the store is a search index (tantivy, OpenSearch)."""
        return self._ability("search")(text, **how)

    def _ability(self, name: str) -> Any:
        found = getattr(self.snapshot, name, None)
        if found is None:
            raise BadView(f"this view's store has no {name}: use get or scan, or a view in another store")
        return found


class View:
    """Reads one view: its active version, or the one asked for."""

    def __init__(self, definition: Definition, connection: Connection, *, version: int | None = None) -> None:
        self.definition, self.connection = definition, connection
        self._store = definition.open_store()
        self._version = version
        self._reader: Reader = self._store.reader(version)
        self._coverage: CoverageReader | None = None

    @classmethod
    def open(
        cls,
        name: str,
        *,
        bootstrap: str | Connection = "127.0.0.1:9092",
        file: str | Path = "views.toml",
        version: int | None = None,
    ) -> View:
        """A view that a file declares."""
        connection = Connection(bootstrap) if isinstance(bootstrap, str) else bootstrap
        return cls(find_definition(name, Path(file)), connection, version=version)

    @property
    def name(self) -> str:
        return self.definition.name

    def position(self) -> str:
        """How far the view has got, as a token."""
        return self._reader.bookmark().position.token()

    @contextmanager
    def read(
        self,
        *,
        at_least: str | Position | None = None,
        timeout: float = READ_TIMEOUT_S,
        otherwise: Otherwise = "fail",
    ) -> Iterator[Answer]:
        """Rows of one moment, which is not before `at_least`.

        After `timeout` seconds the answer is the view as it is, marked `stale`, or `NotCovered` is raised.
        """
        if otherwise not in ("fail", "stale"):
            raise BadView(f"otherwise is {otherwise!r}; say 'fail' or 'stale'")
        wanted = Position.from_token(at_least) if isinstance(at_least, str) else at_least
        end = time.monotonic() + timeout
        while True:
            needed = self._wait(wanted, end)
            with self._reader.snapshot() as snapshot:
                # the active version may have changed since the wait: what counts is what is read
                covered = needed is not None and snapshot.bookmark.position.covers(needed)
                if covered or time.monotonic() >= end:
                    if not covered and otherwise == "fail":
                        raise self._not_covered(wanted, needed, timeout)
                    yield Answer(snapshot, stale=not covered)
                    return

    def get(
        self,
        key: object,
        *,
        at_least: str | Position | None = None,
        timeout: float = READ_TIMEOUT_S,
        otherwise: Otherwise = "fail",
    ) -> Row | None:
        """One row, or None."""
        with self.read(at_least=at_least, timeout=timeout, otherwise=otherwise) as answer:
            return answer.get(key)

    def wait_until(self, at_least: str | Position, timeout: float = READ_TIMEOUT_S) -> str:
        """Until the view covers a position; where it is then."""
        with self.read(at_least=at_least, timeout=timeout) as answer:
            return answer.position

    def key_columns(self) -> tuple[str, ...]:
        """The columns of the key; empty until the first row has come, unless the definition names them."""
        return self._reader.bookmark().key or self.definition.key

    def changes(self, *, start: str | Position | None = None, key: object = None) -> ChangeFeed:
        """The view's changes after `start` (now, unless given), of all keys or of one; iterate over it.

        Each comes when the view has it, with the position to go on from after an interruption.
        """
        at = self._reader.bookmark()
        given = Position.from_token(start) if isinstance(start, str) else start
        position = at.position if given is None else given.restrict(self.definition.topics)
        wanted = None if key is None else key_text(normalise_key(key, at.key or self.definition.key))
        return ChangeFeed(self._followed(), self.connection, position, self._covered, key=wanted, columns=at.key)

    def status(self) -> list[VersionStatus]:
        """Every version: position, lag, rows, rate, last error."""
        return status(self.definition, self.connection)

    def close(self) -> None:
        self._reader.close()
        self._store.close()
        if self._coverage is not None:
            self._coverage.close()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _covered(self) -> Position:
        return self._reader.bookmark().position

    def _followed(self) -> Definition:
        """What the version that is read follows, which may be an older definition than the declared one."""
        catalog = self._store.catalog()
        version = catalog.versions.get(self._version or catalog.active)
        return self.definition if version is None else definition_of(self.definition, version)

    def _wait(self, wanted: Position | None, end: float) -> Position | None:
        """Until the view covers it or the time is over; the position in the view's own topics, if it is known."""
        if wanted is None or not wanted.offsets:
            return Position()
        pause = FIRST_PAUSE_S
        while True:
            needed = self._needed(wanted)
            if needed is not None and self._reader.bookmark().position.covers(needed):
                return needed
            left = end - time.monotonic()
            if left <= 0:
                return needed
            time.sleep(min(pause, left))
            pause = min(pause * 2, self._reader.poll_s)

    def _needed(self, wanted: Position) -> Position | None:
        topics = self.definition.topics
        if wanted.topics() <= set(topics):
            return wanted
        if self._coverage is None:
            self._coverage = CoverageReader(self.connection)
        needed = self._coverage.index.translate(wanted, topics)
        if needed is None:
            self._coverage.refresh(self._reader.poll_s)
            needed = self._coverage.index.translate(wanted, topics)
        return needed

    def _not_covered(self, wanted: Position | None, needed: Position | None, timeout: float) -> NotCovered:
        reached = self._reader.bookmark().position
        if needed is None and wanted is not None:
            other = ", ".join(sorted(wanted.topics() - set(self.definition.topics)))
            return NotCovered(
                f"view {self.name} follows {', '.join(self.definition.topics)}, and in {timeout} s no pipeline said "
                f"that its output there covers the position in {other}; is it running, and is the token of its input?"
            )
        missing = [f"{t}-{p} {o}" for t, p, o in needed or Position() if reached.offsets.get((t, p), 0) < o]
        return NotCovered(
            f"view {self.name} has not reached {', '.join(missing[:5])} within {timeout} s: it is at "
            f"{reached.as_topics()}; is its follower running (headwater view status)?"
        )
