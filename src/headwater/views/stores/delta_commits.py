"""What a commit of ours to a Delta table says beside its data: epoch, bookmark and the kinds of the columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from headwater.views.bookmark import Bookmark
from headwater.views.errors import StoreUnavailable
from headwater.views.stores.columns import Kind

__all__ = ["CommitMeta", "delta_available", "meta_of", "open_table"]

HISTORY_COMMITS = 50  # looked through for the newest bookmark before all of them are
_META = "headwater"
_TRANSACTION = "headwater"


@dataclass(frozen=True, slots=True)
class CommitMeta:
    """What a commit says beside its data."""

    epoch: int = 0
    bookmark: Bookmark = field(default_factory=Bookmark)
    kinds: Mapping[str, Kind] | None = None

    def properties(self) -> CommitProperties:
        text = json.dumps({"epoch": self.epoch, "bookmark": self.bookmark.to_json(), "kinds": dict(self.kinds or {})})
        applied = Transaction(_TRANSACTION, self.bookmark.applied)
        # no retries: a commit that would have to go onto another version must not be made unseen
        return CommitProperties({_META: text}, max_commit_retries=0, app_transactions=[applied])


def open_table(path: Path) -> DeltaTable | None:
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None


def meta_of(table: DeltaTable) -> CommitMeta:
    """What the newest commit of ours says."""
    for limit in (HISTORY_COMMITS, None):
        for commit in table.history(limit):
            if _META in commit:
                body = json.loads(commit[_META])
                return CommitMeta(body["epoch"], Bookmark.from_json(body["bookmark"]), body["kinds"])
    if table.transaction_version(_TRANSACTION) is not None:
        raise StoreUnavailable(
            f"{table.table_uri}: the commit that holds the view's position was removed from Delta's log; rebuild the "
            "view, and keep delta.logRetentionDuration longer than it may stand still"
        )
    return CommitMeta()


@contextmanager
def delta_available() -> Iterator[None]:
    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, OSError) as error:
        raise StoreUnavailable(f"Delta: {error}") from error
