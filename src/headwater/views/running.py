"""Following views in the foreground: every ready version of every view it is given, until stopped.

It looks at the catalogs again and again: a version that a rebuild has made ready is followed from then on, one that
was dropped no longer. A view that has failed for good (see `follower`) stays as it is and is reported; the others go
on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headwater.client import Connection
from headwater.errors import HeadwaterError
from headwater.views.definition import Definition
from headwater.views.errors import StoreUnavailable
from headwater.views.follower import Follower
from headwater.views.manage import definition_of
from headwater.views.stores import Store

__all__ = ["Running", "ViewsRunner"]

CATALOG_INTERVAL_S = 0.2  # between two looks at the catalogs

_log = logging.getLogger("headwater.views")


@dataclass(frozen=True, slots=True)
class Running:
    """One follower, as the runner sees it."""

    view: str
    version: int
    state: str
    error: str


class ViewsRunner:
    """Use it as a context manager, or `run()`."""

    def __init__(self, definitions: Iterable[Definition], connection: Connection) -> None:
        self._definitions = {definition.name: definition for definition in definitions}
        self._connection = connection
        self._stores: dict[str, Store] = {}
        self._followers: dict[tuple[str, int], Follower] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Until `stop`."""
        try:
            while not self._stopping.is_set():
                for definition in self._definitions.values():
                    try:
                        self._look(definition)
                    except StoreUnavailable as error:
                        _log.warning("view %s: %s", definition.name, error)
                self._stopping.wait(CATALOG_INTERVAL_S)
        finally:
            for follower in self._followers.values():
                follower.request_stop()
            for follower in self._followers.values():
                follower.stop()
            for store in self._stores.values():
                store.close()

    def request_stop(self) -> None:
        """Have it end, without waiting for it; for signal handlers."""
        self._stopping.set()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def running(self) -> list[Running]:
        """Every follower; the order is that of the views."""
        return [
            Running(view, version, follower.state, "" if follower.error is None else str(follower.error))
            for (view, version), follower in list(self._followers.items())
        ]

    def reports(self) -> dict[str, dict[str, Any]]:
        """What every follower says of itself, for `headwater.status`; a second version of a view is `name.2`."""
        return {_called(view, version): _report(one) for (view, version), one in list(self._followers.items())}

    def __enter__(self) -> ViewsRunner:
        self._thread = threading.Thread(target=self.run, name="views", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _look(self, definition: Definition) -> None:
        """Start and stop followers as the view's catalog says."""
        store = self._stores.get(definition.name)
        if store is None:
            store = self._stores[definition.name] = definition.open_store()
        versions = {v.number: v for v in store.catalog().versions.values() if v.state == "ready"}
        for number, version in versions.items():
            place = (definition.name, number)
            if place not in self._followers:
                try:
                    follows = definition_of(definition, version)
                except HeadwaterError as error:  # a function that is no longer there, for example
                    _log.error("view %s version %d cannot be followed: %s", definition.name, number, error)
                    continue
                self._followers[place] = Follower(follows, self._connection, store, number).start()
        for place, follower in list(self._followers.items()):
            if place[0] == definition.name and place[1] not in versions:
                follower.stop()
                del self._followers[place]


def _called(view: str, version: int) -> str:
    return view if version == 1 else f"{view}.{version}"


def _report(follower: Follower) -> dict[str, Any]:
    at = follower.bookmark
    return {
        "state": "failed" if follower.state == "failed" else "running",
        "doing": follower.state,
        "store": follower.definition.store.split(":", 1)[0],
        "version": follower.version,
        "position": at.position.as_topics(),
        "applied": at.applied,
        "refused": at.refused,
        "rate": round(at.rate, 1),
        "record_time_ms": at.record_time_ms,
        "error": str(follower.error) if follower.error is not None else at.error or None,
    }
