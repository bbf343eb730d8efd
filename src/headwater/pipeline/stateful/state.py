"""What a step sees of its state: typed tables, read and written a batch of keys at a time.

A `State` is one version with this step's changes laid upon it. Nothing reaches the store until the task commits:
`changes()` gives every key that is different afterwards, with its value before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.pipeline.errors import DefinitionError
from headwater.pipeline.stateful.base import Base, Change, bounded, merged
from headwater.pipeline.stateful.keys import KeyCodec, as_array, successor
from headwater.pipeline.stateful.schema import TableHistory
from headwater.pipeline.stateful.values import RowCodec

__all__ = ["Rows", "State", "StateTable"]

Columns = Any
"""Named columns: a mapping of names to arrays, an Arrow table or record batch, or `Groups.keys`."""


@dataclass(frozen=True, slots=True)
class Rows:
    """State rows as columns. After `get`, row i belongs to the i-th key asked for, and `found[i]` says whether it
    exists (if not it holds defaults or nulls). After `scan`, `source[i]` is the number of the prefix of row i.
    """

    columns: Mapping[str, pa.Array]
    found: npt.NDArray[np.bool_]
    source: npt.NDArray[np.int64]

    def __getitem__(self, name: str) -> pa.Array:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.found)

    def numpy(self, name: str) -> npt.NDArray[Any]:
        """A column as NumPy; times are int64 in the column's unit."""
        array = self.columns[name]
        if pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type):
            array = array.view(pa.int64())
        return np.asarray(array.to_numpy(zero_copy_only=False))

    def table(self) -> pa.Table:
        return pa.table(dict(self.columns))


class StateTable:
    """One ordered table of the state, with the current step's writes on top."""

    def __init__(self, history: TableHistory, base: Base) -> None:
        self.spec = history.current
        self.name = history.name
        self._keys = KeyCodec(history.key)
        self._rows = RowCodec(history)
        self._base = base
        self._read: dict[bytes, bytes | None] = {}  # what the version holds, for keys looked up
        self._written: dict[bytes, bytes | None] = {}
        self._sorted: list[bytes] | None = None  # the written keys in order, until the next write

    def get(self, keys: Columns) -> Rows:
        """The values of the keys, one row for each, in their order."""
        encoded = self._encode(keys)
        values = self._values(encoded)
        found = np.fromiter((value is not None for value in values), dtype=np.bool_, count=len(values))
        return Rows(self._rows.unpack(values), found, np.arange(len(values)))

    def put(self, keys: Columns, values: Columns) -> None:
        """Set the values of the keys; where a key comes twice the last one stays."""
        encoded = self._encode(keys)
        columns = {c.name: _column(values, c.name) for c in self.spec.values}
        self._written.update(zip(encoded, self._rows.pack(columns, len(encoded)), strict=True))
        self._sorted = None

    def delete(self, keys: Columns) -> None:
        self._written.update(dict.fromkeys(self._encode(keys), None))
        self._sorted = None

    def scan(
        self,
        prefixes: Columns,
        prefix: Sequence[str],
        low: Any = None,
        high: Any = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Rows:
        """For each row of `prefixes` the state rows whose first key columns (named by `prefix`) equal it, in key order,
        restricted to low <= next key column < high. `low` and `high` are one value for all or a column of them.
        The result has the key and the value columns; `source` says which prefix each row belongs to.
        """
        starts = self._keys.encode({n: _column(prefixes, n) for n in prefix}, len(prefix))
        lows = self._bounds(starts, len(prefix), low, default=None)
        highs = self._bounds(starts, len(prefix), high, default=successor)
        ranges = zip(lows, highs, strict=True)
        if not self._written:
            pairs, counts = self._base.scan_each(self.name, ranges, reverse, limit)
            return self._decoded(pairs, np.repeat(np.arange(len(starts)), counts))
        pairs, counts = [], []
        for start, end in ranges:
            before = len(pairs)
            pairs.extend(islice(self._scan(start, end, reverse), limit))
            counts.append(len(pairs) - before)
        return self._decoded(pairs, np.repeat(np.arange(len(starts)), counts))

    def range(self, low: Any = None, high: Any = None, *, reverse: bool = False, limit: int | None = None) -> Rows:
        """The rows with low <= first key column < high, in key order: what an index "due at" is read with."""
        start = b"" if low is None else self._keys.encode_one(low)
        end = b"" if high is None else self._keys.encode_one(high)
        pairs = list(islice(self._scan(start, end, reverse), limit))
        return self._decoded(pairs, np.zeros(len(pairs), dtype=np.int64))

    def encoded(self) -> Iterator[tuple[bytes, bytes]]:
        """All rows as they are stored, in key order."""
        return ((bytes(key), bytes(value)) for key, value in self._scan(b"", b"", False))

    def changes(self) -> list[Change]:
        """Every key that is different after the step, sorted, with its value before and after."""
        written = sorted(self._written)
        unread = [key for key in written if key not in self._read]
        self._read.update(zip(unread, self._base.get(self.name, unread), strict=True))
        read, after = self._read, self._written
        return [(key, read[key], after[key]) for key in written if read[key] != after[key]]

    def _values(self, encoded: list[bytes]) -> list[bytes | None]:
        missing = encoded if not self._read else [key for key in encoded if key not in self._read]
        # in key order the tree is walked once, not jumped about in; keys that come in order are sorted at once
        missing = sorted(dict.fromkeys(missing))
        self._read.update(zip(missing, self._base.get(self.name, missing), strict=True))
        read, written = self._read, self._written
        if not written:
            return [read[key] for key in encoded]
        return [written[key] if key in written else read[key] for key in encoded]

    def _encode(self, keys: Columns) -> list[bytes]:
        if isinstance(keys, EncodedKeys):
            return keys.encoded(self._keys)
        return self._keys.encode({c.name: _column(keys, c.name) for c in self.spec.key})

    def _bounds(self, starts: list[bytes], depth: int, bound: Any, default: Any) -> list[bytes]:
        if bound is None:
            return starts if default is None else [default(start) for start in starts]
        column = self.spec.key[depth]
        codec = KeyCodec([column])
        if isinstance(bound, (pa.Array, pa.ChunkedArray, np.ndarray, list)):
            return list(map(bytes.__add__, starts, codec.encode({column.name: bound})))
        end = codec.encode_one(bound)
        return [start + end for start in starts]

    def _scan(self, low: bytes, high: bytes, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        below = self._base.scan(self.name, low, high, reverse)
        if not self._written:
            return below
        if self._sorted is None:
            self._sorted = sorted(self._written)
        return merged(below, self._written, bounded(self._sorted, low, high, reverse), reverse)

    def _decoded(self, pairs: list[tuple[bytes, bytes]], source: npt.NDArray[np.int64]) -> Rows:
        columns = self._keys.decode([key for key, _ in pairs])
        columns.update(self._rows.unpack([value for _, value in pairs]))
        return Rows(columns, np.ones(len(pairs), dtype=np.bool_), source)


class State:
    """All tables of an operator at one version."""

    def __init__(self, histories: Sequence[TableHistory], base: Base) -> None:
        self.tables = {history.name: StateTable(history, base) for history in histories}
        self.notes: dict[str, Any] = {}  # what a step wants in its batch's counts: late rows, say; never stored

    def __getitem__(self, name: str) -> StateTable:
        try:
            return self.tables[name]
        except KeyError:
            raise DefinitionError(
                f"the operator declares no state table {name!r}, only {', '.join(self.tables) or 'none'}"
            ) from None

    def changes(self) -> dict[str, list[Change]]:
        return {name: changed for name, table in self.tables.items() if (changed := table.changes())}


class EncodedKeys:
    """Key columns whose encoding is kept, so that get and put of the same keys pay for it once."""

    def __init__(self, columns: pa.Table) -> None:
        self.columns = columns
        self._codec: KeyCodec | None = None
        self._encoded: list[bytes] = []

    def __getitem__(self, name: str) -> pa.Array:
        return as_array(self.columns[name])

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def encoded(self, codec: KeyCodec) -> list[bytes]:
        if self._codec is None or self._codec.columns != codec.columns:
            self._encoded = codec.encode({c.name: self.columns[c.name] for c in codec.columns})
            self._codec = codec
        return self._encoded


def _column(columns: Any, name: str) -> Any:
    try:
        return columns[name]
    except KeyError:
        known = columns.column_names if isinstance(columns, (pa.Table, pa.RecordBatch)) else list(columns)
        raise DefinitionError(f"state column {name!r} is missing; given were {', '.join(known)}") from None
