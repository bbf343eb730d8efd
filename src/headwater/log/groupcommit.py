"""Durability shared: many appends, one fsync."""

from __future__ import annotations

from collections.abc import Callable

from headwater.filesystem import Filesystem
from headwater.log.partition import PartitionLog
from headwater.log.results import StorageFailed

__all__ = ["GroupCommit"]


class GroupCommit:
    """A few threads that sync what was appended. Its methods belong to the owner's (event-loop) thread."""

    def __init__(self, call_soon_threadsafe: Callable[..., object], filesystem: Filesystem) -> None: ...

    def request(self, log: PartitionLog, upto_offset: int, callback: Callable[[StorageFailed | None], object]) -> None:
        """Call back on the owner's thread once every offset below `upto_offset` is durable, or with why it is not.

        The callback runs at once, before this returns, when it already is, or when the topic relaxes flushing. The log's high
        watermark has moved before any callback runs. Errors make the log refuse writes until it has recovered.
        """
        ...

    def on_advance(self, listener: Callable[[PartitionLog], object]) -> None:
        """`listener(log)` after each advance of a high watermark, before the callbacks: to wake waiting fetches."""
        ...

    def close(self) -> None:
        """Finish what was requested, then stop the threads. Callbacks still pending run on the calling thread."""
        ...
