"""Producer ids: numbers that are given out once, ever.

They are reserved on disk in blocks, before the first of a block is used; what is left of a block when the broker stops
or dies is never used. The next block is reserved while the last is being used up, so that nobody waits for the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headwater.broker.promise import Promise
from headwater.errors import HeadwaterError

__all__ = ["BLOCK_SIZE", "ProducerIds"]

BLOCK_SIZE = 1000  # ids per reservation; 2**63 of them outlast any number of restarts
REFILL_BELOW = BLOCK_SIZE // 10  # ids left when the next block is asked for


class ProducerIds:
    """`reserve(count)` answers, once it is on disk, `count` ids that it never answered before."""

    def __init__(self, reserve: Callable[[int], Promise[range]]) -> None:
        self._reserve = reserve
        self._free: deque[int] = deque()
        self._waiting: deque[Promise[int]] = deque()  # bounded by the connections' requests in flight
        self._reserving = False

    def take(self) -> Promise[int]:
        """A producer id; fails as the reservation failed, and the next call tries again."""
        promise: Promise[int] = Promise()
        self._waiting.append(promise)
        self._serve()
        return promise

    def _serve(self) -> None:
        while self._free and self._waiting:
            self._waiting.popleft().resolve(self._free.popleft())
        if not self._reserving and (self._waiting or len(self._free) < REFILL_BELOW):
            self._refill()

    def _refill(self) -> None:
        self._reserving = True
        try:
            block = self._reserve(BLOCK_SIZE)
        except HeadwaterError as error:  # the disk refuses at once
            self._refused(error)
        else:
            block.then(self._reserved)

    def _reserved(self, block: Promise[range]) -> None:
        try:
            self._free.extend(block.result())
        except HeadwaterError as error:
            self._refused(error)
            return
        self._reserving = False
        self._serve()

    def _refused(self, error: HeadwaterError) -> None:
        self._reserving = False
        waiting, self._waiting = self._waiting, deque()
        for promise in waiting:
            promise.fail(error)
