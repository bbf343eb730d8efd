"""Durability shared: many appends, one sync.

A log with new bytes is queued once, however many appends wait for it. A free thread takes everything that is queued,
reads how far each log has been written, syncs, and reports back to the owner's thread, which moves the high watermarks
and calls whoever waits. While it syncs, the next appends collect: the slower the disk, the more share a sync.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from headwater.filesystem import Filesystem
from headwater.log.durability import SyncJob
from headwater.log.partition import PartitionLog
from headwater.log.results import StorageFailed

__all__ = ["SYNCFS_FROM_FILES", "GroupCommit"]

SYNC_THREADS = 2  # one syncs while the other collects; more only split what could have been shared
LOGS_PER_ROUND_MAX = 4096  # logs taken by one thread at once
SYNCFS_FROM_FILES = (
    8  # with more files than this in a round, one sync of the whole filesystem is cheaper than one for each
)

Callback = Callable[[StorageFailed | None], object]
Listener = Callable[[PartitionLog], object]
Work = Callable[[], object]

_logger = logging.getLogger("headwater.log")


class _Outcome(NamedTuple):
    log: PartitionLog
    job: SyncJob
    error: OSError | None


class GroupCommit:
    """A few threads that sync what was appended. Its methods belong to the owner's (event-loop) thread."""

    def __init__(self, call_soon_threadsafe: Callable[..., object], filesystem: Filesystem) -> None:
        self._call_soon_threadsafe = call_soon_threadsafe
        self._filesystem = filesystem
        self._queue: SimpleQueue[PartitionLog | Work | None] = SimpleQueue()
        self._queued: set[PartitionLog] = set()  # waiting for a thread to take them; added here, removed there
        self._waiting: dict[PartitionLog, deque[tuple[int, Callback]]] = {}
        self._listeners: list[Listener] = []
        self._finished: deque[Callable[[], object]] = deque()  # reports not yet handled by the owner
        self._threads = [
            threading.Thread(target=self._serve, name=f"headwater-sync-{number}", daemon=True)
            for number in range(SYNC_THREADS)
        ]
        self._apart: list[threading.Thread] = []
        for thread in self._threads:
            thread.start()

    def request(self, log: PartitionLog, upto_offset: int, callback: Callback) -> None:
        """Call back on the owner's thread once every offset below `upto_offset` is durable, or with why it is not.

        The callback runs at once, before this returns, when it already is, or when the topic relaxes flushing. The
        log's high watermark has moved before any callback runs. Errors make the log refuse writes until it has
        recovered.
        """
        if log.failure is not None:
            callback(log.failure)
        elif log.durability.offset >= upto_offset:
            callback(None)
        elif not log.settings.durable_acks:
            if log.log_end_offset - log.durability.offset >= log.settings.flush_messages:
                self.sync(log)
            self._notify(log)
            callback(None)
        else:
            waiting = self._waiting.get(log)
            if waiting is None:
                waiting = self._waiting[log] = deque()
            waiting.append((upto_offset, callback))
            self.sync(log)

    def sync(self, log: PartitionLog) -> None:
        """Make the log durable soon, with nobody waiting for it."""
        if log not in self._queued:
            self._queued.add(log)
            self._queue.put(log)

    def run(self, work: Callable[[], object], done: Callable[[OSError | None], object]) -> None:
        """Run `work`, which only touches the disk, on a sync thread; then `done` on the owner's thread."""

        def task() -> None:
            error = None
            try:
                work()
            except OSError as failed:
                error = failed
            self._report(lambda: done(error))

        self._queue.put(task)

    def run_apart(self, work: Callable[[], object], done: Callable[[Exception | None], object]) -> None:
        """The same for work that takes long, on a thread of its own; any error goes to `done`."""

        def task() -> None:
            error = None
            try:
                work()
            except Exception as failed:
                error = failed
            self._report(lambda: done(error))

        self._apart = [thread for thread in self._apart if thread.is_alive()]
        thread = threading.Thread(target=task, name="headwater-background", daemon=True)
        self._apart.append(thread)
        thread.start()

    def on_advance(self, listener: Listener) -> None:
        """`listener(log)` after each advance of a high watermark, before the callbacks: to wake waiting fetches."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Finish what was requested (who runs long work has told it to stop), then stop the threads.

        Callbacks still pending run on the calling thread.
        """
        for _ in self._threads:
            self._queue.put(None)
        for thread in (*self._threads, *self._apart):
            thread.join()
        self._handle_finished()

    # -- on the sync threads

    def _serve(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            if not isinstance(item, PartitionLog):
                item()
                continue
            logs, after = self._collect(item)
            outcomes = self._sync_all(logs)
            self._report(lambda outcomes=outcomes: self._completed(outcomes))  # type: ignore[misc]
            for work in after:
                if work is None:
                    return
                work()

    def _collect(self, first: PartitionLog) -> tuple[list[PartitionLog], list[Work | None]]:
        """What else is queued; the first thing that is not a log ends it and is done after."""
        logs, after = [first], []
        while len(logs) < LOGS_PER_ROUND_MAX:
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
            if isinstance(item, PartitionLog):
                logs.append(item)
            else:
                after.append(item)
                break
        self._queued.difference_update(logs)  # before their ends are read: a later append queues them again
        return logs, after

    def _sync_all(self, logs: list[PartitionLog]) -> list[_Outcome]:
        jobs = [(log, log.sync_job()) for log in logs]
        if sum(len(job.files) for _, job in jobs) > SYNCFS_FROM_FILES:
            try:
                self._filesystem.sync_filesystem(jobs[0][1].files[0].fd)
            except (OSError, IndexError):
                pass  # whose bytes failed is found out one by one
            else:
                return [_Outcome(log, job, None) for log, job in jobs]
        return [self._sync_one(log, job) for log, job in jobs]

    def _sync_one(self, log: PartitionLog, job: SyncJob) -> _Outcome:
        try:
            job.run(self._filesystem)
        except OSError as error:
            return _Outcome(log, job, error)
        return _Outcome(log, job, None)

    def _report(self, finished: Callable[[], object]) -> None:
        self._finished.append(finished)
        try:
            self._call_soon_threadsafe(self._handle_finished)
        except RuntimeError:  # the loop has closed; `close` handles what is left
            _logger.debug("a sync finished after the loop had closed")

    # -- on the owner's thread

    def _handle_finished(self) -> None:
        while self._finished:
            self._finished.popleft()()

    def _completed(self, outcomes: list[_Outcome]) -> None:
        for log, job, error in outcomes:
            if error is not None:
                self._give_up(log, log.fail(error))
            elif log.failure is not None:
                self._give_up(log, log.failure)
            elif log.synced(job):
                self._notify(log)
        for log, job, _ in outcomes:
            waiting = self._waiting.get(log)
            while waiting and waiting[0][0] <= job.upto:
                waiting.popleft()[1](None)
            if waiting is not None and not waiting:
                del self._waiting[log]

    def _give_up(self, log: PartitionLog, failure: StorageFailed) -> None:
        for _, callback in self._waiting.pop(log, ()):
            callback(failure)

    def _notify(self, log: PartitionLog) -> None:
        for listener in self._listeners:
            listener(log)
