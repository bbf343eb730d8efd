"""Python's cycle collector, held back while a batch is turned into rows.

A batch makes hundreds of thousands of dicts that all live until it is committed and contain no cycles. The collector,
which starts by the number of new objects, would look through all of them again and again: measured, a third of a
follower's time. It goes on when the batch is done.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_held_back"]

_lock = threading.Lock()
_holders = 0
_was_enabled = False


@contextmanager
def collector_held_back() -> Iterator[None]:
    """Also by several threads at once: the last one to leave lets it go on, if it was on before."""
    global _holders, _was_enabled  # noqa: PLW0603 - the collector is the process's
    with _lock:
        if _holders == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0 and _was_enabled:
                gc.enable()
