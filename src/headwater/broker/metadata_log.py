"""`__cluster_metadata-0`: what the cluster knows, as a compacted log of keyed facts.

    key     JSON array: what the fact is about           ["topic", "orders"]
    value   JSON object: the whole of what holds now     {"id": "…", "partitions": 4, "born": 1, "configs": {…}}
            null: it holds no longer

    ["cluster"]                      {"starts": how many times the broker has started}
    ["topic", name]                  {"id", "partitions", "born", "internal", "configs"}, or {"deleted": id} until its
    files are gone ["configs", "broker", "" or n]   dynamic broker settings: of every broker, or of broker n
    ["configs", "group", group]      a group's settings ["quota", [[type, name], …]]     limits of a quota entity; a
    null name is the default entity ["scram", user]                  {mechanism: {"salt", "stored_key", "server_key",
    "iterations"}}, base64 ["producer-ids"]                 {"next": the first producer id not handed out yet}

A later fact of a key replaces the earlier one, so replay is one dictionary assignment a record and compaction bounds
it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headwater.errors import Corrupted
from headwater.wire.batches import Record, decode_records, encode_batch

if TYPE_CHECKING:
    from headwater.broker.partitions import Partition
    from headwater.broker.promise import Promise
    from headwater.log.results import Appended

__all__ = ["CLUSTER_METADATA", "Key", "MetadataLog"]

CLUSTER_METADATA = "__cluster_metadata"

Key = tuple[Any, ...]


class MetadataLog:
    """The facts that hold, in memory; each change is appended before it is made here."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._facts: dict[Key, Mapping[str, Any]] = {}
        for header, batch in partition.batches():
            if not header.control:
                self._replay(batch)

    def get(self, *key: Any) -> Mapping[str, Any] | None:
        return self._facts.get(key)

    def of_kind(self, kind: str) -> Iterator[tuple[Key, Mapping[str, Any]]]:
        """Every fact whose key starts with `kind`."""
        return ((key, value) for key, value in self._facts.items() if key[0] == kind)

    def put(self, facts: Mapping[Key, Mapping[str, Any] | None], now_ms: int) -> Promise[Appended]:
        """Append the facts as one batch, all or nothing. They hold at once; kept when they are on disk."""
        records = [
            Record(key=_encode(key), value=None if value is None else _encode(value), timestamp=now_ms)
            for key, value in facts.items()
        ]
        promise = self._partition.append_durably(encode_batch(records))
        if promise.done:
            promise.result()  # refused: nothing changes
        for key, value in facts.items():
            self._apply(key, value)
        return promise

    def _replay(self, batch: memoryview) -> None:
        for record in decode_records(batch):
            try:
                key = _frozen(json.loads(record.key or b""))
                value = None if record.value is None else json.loads(record.value)
            except ValueError as error:
                where = f"{CLUSTER_METADATA}-0"
                raise Corrupted(where, record.offset, f"record at this offset is not ours: {error}") from error
            self._apply(key, value)

    def _apply(self, key: Key, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self._facts.pop(key, None)
        else:
            self._facts[key] = value


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _frozen(value: Any) -> Any:
    """JSON arrays as tuples, so that keys can be looked up."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
