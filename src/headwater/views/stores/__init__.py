"""Where views live: what a store must do, and the stores by the first word of their address.

A `Store` holds every version of one view. Its *catalog* says which versions there are and which one readers get; it
changes atomically, together with whatever makes readers see another version. Of a version there is one `Writer` at a
time: opening one claims the next epoch, and what a writer of an older epoch commits is refused (`Fenced`). A writer's
`commit` stores rows and bookmark together, or not at all; a store that cannot do that refuses rows by offset instead,
so that applying a batch again changes nothing. A `Snapshot` is the rows as of one bookmark.

    sqlite:PATH   lmdb:PATH   tantivy:PATH   delta:PATH   postgresql://...   redis://...   opensearch:http://...
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, Protocol, cast

from headwater.errors import EnvironmentFailed
from headwater.views.bookmark import Bookmark
from headwater.views.errors import BadView
from headwater.views.rows import Batch, Row

__all__ = ["STORES", "Catalog", "Reader", "Snapshot", "Store", "Version", "Wants", "Writer", "open_store"]

VersionState = Literal["building", "ready"]

# first word of the address -> module; imported when it is used, since each needs a package of its own
STORES = {
    "sqlite": "sqlite",
    "lmdb": "lmdb",
    "postgresql": "postgres",
    "redis": "redis",
    "tantivy": "tantivy",
    "delta": "delta",
    "opensearch": "opensearch",
}


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a view: `building` until a rebuild has caught up.

    It keeps following the definition it was made with, whatever the declaration says by now; `digest` tells them apart.
    """

    number: int
    state: VersionState
    digest: str
    created_ms: int
    definition: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The versions of a view and the one readers get (0: none yet)."""

    active: int = 0
    versions: Mapping[int, Version] = field(default_factory=dict)
    last: int = 0  # the highest number ever given: a version dropped never comes back as another

    def to_json(self) -> str:
        versions = [dataclasses.asdict(version) for version in self.versions.values()]
        return json.dumps({"active": self.active, "last": self.last, "versions": versions}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes | None) -> Catalog:
        if not text:
            return cls()
        body = json.loads(text)
        found = [Version(**version) for version in body["versions"]]
        return cls(body["active"], {version.number: version for version in found}, body["last"])


class Snapshot(Protocol):
    """The rows of one version as of one bookmark. Stores add what only they can: `query`, `search`."""

    @property
    def bookmark(self) -> Bookmark: ...

    @property
    def version(self) -> int: ...

    def get(self, key: object) -> Row | None:
        """The row of a key: a scalar, a sequence in the order of the key's columns, or a dict by column."""
        ...

    def scan(self) -> Iterator[Row]:
        """All rows, in no particular order."""
        ...

    def count(self) -> int: ...


class Reader(Protocol):
    """Reads the active version, whichever that is at each snapshot, or a given one."""

    poll_s: float  # how often it is worth asking whether the view has got further

    def snapshot(self) -> AbstractContextManager[Snapshot]: ...

    def bookmark(self) -> Bookmark:
        """How far the view has got, which is cheaper to ask than for a snapshot."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Wants:
    """What a writer needs to be told of each row beside its key."""

    history: bool = False  # every change of a key, with its time, not just the last of a batch
    offsets: bool = False  # of the records
    texts: bool = False  # rows as JSON text do where the mapping leaves them alone: `rows` may be empty then


class Writer(Protocol):
    """The only one who changes a version. Used by one thread; after an error it is thrown away."""

    epoch: int
    wants: Wants

    def bookmark(self) -> Bookmark: ...

    def begin(self) -> None: ...

    def delete(self, batch: Batch) -> None:
        """Take rows away; those that are not there are no error. Comes before `upsert`."""
        ...

    def upsert(self, batch: Batch) -> None:
        """Put rows in the place of those with the same keys. `RecordRefused`: one of them cannot be stored."""
        ...

    def commit(self, bookmark: Bookmark) -> None: ...

    def abort(self) -> None:
        """Forget what came since `begin`."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """The versions of one view."""

    commit_interval_ms: int  # between commits, unless the definition says otherwise; 0: as fast as changes come
    batch_records: int  # of one commit, at most, unless the definition says otherwise

    def catalog(self) -> Catalog: ...

    def change_catalog(self, change: Callable[[Catalog], Catalog]) -> Catalog:
        """Atomically; readers of the active version see another from then on if it changed. The new catalog."""
        ...

    def writer(self, version: int, epoch: int | None = None) -> Writer:
        """A new epoch, or an earlier one again unless a newer has started (`Fenced`)."""
        ...

    def reader(self, version: int | None = None) -> Reader: ...

    def drop(self, version: int) -> None:
        """Remove what is stored of a version that the catalog no longer has."""
        ...

    def close(self) -> None: ...


def open_store(address: str, view: str, options: Mapping[str, Any] | None = None) -> Store:
    """The store of a view at an address; `options` are the store's own (a search index's fields, for example)."""
    kind = address.partition(":")[0]
    kind = {"postgres": "postgresql", "rediss": "redis", "valkey": "redis"}.get(kind, kind)
    if kind not in STORES:
        raise BadView(f"view {view}: store {address!r} is none of {', '.join(f'{each}:' for each in STORES)}")
    try:
        module = import_module(f"headwater.views.stores.{STORES[kind]}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("headwater"):
            raise
        raise EnvironmentFailed(
            f"a {kind} view needs the package {error.name!r}; install it with: pip install 'headwater[views]'"
        ) from error
    return cast("Store", module.open_store(address, view, dict(options or {})))


def check_options(view: str, kind: str, options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse options that the store does not have."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise BadView(f"view {view}: {kind} has no option {unknown[0]!r}; it has {', '.join(known) or 'none'}")
