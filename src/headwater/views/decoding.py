"""From records to changes of rows, a batch at a time, and the records that cannot be decoded.

    flat       the value is the row, a JSON object; a null value (tombstone) deletes it
    debezium   the value is an envelope {"before", "after", "op", ...}, bare or below "payload"; a null value deletes
    weighted   rows with `_weight`: 1 is the row from now on, -1 takes it away; a null value deletes
    auto       whichever of these the first value looks like

A batch is decoded whole; where something in it fails, it is halved until the record that is to blame stands alone.
So good records cost nothing for the bad ones' sake, and a bad one stops nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from headwater.views.errors import RecordRefused
from headwater.views.keys import KeyRule
from headwater.views.mapping import RowMapping
from headwater.views.rows import Key, Row

__all__ = ["Decoded", "Decoder", "Format"]

Format = Literal["auto", "flat", "debezium", "weighted"]

WEIGHT = "_weight"
PLACEHOLDER = b"__debezium_unavailable_value"  # in place of a large value that an update did not touch


class _Envelope(msgspec.Struct):
    """What a view needs of a change event; the rest is passed over without becoming objects."""

    op: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class _Wrapped(msgspec.Struct):
    payload: _Envelope | None = None


_rows = msgspec.json.Decoder(dict[str, Any])
_envelopes = msgspec.json.Decoder(_Envelope)
_wrapped = msgspec.json.Decoder(_Wrapped)


@dataclass(slots=True)
class Decoded:
    """Changes in order: `rows[i]` is what `keys[i]` is now, None when it is gone, by the record `index[i]`."""

    keys: list[Key] = field(default_factory=list)
    rows: list[Row | None] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    raw: bool = False  # whether rows are what their records' values say, byte for byte
    lean: bool = False  # then `rows` may hold the columns of the key only: the values will do


@dataclass(slots=True)
class _Parsed:
    """For each record the row it leaves (or None) and the one before, where the changelog says it."""

    after: list[Row | None]
    before: list[Row | None] | None = None
    skip: set[int] = field(default_factory=set)  # records that concern no row
    fresh: set[int] = field(default_factory=set)  # records of rows that were not there before
    filtered: set[int] = field(default_factory=set)  # records with rows; those that are None after the mapping are out


class Decoder:
    """Decodes and maps the records of one view."""

    def __init__(self, view: str, form: Format, mapping: RowMapping, keys: KeyRule, *, texts: bool = False) -> None:
        """`texts`: rows as the JSON text that came will do, so they need not become objects."""
        self._view = view
        self._form: Format = form
        self._identity = mapping.identity
        self._map = mapping.compile(view)
        self._keys = keys
        self._texts = texts and mapping.identity and keys.given and all(map(str.isidentifier, keys.columns))
        self._lean = msgspec.json.Decoder(_key_columns(keys.columns)) if self._texts else None

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded:
        done = Decoded(raw=self._identity and self._form in ("auto", "flat"))
        if self._lean is not None and self._form == "flat" and self._decode_lean(keys, values, done):
            return done
        if len(keys):
            self._slice(keys, values, 0, len(keys), done)
        done.raw = done.raw and self._form == "flat" and not self._keys.completed
        return done

    def _decode_lean(self, keys: Sequence[bytes | None], values: Sequence[bytes | None], done: Decoded) -> bool:
        """The keys alone, where nothing is deleted and nothing is wrong; the texts are checked all the same."""
        assert self._lean is not None
        if None in values:
            return False
        try:
            found = self._keys.of_structs(_decode_all(values, self._lean))  # type: ignore[arg-type]
            if not self._keys.same(keys, found):
                return False
        except RecordRefused:
            return False
        done.keys, done.index, done.raw, done.lean = found, list(range(len(found))), True, True
        return True

    def _slice(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], start: int, end: int, done: Decoded
    ) -> None:
        try:
            changed = self._changes(keys[start:end], values[start:end])
        except RecordRefused as error:
            if end - start == 1:
                done.refused.append((start, str(error)))
                return
            middle = (start + end) // 2
            self._slice(keys, values, start, middle, done)
            self._slice(keys, values, middle, end, done)
            return
        done.keys += changed.keys
        done.rows += changed.rows
        done.index += changed.index if start == 0 else [start + i for i in changed.index]

    def _changes(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded:
        if self._form == "auto":
            self._recognise(values)
        parsed = self._parse(values)
        if parsed.before is None and None not in parsed.after:
            after = [row for row in parsed.after if row is not None]
            mapped: list[Row | None] = list(after) if self._identity else self._map(after)
            if None not in mapped:
                rows = [row for row in mapped if row is not None]
                found = self._keys.of_rows(keys, rows)
                self._require_same(keys, found)
                return Decoded(found, list(rows), list(range(len(rows))))
            parsed.after, parsed.filtered = mapped, set(range(len(mapped)))
        else:
            parsed.filtered = {i for i, row in enumerate(parsed.after) if row is not None}
            parsed.after = self._map_some(parsed.after)
            parsed.before = None if parsed.before is None else self._map_some(parsed.before)
        return self._one_by_one(keys, parsed)

    def _one_by_one(self, keys: Sequence[bytes | None], parsed: _Parsed) -> Decoded:
        """Deletions among the rows, or rows that may have had another key before."""
        done = Decoded()
        present = [i for i, row in enumerate(parsed.after) if row is not None and i not in parsed.skip]
        rows = [row for row in parsed.after if row is not None] if present else []
        if len(rows) != len(present):
            rows = [row for i in present if (row := parsed.after[i]) is not None]
        found = self._keys.of_rows([keys[i] for i in present], rows)
        key_at = dict(zip(present, found, strict=True))
        for i, row in enumerate(parsed.after):
            if i in parsed.skip:
                continue
            old = None if parsed.before is None else parsed.before[i]
            if row is None and i in parsed.filtered and keys[i] is None and old is None:
                continue  # a row without a key of its own that the filter leaves out was never there
            if row is None:
                self._add(done, self._keys.of_deleted(keys[i], old), None, i)
                continue
            key = key_at[i]
            if old is None and i not in parsed.fresh:
                self._require_same([keys[i]], [key])
            elif old is not None and self._keys.given and (was := self._keys.of_deleted(keys[i], old)) != key:
                self._add(done, was, None, i)
            self._add(done, key, row, i)
        return done

    def _add(self, done: Decoded, key: Key, row: Row | None, index: int) -> None:
        done.keys.append(key)
        done.rows.append(row)
        done.index.append(index)

    def _require_same(self, record_keys: Sequence[bytes | None], keys: Sequence[Key]) -> None:
        if not self._keys.same(record_keys, keys):
            raise RecordRefused(
                f"view {self._view} is keyed by {', '.join(self._keys.columns)}, its topic by something else, and the "
                "record does not say what the row was before: that needs Debezium's `before` (REPLICA IDENTITY FULL), "
                "weighted rows, or a topic with the view's key"
            )

    def _map_some(self, rows: Sequence[Row | None]) -> list[Row | None]:
        if self._identity:
            return list(rows)
        present = [i for i, row in enumerate(rows) if row is not None]
        answers = self._map([row for row in rows if row is not None])
        mapped: list[Row | None] = [None] * len(rows)
        for i, row in zip(present, answers, strict=True):
            mapped[i] = row
        return mapped

    def _recognise(self, values: Sequence[bytes | None]) -> None:
        first = next((value for value in values if value is not None), None)
        if first is None:
            return
        row = _decode_each([first], _rows)[0]
        envelope = row.get("payload") if "schema" in row and isinstance(row.get("payload"), dict) else row
        if envelope is not None and "op" in envelope and "after" in envelope:
            self._form = "debezium"
        else:
            self._form = "weighted" if WEIGHT in row else "flat"

    def _parse(self, values: Sequence[bytes | None]) -> _Parsed:
        present = [i for i, value in enumerate(values) if value is not None]
        texts = [value for value in values if value is not None]
        if self._form == "debezium":
            return self._parse_envelopes(len(values), present, texts)
        rows = _decode_all(texts, _rows)
        if self._form == "weighted":
            return _parse_weighted(len(values), present, rows)
        if len(rows) == len(values):
            return _Parsed(list(rows))
        after: list[Row | None] = [None] * len(values)
        for i, row in zip(present, rows, strict=True):
            after[i] = row
        return _Parsed(after)

    def _parse_envelopes(self, count: int, present: Sequence[int], texts: Sequence[bytes]) -> _Parsed:
        parsed = _Parsed([None] * count, [None] * count)
        assert parsed.before is not None
        for i, text, envelope in zip(present, texts, _decode_envelopes(texts), strict=True):
            if PLACEHOLDER in text and envelope.after is not None:
                _refuse_placeholders(envelope.after)
            match envelope.op:
                case "c" | "r" | "u":
                    if envelope.after is None:
                        raise RecordRefused(f"the envelope's op is {envelope.op!r}, but it has no `after`")
                    parsed.after[i], parsed.before[i] = envelope.after, envelope.before
                    if envelope.op != "u":
                        parsed.fresh.add(i)
                case "d":
                    parsed.before[i] = envelope.before
                case "m":
                    parsed.skip.add(i)
                case "t":
                    raise RecordRefused(
                        "the table was truncated, which a view cannot follow row by row: rebuild the view (or let the "
                        "capture leave truncates out and delete the rows)"
                    )
                case other:
                    raise RecordRefused(f"not a change event: its op is {other!r}")
        return parsed


def _key_columns(names: Sequence[str]) -> Any:
    """Objects of the columns of the key: the rest of a row is checked and passed over."""
    return msgspec.defstruct("KeyColumns", [(name, str | int | float | bool) for name in names], rename=None)


def _parse_weighted(count: int, present: Sequence[int], rows: Sequence[Row]) -> _Parsed:
    parsed = _Parsed([None] * count, [None] * count)
    assert parsed.before is not None
    for i, row in zip(present, rows, strict=True):
        weight = row.pop(WEIGHT, 1)
        if weight == 1:
            parsed.after[i] = row
            parsed.fresh.add(i)  # had it another key before, that was taken away by a row of weight -1
        elif weight == -1:
            parsed.before[i] = row
        else:
            raise RecordRefused(f"{WEIGHT} is {weight!r}, but a keyed view has each row once: 1 or -1")
    return parsed


def _refuse_placeholders(row: Row) -> None:
    missing = [name for name, value in row.items() if value == PLACEHOLDER.decode()]
    if missing:
        raise RecordRefused(
            f"the change does not carry the value of {', '.join(missing)}: capture it with unavailable='reselect', or "
            "set REPLICA IDENTITY FULL"
        )


def _decode_all(texts: Sequence[bytes], decoder: msgspec.json.Decoder[Any]) -> list[Any]:
    """Every text; whole at once where no text has a line break, so that every line is exactly one of them."""
    lines = b"\n".join(texts)
    if lines.count(b"\n") == max(len(texts) - 1, 0):
        try:
            found = decoder.decode_lines(lines)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RecordRefused(f"the value is not what this view reads: {error}") from error
        if len(found) == len(texts):
            return found
    return _decode_each(texts, decoder)


def _decode_each(texts: Sequence[bytes], decoder: msgspec.json.Decoder[Any]) -> list[Any]:
    try:
        return [decoder.decode(text) for text in texts]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordRefused(f"the value is not what this view reads: {error}") from error


def _decode_envelopes(texts: Sequence[bytes]) -> list[_Envelope]:
    if texts and b'"payload"' in texts[0] and _decode_each(texts[:1], _wrapped)[0].payload is not None:
        return [each.payload or _Envelope() for each in _decode_all(texts, _wrapped)]
    return list(_decode_all(texts, _envelopes))
