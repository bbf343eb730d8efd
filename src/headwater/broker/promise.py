"""A value that comes later, for handlers whose answer has to wait (durability, a rebalance, new data).

`Promise` is settled once, by the loop's thread, with a value or an error. Whoever waits either registers a callback
(`then`, cheapest) or awaits it inside an `async def` that `spawn` drives. There is no asyncio underneath: callbacks run
at once, in the order of registration, on the loop's thread; other threads settle a promise only by way of
`Loop.call_soon_threadsafe`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

from headwater.errors import InvariantViolated

__all__ = ["Promise", "gather", "settled", "spawn"]

T = TypeVar("T")

_PENDING = object()


class Promise(Generic[T]):
    """Settled once with `resolve` or `fail`; awaitable; `then` callbacks get the promise itself."""

    __slots__ = ("_callbacks", "_error", "_value")

    def __init__(self) -> None:
        self._value: object = _PENDING
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Promise[T]], None]] | None = None

    @property
    def done(self) -> bool:
        return self._value is not _PENDING or self._error is not None

    @property
    def error(self) -> Exception | None:
        """Why it failed; None if it has not."""
        return self._error

    def resolve(self, value: T) -> None:
        """Settle with a value and run the callbacks; a second settling is an error of ours."""
        self._settle(value, None)

    def fail(self, error: Exception) -> None:
        """Settle with an error, which `result()` and `await` raise."""
        self._settle(_PENDING, error)

    def result(self) -> T:
        """The value, or the error raised; only once it is done."""
        if self._error is not None:
            raise self._error
        if self._value is _PENDING:
            raise InvariantViolated("a promise was read before it was settled")
        return cast("T", self._value)

    def then(self, callback: Callable[[Promise[T]], None]) -> None:
        """Call back when it is done: now, if it already is."""
        if self.done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def _settle(self, value: object, error: Exception | None) -> None:
        if self.done:
            raise InvariantViolated("a promise was settled twice")
        self._value, self._error = value, error
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(self)

    def __await__(self) -> Generator[Promise[T], None, T]:
        if not self.done:
            yield self
        return self.result()


def settled(value: T) -> Promise[T]:
    """A promise that is already kept."""
    promise: Promise[T] = Promise()
    promise.resolve(value)
    return promise


def spawn(coroutine: Coroutine[Any, Any, T]) -> Promise[T]:
    """Run an `async def` that awaits promises only; its first step runs at once."""
    promise: Promise[T] = Promise()

    def step(_: Promise[Any] | None = None) -> None:
        try:
            waited = coroutine.send(None)
        except StopIteration as stop:
            promise.resolve(stop.value)
        except Exception as error:
            promise.fail(error)
        else:
            waited.then(step)

    step()
    return promise


def gather(promises: list[Promise[T]]) -> Promise[list[T]]:
    """All values in order, once all are there; the first error as soon as it happens."""
    everything: Promise[list[T]] = Promise()
    remaining = len(promises)
    if not remaining:
        everything.resolve([])

    def one_done(promise: Promise[T]) -> None:
        nonlocal remaining
        remaining -= 1
        if everything.done:
            return
        try:
            promise.result()
        except Exception as error:
            everything.fail(error)
            return
        if not remaining:
            everything.resolve([p.result() for p in promises])

    for promise in promises:
        promise.then(one_done)
    return everything
