"""Views as a cache in Redis or Valkey: `redis://HOST:PORT/DB`.

Version 3 of the view `users` has a key for each row, `users:3:<the key's text>`, whose value is the row's JSON; beside
them `headwater:users:catalog`, `headwater:users:3:epoch` and `headwater:users:3:bookmark`. Rows and bookmark change in
one MULTI, which Redis discards if epoch or bookmark changed since they were checked (WATCH). If the server loses its
newest writes in a crash, it loses the bookmark with them; the follower sees that it is not the one it left, reads it
again and writes what is missing.

A snapshot reads the bookmark first and rows later: a row may be newer than the snapshot's bookmark, never older.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import redis
from redis.exceptions import RedisError, WatchError

from headwater.views.bookmark import Bookmark
from headwater.views.errors import Fenced, StoreUnavailable
from headwater.views.pace import BATCH_RECORDS
from headwater.views.rows import Batch, Row, key_text, normalise_key
from headwater.views.stores import Catalog, Wants, check_options

__all__ = ["RedisSnapshot", "RedisStore", "open_store"]

SOCKET_TIMEOUT_S = 30.0  # for one command or MULTI
COMMAND_KEYS_MAX = 2_000  # of one MSET or DEL: longer ones block the server's other clients for milliseconds
SCAN_COUNT = 2_000
CATALOG_ATTEMPTS_MAX = 100  # when others change it at the same time

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


def open_store(address: str, view: str, options: dict[str, Any]) -> RedisStore:
    check_options(view, "redis", options, ())
    return RedisStore(address.replace("valkey:", "redis:", 1), view)


class RedisStore:
    """One view in one database, which may hold others."""

    commit_interval_ms = 0
    batch_records = BATCH_RECORDS

    def __init__(self, url: str, view: str) -> None:
        self._view = view
        self._client = redis.Redis.from_url(
            url, socket_timeout=SOCKET_TIMEOUT_S, socket_connect_timeout=SOCKET_TIMEOUT_S, retry=None, protocol=2
        )
        self._catalog_key = f"headwater:{view}:catalog"

    def catalog(self) -> Catalog:
        with _available():
            return Catalog.from_json(_bytes(self._client.get(self._catalog_key)))

    def change_catalog(self, change: Callable[[Catalog], Catalog]) -> Catalog:
        with _available(), self._client.pipeline() as pipe:
            for _ in range(CATALOG_ATTEMPTS_MAX):
                pipe.watch(self._catalog_key)  # type: ignore[no-untyped-call]
                new = change(Catalog.from_json(_bytes(pipe.get(self._catalog_key))))
                pipe.multi()
                pipe.set(self._catalog_key, new.to_json())
                try:
                    pipe.execute()
                    return new
                except WatchError:
                    continue
        raise StoreUnavailable(f"view {self._view}: its catalog is being changed by others all the time")

    def writer(self, version: int, epoch: int | None = None) -> RedisWriter:
        return RedisWriter(self._client, self._view, version, epoch)

    def reader(self, version: int | None = None) -> RedisReader:
        return RedisReader(self._client, self._view, version)

    def drop(self, version: int) -> None:
        with _available():
            for names in _scan(self._client, _prefix(self._view, version)):
                self._client.unlink(*names)
            self._client.delete(*_names(self._view, version))
            if not self.catalog().versions:
                self._client.delete(self._catalog_key)

    def close(self) -> None:
        self._client.close()


class RedisWriter:
    """Collects the commands of a batch and sends them as one MULTI."""

    wants = Wants(texts=True)

    def __init__(self, client: Any, view: str, version: int, epoch: int | None) -> None:
        self._view, self._version = view, version
        self._epoch_key, self._bookmark_key = _names(view, version)
        self._prefix = _prefix(view, version)
        self._pipe = client.pipeline(transaction=True)
        self._client = client
        with _available():
            self.epoch = self._claim(epoch)
            self._left = _bytes(client.get(self._bookmark_key))  # the bookmark as this writer knows it

    def _claim(self, epoch: int | None) -> int:
        if epoch is None:
            return int(self._client.incr(self._epoch_key))
        stored = int(self._client.get(self._epoch_key) or 0)
        if stored > epoch:
            raise self._fenced()
        if stored < epoch:  # the server has lost it in a crash: nobody newer has started since
            self._client.set(self._epoch_key, epoch)
        return epoch

    def bookmark(self) -> Bookmark:
        with _available():
            return Bookmark.from_json(self._left)

    def begin(self) -> None:
        with _available():
            self._pipe.reset()
            self._pipe.watch(self._epoch_key, self._bookmark_key)
            epoch, left = self._pipe.mget(self._epoch_key, self._bookmark_key)
            if int(epoch or 0) != self.epoch or _bytes(left) != self._left:
                self._pipe.reset()
                raise self._overtaken(int(epoch or 0))
            self._pipe.multi()

    def delete(self, batch: Batch) -> None:
        names = [self._prefix + key_text(key) for key in batch.keys]
        for start in range(0, len(names), COMMAND_KEYS_MAX):
            self._pipe.unlink(*names[start : start + COMMAND_KEYS_MAX])

    def upsert(self, batch: Batch) -> None:
        values = list(map(_encode, batch.rows)) if batch.raws is None else batch.raws
        prefix = self._prefix
        for start in range(0, len(batch), COMMAND_KEYS_MAX):
            end = start + COMMAND_KEYS_MAX
            names = [prefix + key_text(key) for key in batch.keys[start:end]]
            self._pipe.mset(dict(zip(names, values[start:end], strict=True)))

    def commit(self, bookmark: Bookmark) -> None:
        with _available():
            text = bookmark.to_json().encode()
            self._pipe.set(self._bookmark_key, text)
            try:
                self._pipe.execute()
            except WatchError as error:
                raise self._overtaken(int(self._client.get(self._epoch_key) or 0)) from error
            self._left = text

    def abort(self) -> None:
        with _available():
            self._pipe.reset()

    def close(self) -> None:
        try:
            self._pipe.reset()
        except (RedisError, OSError):  # the connection is gone, and what it watched with it
            self._pipe.connection = None

    def _overtaken(self, epoch: int) -> Fenced | StoreUnavailable:
        """By a newer follower, or by a crash of the server, which may have taken the newest writes back."""
        if epoch > self.epoch:
            return self._fenced()
        return StoreUnavailable(
            f"view {self._view}: Redis has lost writes, or its connection: reading the bookmark again"
        )

    def _fenced(self) -> Fenced:
        return Fenced(
            f"view {self._view}: a newer follower of version {self._version} has taken over, or it was dropped"
        )


class RedisReader:
    """Asks the server for each row."""

    poll_s = 0.002

    def __init__(self, client: Any, view: str, version: int | None) -> None:
        self._client, self._view, self._version = client, view, version

    def bookmark(self) -> Bookmark:
        return self._found()[1]

    @contextmanager
    def snapshot(self) -> Iterator[RedisSnapshot]:
        version, bookmark = self._found()
        yield RedisSnapshot(self._client, self._view, version, bookmark)

    def close(self) -> None:
        """The connections are the store's."""

    def _found(self) -> tuple[int, Bookmark]:
        with _available():
            version = self._version
            if version is None:
                version = Catalog.from_json(_bytes(self._client.get(f"headwater:{self._view}:catalog"))).active
            return version, Bookmark.from_json(_bytes(self._client.get(_names(self._view, version)[1])))


class RedisSnapshot:
    """One version; rows are as new as its bookmark, or newer."""

    def __init__(self, client: Any, view: str, version: int, bookmark: Bookmark) -> None:
        self.bookmark, self.version = bookmark, version
        self._client, self._prefix = client, _prefix(view, version)

    def get(self, key: object) -> Row | None:
        with _available():
            found = _bytes(self._client.get(self._prefix + key_text(normalise_key(key, self.bookmark.key))))
        return None if found is None else _decode(found)

    def scan(self) -> Iterator[Row]:
        with _available():
            for names in _scan(self._client, self._prefix):
                yield from (_decode(value) for value in self._client.mget(names) if value is not None)

    def count(self) -> int:
        with _available():
            return sum(map(len, _scan(self._client, self._prefix)))


def _scan(client: Any, prefix: str) -> Iterator[list[bytes]]:
    """The names that start with a prefix, each once, in pieces."""
    pattern = "".join(f"[{c}]" if c in "*?[]\\" else c for c in prefix) + "*"
    cursor, seen = 0, set[bytes]()
    while True:
        cursor, found = client.scan(cursor, match=pattern, count=SCAN_COUNT)
        new = [name for name in dict.fromkeys(found) if name not in seen]
        seen.update(new)
        if new:
            yield new
        if cursor == 0:
            return


def _names(view: str, version: int) -> tuple[str, str]:
    return f"headwater:{view}:{version}:epoch", f"headwater:{view}:{version}:bookmark"


def _prefix(view: str, version: int) -> str:
    return f"{view}:{version}:"


def _bytes(found: Any) -> bytes | None:
    return found if found is None else bytes(found)


@contextmanager
def _available() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as error:  # a connection lost while keys are watched is a WatchError too
        raise StoreUnavailable(f"Redis: {error}") from error
