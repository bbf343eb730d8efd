"""Which row a record is about.

Without `key` in the definition it is the record's own key: the members of a JSON object are the key's columns
(renamed as the rows are), anything else is text in the column `_key`. With `key` it is those columns of the mapped
row; the record's key then serves for what has no row, the deletions, as long as it spells the same key.

Where it does not, the view is *re-keyed*: what a row was called before must be known to take it away when it changes.
The changelog has to say it: Debezium's `before` (REPLICA IDENTITY FULL), or a row with weight -1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from headwater.views.errors import RecordRefused
from headwater.views.rows import KEY_COLUMN, Key, Row, key_of, key_text, scalar_text

__all__ = ["KeyRule"]

_decoder = msgspec.json.Decoder(dict[str, Any])


class KeyRule:
    """The keys of one view; learns the columns from the first record when the definition names none."""

    def __init__(self, view: str, columns: Sequence[str], rename: Mapping[str, str], known: Sequence[str] = ()) -> None:
        self._view = view
        self.given = bool(columns)
        self.columns: tuple[str, ...] = tuple(columns) or tuple(known)
        self._rename = rename
        self._read: Callable[[Mapping[str, Any]], Key] | None = key_of(self.columns) if self.columns else None
        self.completed = False  # whether rows were given columns of the key that their records' values lack
        self._type: type = str  # of the scalar keys seen last: record keys spell numbers as text

    def of_rows(self, record_keys: Sequence[bytes | None], rows: Sequence[Row]) -> list[Key]:
        """The key of every row; rows get the columns of the key that they lack."""
        if self.given:
            return self._of_columns(rows)
        keys = self._of_records(record_keys)
        self.completed = _complete(rows, keys, self.columns) or self.completed
        return keys

    def of_structs(self, rows: Sequence[Any]) -> list[Key]:
        """Of objects with the key's columns as attributes, which are scalars."""
        keys = list(map(attrgetter(*self.columns), rows))
        if len(self.columns) == 1 and keys:
            self._type = type(keys[-1])
        return keys

    def of_deleted(self, record_key: bytes | None, before: Row | None) -> Key:
        """The key of a row that is gone, from what it was or from the record's key."""
        if before is not None and self.given and all(before.get(name) is not None for name in self.columns):
            return self._of_columns([before])[0]
        if not self.given:
            return self._of_records([record_key])[0]
        spelt = self._spelt(record_key)
        if spelt is None:
            raise RecordRefused(
                f"view {self._view} is keyed by {', '.join(self.columns)}, which a deletion does not say: its "
                "changelog needs the row before (REPLICA IDENTITY FULL, or weighted rows), or the same key as the topic"
            )
        return spelt

    def same(self, record_keys: Sequence[bytes | None], keys: Sequence[Key]) -> bool:
        """Whether every record's key spells its row's key: then an update cannot leave an old row behind."""
        if not self.given:
            return True
        if len(self.columns) == 1 and keys and type(keys[0]) is str and _texts_equal(record_keys, keys):
            return True
        pairs = zip(record_keys, keys, strict=True)
        return all(record is None or self._spells(record, key) for record, key in pairs)

    def _spells(self, record: bytes, key: Key) -> bool:
        if record[:1] != b"{":
            return len(self.columns) == 1 and scalar_text(record) == key_text(key)
        return bool(self._spelt(record) == key)

    def _of_columns(self, rows: Sequence[Row]) -> list[Key]:
        assert self._read is not None
        try:
            keys = list(map(self._read, rows))
        except KeyError as error:
            raise RecordRefused(f"the row has no column {error}, which is the view's key") from error
        kinds = set(map(type, keys)) if len(self.columns) == 1 else {type(part) for key in keys for part in key}
        if kinds - {str, int, float, bool}:
            raise RecordRefused(f"the key ({', '.join(self.columns)}) is null or not a scalar")
        if len(self.columns) == 1 and keys:
            self._type = type(keys[-1])
        return keys

    def _of_records(self, record_keys: Sequence[bytes | None]) -> list[Key]:
        if None in record_keys:
            raise RecordRefused("the record has no key, and the view's definition names none")
        found = [key for key in record_keys if key is not None]
        if not self.columns:
            self._learn(found[0])
        if self.columns == (KEY_COLUMN,):
            return [scalar_text(key) for key in found]
        assert self._read is not None
        try:
            return list(map(self._read, self._objects(found)))
        except KeyError as error:
            raise RecordRefused(
                f"the record's key has no {error}; the view's key is {', '.join(self.columns)}"
            ) from None

    def _objects(self, keys: Sequence[bytes]) -> list[Row]:
        try:
            lines = b"\n".join(keys)
            exact = lines.count(b"\n") == len(keys) - 1  # then every line is one key
            objects = _decoder.decode_lines(lines) if exact else [_decoder.decode(key) for key in keys]
            if len(objects) != len(keys):  # an empty line is no object
                raise RecordRefused("the record's key is empty")
        except msgspec.DecodeError as error:
            raise RecordRefused(f"the record's key is not the JSON object that others are: {error}") from error
        if objects and "payload" in objects[0] and "schema" in objects[0]:
            objects = [each["payload"] for each in objects]
        names = self._rename
        return [{names.get(n, n): v for n, v in each.items()} for each in objects] if names else objects

    def _learn(self, record_key: bytes) -> None:
        columns = tuple(self._objects([record_key])[0]) if record_key[:1] == b"{" else (KEY_COLUMN,)
        if not columns:
            raise RecordRefused("the record's key is an object without members")
        self.columns, self._read = columns, key_of(columns)

    def _spelt(self, record_key: bytes | None) -> Key | None:
        """The view's key as the record's key spells it, if it does."""
        if record_key is None:
            return None
        if record_key[:1] == b"{":
            try:
                assert self._read is not None
                return self._read(self._objects([record_key])[0])
            except KeyError:
                return None
        if len(self.columns) != 1:
            return None
        text = scalar_text(record_key)
        try:
            return text if self._type in (str, bool) else self._type(text)
        except ValueError:
            return text


def _texts_equal(record_keys: Sequence[bytes | None], keys: Sequence[Key]) -> bool:
    try:
        return list(map(str.encode, keys)) == list(record_keys)
    except TypeError:  # not all texts
        return False


def _complete(rows: Sequence[Row], keys: Sequence[Key], columns: Sequence[str]) -> bool:
    """Give rows the columns of the key that they lack; whether any did."""
    lacking = [(row, key) for row, key in zip(rows, keys, strict=True) if any(name not in row for name in columns)]
    for row, key in lacking:
        for name, part in zip(columns, key if isinstance(key, tuple) else (key,), strict=True):
            row.setdefault(name, part)
    return bool(lacking)
