"""Rows, keys and batches of them: what passes between the decoder, the mapping and a store.

A row is a dict of JSON values. A key is one JSON scalar, or a tuple of them where it has several columns. Its text is
what stores use that know only names: the scalar itself, or a JSON array of the columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from headwater.views.errors import BadView, RecordRefused

__all__ = ["KEY_COLUMN", "Batch", "Key", "Row", "key_from_text", "key_of", "key_text", "normalise_key", "scalar_text"]

Row = dict[str, Any]
Key = Any  # a str, int, float or bool, or a tuple of them

KEY_COLUMN = "_key"  # the column of keys that are no JSON object, where the definition names none; always text


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows with their keys (or keys alone, to delete), each key once unless the store keeps the history.

    `columns` are those of the key. `raws` are the rows' JSON texts as they came, where the mapping left them alone.
    `offsets` are those of the records that said so, `times_ms` (for stores that keep the history) their times.
    """

    columns: tuple[str, ...]
    keys: Sequence[Key]
    rows: Sequence[Row]
    offsets: Sequence[int]
    raws: Sequence[bytes] | None = None
    times_ms: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def part(self, start: int, end: int) -> Batch:
        return Batch(
            self.columns,
            self.keys[start:end],
            self.rows[start:end],
            self.offsets[start:end],
            None if self.raws is None else self.raws[start:end],
            None if self.times_ms is None else self.times_ms[start:end],
        )


def key_text(key: Key) -> str:
    """The key as a name."""
    if isinstance(key, str):
        return key
    return json.dumps(key, separators=(",", ":"), ensure_ascii=False)


def key_from_text(text: str, columns: Sequence[str]) -> Key:
    """A key as people and URLs write it: the scalar, or a JSON array when there are several columns."""
    if len(columns) <= 1:
        return text
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or len(found) != len(columns):
        raise BadView(f"the key has the columns {', '.join(columns)}: write them as a JSON array, not {text[:80]!r}")
    return tuple(found)


def scalar_text(key: bytes) -> str:
    """A record's key that is no JSON object: a JSON string, or text as it stands."""
    try:
        if key[:1] == b'"' and key[-1:] == b'"' and len(key) > 1:
            return str(json.loads(key))
        return key.decode()
    except ValueError as error:
        raise RecordRefused(f"the key is neither a JSON string nor UTF-8 text: {key[:40]!r}") from error


def key_of(columns: Sequence[str]) -> Callable[[Mapping[str, Any]], Key]:
    """A function from a row to its key; KeyError names the column that is missing."""
    return itemgetter(*columns)


def normalise_key(key: object, columns: Sequence[str]) -> Key:
    """What a caller of `get` gave: a scalar, a sequence in the columns' order, or a dict by column."""
    if isinstance(key, Mapping):
        missing = [name for name in columns if name not in key]
        if missing or not columns:
            raise BadView(f"the key of this view has the columns {', '.join(columns) or '(none yet)'}, not {set(key)}")
        return key_of(columns)(key)
    if isinstance(key, list | tuple):
        if len(key) != len(columns) and columns:
            raise BadView(f"the key of this view has the columns {', '.join(columns)}; got {len(key)} values")
        return tuple(key) if len(key) != 1 else key[0]
    if len(columns) > 1:
        raise BadView(f"the key of this view has the columns {', '.join(columns)}: give a value for each")
    return key_text(key) if tuple(columns) == (KEY_COLUMN,) else key
