"""How a view's catalog changes: pure steps, which a store applies atomically."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwater.views.errors import BadView
from headwater.views.stores import Catalog, Version

__all__ = ["activate", "add_version", "building", "forget", "ready"]


def add_version(catalog: Catalog, digest: str, now_ms: int, definition: Mapping[str, Any] | None = None) -> Catalog:
    """One more version, still to be built; the first one is active at once, since there is nothing else to read."""
    number = catalog.last + 1
    first = not catalog.versions
    version = Version(number, "ready" if first else "building", digest, now_ms, definition or {})
    versions = {**catalog.versions, number: version}
    return Catalog(active=number if first else catalog.active, versions=versions, last=number)


def activate(catalog: Catalog, number: int) -> Catalog:
    """Readers get this version from now on."""
    found = catalog.versions.get(number)
    if found is None:
        raise BadView(f"there is no version {number}; there are {', '.join(map(str, catalog.versions)) or 'none'}")
    versions = {**catalog.versions, number: replace(found, state="ready")}
    return replace(catalog, active=number, versions=versions)


def ready(catalog: Catalog, number: int) -> Catalog:
    """This version is built; readers still get the one they had."""
    found = catalog.versions[number]
    return replace(catalog, versions={**catalog.versions, number: replace(found, state="ready")})


def forget(catalog: Catalog, number: int) -> Catalog:
    """Without this version; the active one only goes when it is the last."""
    if number == catalog.active and len(catalog.versions) > 1:
        raise BadView(f"version {number} is the one that readers get: swap to another before it is dropped")
    versions = {n: version for n, version in catalog.versions.items() if n != number}
    return replace(catalog, active=0 if number == catalog.active else catalog.active, versions=versions)


def building(catalog: Catalog, digest: str) -> int | None:
    """The version that a rebuild for this definition had begun, if any."""
    return next((v.number for v in catalog.versions.values() if v.state == "building" and v.digest == digest), None)
