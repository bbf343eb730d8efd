"""One batch of records into a store: decode, set aside what is refused, keep the last of each key, write, commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from confluent_kafka import Message

from headwater.views.bookmark import Bookmark
from headwater.views.decoding import Decoded, Decoder
from headwater.views.errors import RecordRefused
from headwater.views.rows import Batch
from headwater.views.stores import Wants, Writer

__all__ = ["Refusal", "Work", "apply", "keys_of", "prepare"]

T = TypeVar("T")

_log = logging.getLogger("headwater.views")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record that is set aside, and why."""

    message: Message
    reason: str


@dataclass(slots=True)
class Work:
    """A batch ready for the store."""

    upserts: Batch
    deletes: Batch
    index: list[int]  # of the record that made each upsert
    refused: list[tuple[int, str]] = field(default_factory=list)


def prepare(
    decoder: Decoder, columns: Callable[[], tuple[str, ...]], messages: Sequence[Message], wants: Wants
) -> Work:
    """Decode records and fold them; `columns`: the key's, known once they are decoded."""
    values = [message.value() for message in messages]
    decoded = decoder.decode(keys_of(messages), values)
    size = len(decoded.keys)
    last = dict(zip(decoded.keys, range(size), strict=True))
    kept: Sequence[int] = range(size) if wants.history or len(last) == size else list(last.values())
    if decoded.lean:
        present, gone = kept, []
    else:
        present = [i for i in kept if decoded.rows[i] is not None] if None in decoded.rows else kept
        gone = [i for i in kept if decoded.rows[i] is None] if len(present) < len(kept) else []
    name = columns()
    return Work(
        _batch(name, decoded, present, messages, wants, values=values if decoded.raw else None),
        _batch(name, decoded, gone, messages, wants),
        _chosen(decoded.index, present),
        decoded.refused,
    )


def keys_of(messages: Sequence[Message]) -> list[bytes | None]:
    """The records' keys as bytes, whatever the client made of them."""
    keys = [message.key() for message in messages]
    return [key.encode() if isinstance(key, str) else key for key in keys]


def _batch(
    columns: tuple[str, ...],
    decoded: Decoded,
    chosen: Sequence[int],
    messages: Sequence[Message],
    wants: Wants,
    *,
    values: Sequence[str | bytes | None] | None = None,
) -> Batch:
    records = _chosen(decoded.index, chosen)
    rows = [] if decoded.lean else _chosen(decoded.rows, chosen)
    return Batch(
        columns,
        _chosen(decoded.keys, chosen),
        [row for row in rows if row is not None] if None in rows else rows,  # type: ignore[arg-type]
        [messages[i].offset() or 0 for i in records] if wants.offsets else [],
        None if values is None else _chosen(values, records),  # type: ignore[arg-type]
        [messages[i].timestamp()[1] for i in records] if wants.history else None,
    )


def _chosen(items: Sequence[T], places: Sequence[int]) -> list[T]:
    """The items at these places; all of them without looking at each where that is what the places say."""
    if isinstance(places, range) or (len(places) == len(items) and places[-1:] == [len(items) - 1]):
        return list(items)
    return [items[i] for i in places]


def apply(writer: Writer, work: Work, bookmark: Callable[[int], Bookmark], refuse: Callable[[int, str], None]) -> None:
    """Write and commit; rows that the store refuses are found, handed to `refuse`, and left out.

    `bookmark` is given the number of records refused by the store.
    """
    upserts, refused = work.upserts, 0
    writer.begin()
    try:
        writer.delete(work.deletes)
        writer.upsert(upserts)
    except RecordRefused as error:
        writer.abort()
        bad = _refused(writer, upserts, 0, str(error))
        for i, reason in bad:
            refuse(work.index[i], reason)
        refused = len(bad)
        writer.begin()
        writer.delete(work.deletes)
        writer.upsert(_without(upserts, {i for i, _ in bad}))
    except BaseException:
        _abort(writer)
        raise
    writer.commit(bookmark(refused))


def _refused(writer: Writer, batch: Batch, start: int, reason: str) -> list[tuple[int, str]]:
    """The rows to blame, by writing halves of the batch and taking them back."""
    if len(batch) == 1:
        return [(start, reason)]
    middle = len(batch) // 2
    found: list[tuple[int, str]] = []
    for part, at in ((batch.part(0, middle), start), (batch.part(middle, len(batch)), start + middle)):
        writer.begin()
        try:
            writer.upsert(part)
            writer.abort()
        except RecordRefused as error:
            writer.abort()
            found += _refused(writer, part, at, str(error))
    return found


def _without(batch: Batch, bad: set[int]) -> Batch:
    kept = [i for i in range(len(batch)) if i not in bad]
    return Batch(
        batch.columns,
        [batch.keys[i] for i in kept],
        [batch.rows[i] for i in kept] if batch.rows else [],
        [batch.offsets[i] for i in kept] if batch.offsets else [],
        None if batch.raws is None else [batch.raws[i] for i in kept],
        None if batch.times_ms is None else [batch.times_ms[i] for i in kept],
    )


def _abort(writer: Writer) -> None:
    try:
        writer.abort()
    except Exception as error:
        _log.debug("abort after a failure: %s", error)
