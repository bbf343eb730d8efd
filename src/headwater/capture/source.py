"""The small interface between a database and everything shared: exactly-once, topics, progress.

A source turns a database into batches. A batch holds records and the state that is true once they are in the log:
both are written in one Kafka transaction. State is a few JSON values under short keys (the position, each table's
snapshot progress, each table's schema version); a source starts from the state that was committed last and neither
skips nor repeats anything. The reader's thread calls `read` and `tick`; `confirm` comes from the writer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from headwater.capture.envelope import Record

__all__ = ["Batch", "Source", "State"]

State = Mapping[str, Any]


@dataclass(slots=True)
class Batch:
    """Records in order, and the state after the last of them."""

    records: list[Record] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)  # None removes a key
    confirm: int = 0  # what the source may forget once this is committed, in its own unit
    source_time_us: int = 0  # when the last change committed in the database; 0: unknown
    new_topics: list[tuple[str, bool]] = field(default_factory=list)  # (name, compacted) before the first record
    more: bool = False  # the next batch belongs into the same Kafka transaction


class Source(Protocol):
    """One database."""

    def open(self, state: State) -> None:
        """Connect and continue after `state` (empty: from the beginning)."""
        ...

    def read(self, timeout_s: float) -> Batch | None:
        """What has arrived, or None after `timeout_s` without anything."""
        ...

    def confirm(self, confirm: int) -> None:
        """The batch with this value is in the log for good."""
        ...

    def tick(self) -> None:
        """Called while the log is slow to take batches: keep the connection alive."""
        ...

    def away(self) -> None:
        """Called now and then while the log cannot be reached: raise if the database can wait no longer."""
        ...

    def close(self) -> None:
        """Let go of the database; `open` may follow."""
        ...

    def status(self) -> Mapping[str, Any]:
        """Lag, slot, snapshot progress: what `headwater capture status` shows."""
        ...
