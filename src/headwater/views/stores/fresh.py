"""Keys that cannot be in a store yet: while a version is built from nothing, a row need not be looked for first."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.views.rows import Key

__all__ = ["FreshKeys"]

KEYS_MAX = 2_000_000  # remembered, by their hashes: some 150 MB; a version with more is written as any other from there


class FreshKeys:
    """What a writer has written since the version was empty; a key it may be wrong about counts as known."""

    def __init__(self, *, empty: bool) -> None:
        self._seen: set[int] | None = set() if empty else None

    def all_new(self, keys: Sequence[Key]) -> bool:
        """Whether none of these can be in the store."""
        return self._seen is not None and self._seen.isdisjoint(map(hash, keys))

    def is_new(self, keys: Sequence[Key]) -> list[bool]:
        seen = self._seen
        return [False] * len(keys) if seen is None else [hash(key) not in seen for key in keys]

    def add(self, keys: Sequence[Key]) -> None:
        """These are written now, or may be: what is taken back again stays known."""
        if self._seen is not None:
            self._seen.update(map(hash, keys))
            if len(self._seen) > KEYS_MAX:
                self._seen = None

    def forget(self) -> None:
        """Somebody else may have written."""
        self._seen = None
