"""Reading a view's Delta tables, through DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from headwater.views.bookmark import Bookmark
from headwater.views.errors import BadView
from headwater.views.rows import Row, key_text, normalise_key
from headwater.views.stores.columns import Kind, from_stored
from headwater.views.stores.delta_commits import CommitMeta, delta_available, meta_of, open_table

__all__ = ["OFFSET", "OP", "VALID_FROM", "DeltaReader", "DeltaSnapshot"]

OFFSET, OP, VALID_FROM = "_offset", "_op", "_valid_from"


class DeltaReader:
    """Loads the table as it is at each snapshot."""

    poll_s = 0.05

    def __init__(
        self, active: Callable[[], int], path: Callable[[int], Path], view: str, version: int | None, *, history: bool
    ) -> None:
        self._active, self._path = active, path
        self._view, self._version, self._history = view, version, history

    def bookmark(self) -> Bookmark:
        return self._found()[2].bookmark

    @contextmanager
    def snapshot(self) -> Iterator[DeltaSnapshot]:
        version, table, meta = self._found()
        found = DeltaSnapshot(table, self._view, version, meta.bookmark, meta.kinds or {}, history=self._history)
        try:
            yield found
        finally:
            found.close()

    def close(self) -> None:
        """Nothing is kept open."""

    def _found(self) -> tuple[int, DeltaTable | None, CommitMeta]:
        with delta_available():
            version = self._active() if self._version is None else self._version
            table = open_table(self._path(version)) if version else None
            return version, table, CommitMeta() if table is None else meta_of(table)


class DeltaSnapshot:
    """One version of one table, read through DuckDB."""

    def __init__(
        self,
        table: DeltaTable | None,
        view: str,
        version: int,
        bookmark: Bookmark,
        kinds: Mapping[str, Kind],
        *,
        history: bool,
    ) -> None:
        self.bookmark, self.version = bookmark, version
        self._view, self._kinds, self._history = view, kinds, history
        self._table = table if kinds else None
        self._duck: duckdb.DuckDBPyConnection | None = None

    def get(self, key: object) -> Row | None:
        if self._table is None:
            return None
        where, values = self._where(key)
        return next(self._rows(f"SELECT * FROM {_quoted(self._view)} WHERE {where}", values), None)

    def scan(self) -> Iterator[Row]:
        if self._table is not None:
            yield from self._rows(f"SELECT * FROM {_quoted(self._view)}", [])

    def count(self) -> int:
        if self._table is None:
            return 0
        found = self._duckdb().execute(f"SELECT count(*) FROM {_quoted(self._view)}").fetchone()
        return 0 if found is None else int(found[0])

    def history(self, key: object) -> list[Row]:
        """Every row the key has had, oldest first, each with `_op`, `_valid_from` and `_valid_to` (None: still)."""
        if not self._history:
            raise BadView(f'view {self._view} keeps the latest rows only: give it options = {{ mode = "history" }}')
        if self._table is None:
            return []
        where, values = self._where(key)
        text = f"SELECT * FROM {_quoted(self._view + '_history')} WHERE {where} ORDER BY {OFFSET}"
        return list(self._rows(text, values))

    def query(self, text: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """Rows of an SQL query in DuckDB, which reads the view by its name."""
        try:
            return list(self._rows(text, parameters))
        except duckdb.Error as error:
            raise BadView(f"view {self._view}: {error}") from error

    def arrow(self) -> Any:
        """The rows as an Arrow table."""
        return self._duckdb().execute(f"SELECT * FROM {_quoted(self._view)}").to_arrow_table()

    def close(self) -> None:
        if self._duck is not None:
            self._duck.close()

    def _where(self, key: object) -> tuple[str, list[Any]]:
        columns = self.bookmark.key
        found = normalise_key(key, columns)
        parts = found if isinstance(found, tuple) else (found,)
        return " AND ".join(f"{_quoted(name)}::VARCHAR = ?" for name in columns), [key_text(part) for part in parts]

    def _rows(self, text: str, parameters: Any) -> Iterator[Row]:
        cursor = self._duckdb().execute(text, parameters or None)
        names = [column[0] for column in cursor.description or ()]
        kinds = self._kinds
        for values in cursor.fetchall():
            yield {n: from_stored(v, kinds.get(n, "text")) for n, v in zip(names, values, strict=True)}

    def _duckdb(self) -> duckdb.DuckDBPyConnection:
        if self._duck is None:
            self._duck = duckdb.connect()
            # the table is given to it as Arrow: it needs no other files, nor the network
            self._duck.execute("SET enable_external_access = false")
            if self._table is not None:
                self._duck.register("headwater_table", self._table.to_pyarrow_dataset())
                for name, text in self._views():
                    self._duck.execute(f"CREATE TEMP VIEW {_quoted(name)} AS {text}")
        return self._duck

    def _views(self) -> list[tuple[str, str]]:
        columns = ", ".join(map(_quoted, self._kinds))
        if not self._history:
            return [(self._view, f"SELECT {columns} FROM headwater_table")]
        key = ", ".join(map(_quoted, self.bookmark.key))
        every = (
            f"SELECT DISTINCT ON ({key}, {OFFSET}) {columns}, {OFFSET}, {OP}, {VALID_FROM}, "
            f"lead({VALID_FROM}) OVER (PARTITION BY {key} ORDER BY {OFFSET}) AS _valid_to, "
            f"lead({OFFSET}) OVER (PARTITION BY {key} ORDER BY {OFFSET}) AS _next FROM headwater_table"
        )
        history = f"{self._view}_history"
        latest = f"SELECT {columns} FROM {_quoted('headwater_every')} WHERE _next IS NULL AND {OP} = 'u'"
        return [
            ("headwater_every", every),
            (history, "SELECT * EXCLUDE (_next) FROM headwater_every"),
            (self._view, latest),
        ]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
