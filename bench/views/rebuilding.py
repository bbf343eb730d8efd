"""A view rebuilt beside itself while readers read."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

from headwater.client import Connection
from headwater.views import Definition, View, ViewsRunner, create
from headwater.views.manage import rebuild
from headwater.views.mapping import RowMapping
from headwater.views.tail import ends_of

__all__ = ["Rebuilt", "measure_rebuild"]

READ_KEYS = ("user-00000000", "user-00000001", "user-00000002")
BUILD_DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What readers met: answers that were neither all old nor all new, and the longest time to one."""

    mixtures: int
    longest_read_ms: float
    reads: int


def measure_rebuild(log: Connection, definition: Definition, count: int) -> Rebuilt:
    old = replace(definition, mapping=RowMapping(compute={"of": "'old'"}))
    new = replace(definition, mapping=RowMapping(compute={"of": "'new'"}))
    create(old)
    mixtures, longest, reads, stopping = 0, 0.0, 0, threading.Event()
    with ViewsRunner([old], log), View(old, log) as view:
        view.wait_until(ends_of(log, definition.topics), BUILD_DEADLINE_S)

        def read() -> None:
            nonlocal mixtures, longest, reads
            while not stopping.is_set():
                started = time.perf_counter()
                with view.read() as answer:
                    rows = [answer.get(key) for key in READ_KEYS]
                    whole = reads % 50 or answer.count() == count
                longest = max(longest, time.perf_counter() - started) if reads % 50 else longest
                kinds = {None if row is None else row["of"] for row in rows}
                mixtures += not whole or kinds not in ({"old"}, {"new"})
                reads += 1
                stopping.wait(0.001)

        reader = threading.Thread(target=read)
        reader.start()
        rebuild(new, log)
        time.sleep(0.5)  # some reads of the new version
        stopping.set()
        reader.join()
        with view.read() as answer:
            row = answer.get(READ_KEYS[0])
            mixtures += row is None or row["of"] != "new"
    return Rebuilt(mixtures, longest * 1_000, reads)
