"""The life of a view: create, rebuild beside the old version, swap, drop, and how it is doing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from headwater.client import Connection
from headwater.clock import SystemClock
from headwater.positions import Position
from headwater.views import life
from headwater.views.definition import Definition
from headwater.views.errors import BadView, StoreUnavailable
from headwater.views.follower import Follower
from headwater.views.stores import Catalog, Store, Version
from headwater.views.tail import ends_of

__all__ = ["Progress", "VersionStatus", "create", "definition_of", "drop", "rebuild", "status", "swap"]

PROGRESS_INTERVAL_S = 0.2  # between two reports of a rebuild
CATCH_UP_WAIT_S = 0.01  # between two looks whether the new version has passed the old one


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rebuild is: records applied of those the topics held when it began."""

    version: int
    applied: int
    total: int
    rate: float
    seconds: float

    @property
    def percent(self) -> float:
        return 100.0 if self.total <= self.applied else round(100 * self.applied / self.total, 1)

    @property
    def seconds_left(self) -> float | None:
        return round(max(self.total - self.applied, 0) / self.rate, 1) if self.rate else None


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """One version of a view, as of now."""

    view: str
    version: int
    active: bool
    state: str
    store: str
    position: dict[str, dict[str, int]]
    token: str
    lag_records: int | None  # None while the log does not answer
    lag_s: float | None
    rows: int
    applied: int
    refused: int
    rate: float
    error: str
    updated_ms: int
    outdated: bool  # whether the declaration has changed since: a rebuild would make another version


def create(definition: Definition) -> Catalog:
    """The first version of a view; nothing changes when it is there already with the same definition."""
    store = definition.open_store()
    try:

        def first(catalog: Catalog) -> Catalog:
            active = catalog.versions.get(catalog.active)
            if active is not None and active.digest == definition.digest():
                return catalog
            if active is not None:
                raise BadView(
                    f"view {definition.name} exists with another definition (version {catalog.active}); "
                    f"to change it: headwater view rebuild {definition.name}"
                )
            return life.add_version(catalog, definition.digest(), SystemClock().now_ms(), definition.to_flat())

        return store.change_catalog(first)
    finally:
        store.close()


def rebuild(
    definition: Definition,
    connection: Connection,
    *,
    swap_when_ready: bool = True,
    keep_old: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Catalog:
    """Build a new version from the topics' beginning, beside the one that is read; swap when it has caught up.

    One that was cut short goes on where it was. Without `swap_when_ready` both versions are there and are followed,
    and `swap` changes readers over whenever it is wanted.
    """
    store = definition.open_store()
    try:
        number = _begin(definition, store)
        with Follower(definition, connection, store, number) as follower:
            _catch_up(definition, connection, store, follower, progress)
            if not swap_when_ready:
                return store.change_catalog(lambda catalog: life.ready(catalog, number))
            old = store.catalog().active
            catalog = store.change_catalog(lambda found: life.activate(found, number))
            if old and old != number and not keep_old:
                catalog = _forget(store, old)
        return catalog
    finally:
        store.close()


def swap(definition: Definition, version: int | None = None) -> Catalog:
    """Readers get another version from now on: the one given, or the newest that is ready."""
    store = definition.open_store()
    try:

        def change(catalog: Catalog) -> Catalog:
            others = [v.number for v in catalog.versions.values() if v.state == "ready" and v.number != catalog.active]
            if version is None and not others:
                raise BadView(f"view {definition.name} has no other version that is ready: rebuild it first")
            number = max(others) if version is None else version
            found = catalog.versions.get(number)
            if found is not None and found.state == "building":
                raise BadView(f"version {number} of view {definition.name} is still being built")
            return life.activate(catalog, number)

        return store.change_catalog(change)
    finally:
        store.close()


def drop(definition: Definition, version: int | None = None) -> None:
    """Remove one version that is not read, or the whole view."""
    store = definition.open_store()
    try:
        if version is not None:
            _forget(store, version)
            return
        catalog = store.catalog()
        others = [number for number in catalog.versions if number != catalog.active]
        for number in [*others, *([catalog.active] if catalog.active else [])]:
            _forget(store, number)
    finally:
        store.close()


def status(definition: Definition, connection: Connection) -> list[VersionStatus]:
    """Every version of a view."""
    store = definition.open_store()
    try:
        catalog = store.catalog()
        return [_status_of(definition, connection, store, catalog, v) for v in catalog.versions.values()]
    finally:
        store.close()


def definition_of(declared: Definition, version: Version) -> Definition:
    """What a version follows: the declaration if it is still the same, else what the catalog kept of its own."""
    if version.digest == declared.digest() or not version.definition:
        return declared
    return Definition.of(declared.name, **{**version.definition, "store": declared.store})


def _begin(definition: Definition, store: Store) -> int:
    digest = definition.digest()

    def change(catalog: Catalog) -> Catalog:
        if not catalog.versions:
            raise BadView(f"view {definition.name} does not exist: headwater view create {definition.name}")
        if life.building(catalog, digest) is not None:
            return catalog
        return life.add_version(catalog, digest, SystemClock().now_ms(), definition.to_flat())

    number = life.building(store.change_catalog(change), digest)
    assert number is not None  # the change made sure of it
    return number


def _catch_up(
    definition: Definition,
    connection: Connection,
    store: Store,
    follower: Follower,
    progress: Callable[[Progress], None],
) -> None:
    """Until the new version has all the topics held at the start, and is where the one that is read is."""
    ends, started = ends_of(connection, definition.topics), time.monotonic()
    total = sum(ends.offsets.values())

    def report() -> None:
        at, seconds = follower.bookmark, time.monotonic() - started
        done = sum(offset for where, offset in at.position.offsets.items() if where in ends.offsets)
        rate = round(done / seconds, 1) if seconds > 0 else 0.0
        progress(Progress(follower.version, min(done, total), total, rate, round(seconds, 1)))

    while not follower.wait_until(ends, PROGRESS_INTERVAL_S):
        _check(follower)
        report()
    reader = store.reader()
    try:
        while not follower.wait_until(reader.bookmark().position.restrict(definition.topics), CATCH_UP_WAIT_S):
            _check(follower)
    finally:
        reader.close()
    report()


def _check(follower: Follower) -> None:
    if follower.state in ("failed", "fenced") and follower.error is not None:
        raise follower.error


def _forget(store: Store, number: int) -> Catalog:
    catalog = store.change_catalog(lambda found: life.forget(found, number))
    store.drop(number)
    return catalog


def _status_of(
    definition: Definition, connection: Connection, store: Store, catalog: Catalog, version: Version
) -> VersionStatus:
    reader = store.reader(version.number)
    try:
        with reader.snapshot() as snapshot:
            at, rows = snapshot.bookmark, snapshot.count()
    finally:
        reader.close()
    lag = _lag(connection, definition_of(definition, version), at.position)
    behind_s = None if lag is None else 0.0 if lag == 0 else _age_s(at.record_time_ms)
    return VersionStatus(
        view=definition.name,
        version=version.number,
        active=version.number == catalog.active,
        state=version.state,
        store=definition.store,
        position=at.position.as_topics(),
        token=at.position.token(),
        lag_records=lag,
        lag_s=behind_s,
        rows=rows,
        applied=at.applied,
        refused=at.refused,
        rate=at.rate,
        error=at.error,
        updated_ms=at.commit_time_ms,
        outdated=version.digest != definition.digest(),
    )


def _age_s(time_ms: int) -> float | None:
    return round((SystemClock().now_ms() - time_ms) / 1_000, 3) if time_ms else None


def _lag(connection: Connection, definition: Definition, position: Position) -> int | None:
    try:
        ends = ends_of(connection, definition.topics)
    except StoreUnavailable:
        return None
    return sum(max(end - position.offsets.get((t, p), 0), 0) for t, p, end in ends)
