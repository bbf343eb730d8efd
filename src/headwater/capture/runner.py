"""The capture itself: one thread reads the database, one writes the log; any failure starts over from what is stored.

Starting over is the only way errors are handled: the newest producer aborts whatever was in flight, the stored
position says what is in the log, the source goes on behind it. So a lost broker, a lost database and `kill -9` are the
same case.

The writer commits when nothing more is waiting (that is what keeps the latency low when little happens) or when a
transaction has grown to its bound (that is what makes many changes cheap).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException

from headwater.capture.errors import CaptureError, Fenced, GapDetected, LogUnavailable, SourceLost, WalLimitReached
from headwater.capture.heartbeats import Heartbeats
from headwater.capture.publisher import Publisher
from headwater.capture.settings import Settings
from headwater.capture.source import Batch, Source
from headwater.errors import EnvironmentFailed, HeadwaterError

__all__ = ["Runner"]

BATCHES_WAITING_MAX = 8  # between reader and writer: some 40,000 records
COMMIT_RECORDS_MAX = 50_000  # a Kafka transaction at most; more only delays readers
COMMIT_INTERVAL_S_MAX = 0.5
READ_TIMEOUT_S = 0.1  # how soon a stop is noticed
PUT_TIMEOUT_S = 0.5  # how often a source is kept alive while the log is slow
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 5.0
CLAIM_S = 1.0  # for a newer capture of the name to write itself down
STATUS_INTERVAL_S = 2.0  # how often `capture status` has something new to show

_log = logging.getLogger("headwater.capture")

_FINAL = (Fenced, GapDetected, WalLimitReached)


class Runner:
    """Runs one capture until it is stopped or fails for good."""

    def __init__(self, settings: Settings, make_source: Callable[[], Source]) -> None:
        self._settings = settings
        self._make_source = make_source  # one for all sessions: it may have learnt something about its database
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._made: Source | None = None
        self._publisher = Publisher(settings.connection, settings.name, partitions=settings.partitions)
        self._source: Source | None = None  # while it is open
        self.state: dict[str, Any] = {}  # what is in the log, as the source stored it
        self.events = 0  # records in the log since the start
        self.committed = 0  # the source's own unit: what it may forget

    def run(self) -> None:
        """Until `stop`, or an error that trying again cannot cure."""
        waited = RETRY_FIRST_S
        failing_since: float | None = None
        while not self._stopping.is_set():
            before = self.events
            try:
                self._session()
                return
            except _FINAL as error:
                if not isinstance(error, Fenced) or not self._publisher.still_owner():
                    raise
                self._stopping.wait(CLAIM_S)
            except (CaptureError, EnvironmentFailed, KafkaException) as error:
                now = time.monotonic()
                if self.events > before or failing_since is None:
                    failing_since, waited = now, RETRY_FIRST_S
                if now - failing_since > self._settings.retry_for_s:
                    raise
                self._ask_source()
                _log.warning("capture %s: %s; again in %.1f s", self._settings.name, error, waited)
                self._stopping.wait(waited)
                waited = min(waited * 2, RETRY_MAX_S)

    def _ask_source(self) -> None:
        """The database must not fill its disk while the log is away; that the database is away is known by now."""
        try:
            (self._made or self._make_source()).away()
        except SourceLost as error:
            _log.debug("capture %s: %s", self._settings.name, error)

    def start(self) -> None:
        """Run in a thread of its own; `check` raises what ended it."""
        self._thread = threading.Thread(target=self._guarded, name="headwater-capture", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish what is being written, and stop."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def status(self) -> dict[str, Any]:
        source = self._source
        return {"events": self.events, **(source.status() if source is not None else {})}

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._failure = error
            _log.error("capture %s has stopped: %s", self._settings.name, error)

    def _session(self) -> None:
        """From the stored position until something breaks or we are asked to stop."""
        publisher = self._publisher
        source = self._made = self._made or self._make_source()
        reader: _Reader | None = None
        try:
            self.state = publisher.open()
            source.open(self.state)
            self._source = source
            reader = _Reader(source, self._stopping)
            reader.start()
            self._write(reader, publisher, source)
        finally:
            self._source = None
            if reader is not None:
                reader.stop()
            source.close()
            publisher.close()

    def _write(self, reader: _Reader, publisher: Publisher, source: Source) -> None:
        heartbeats = Heartbeats(self._settings)
        status_at = 0.0
        while True:
            batch = reader.next(READ_TIMEOUT_S)
            if batch is None:
                if self._stopping.is_set():
                    return
                if (beat := heartbeats.due(time.monotonic())) is not None:
                    publisher.publish(beat)
                    publisher.commit()
                continue
            started, count = time.monotonic(), 0
            state: dict[str, Any] = {}
            while batch is not None:
                if started - status_at > STATUS_INTERVAL_S:
                    status_at = started
                    batch.state["status"] = _described(batch, source)
                publisher.publish(batch)
                count += len(batch.records)
                state.update(batch.state)
                last = batch
                full = count >= COMMIT_RECORDS_MAX or time.monotonic() - started > COMMIT_INTERVAL_S_MAX
                batch = reader.next_of_group() if batch.more else None if full else reader.waiting()
            if (beat := heartbeats.due(time.monotonic())) is not None:
                publisher.publish(beat)
            publisher.commit()
            self.state.update(state)
            self.events += count
            self.committed = last.confirm
            source.confirm(last.confirm)


def _described(batch: Batch, source: Source) -> dict[str, Any]:
    now_us = time.time_ns() // 1000
    lag = max(0.0, (now_us - batch.source_time_us) / 1e6) if batch.source_time_us and batch.records else 0.0
    return {"time_ms": now_us // 1000, "lag_s": round(lag, 3), **source.status()}


class _Reader:
    """The thread that reads the source, one bounded queue ahead of the writer."""

    def __init__(self, source: Source, stopping: threading.Event) -> None:
        self._source = source
        self._stopping = stopping
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._queue: queue.Queue[Batch] = queue.Queue(BATCHES_WAITING_MAX)
        self._thread = threading.Thread(target=self._run, name="headwater-capture-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def next(self, timeout_s: float) -> Batch | None:
        """The next batch; None after the time, or raises what ended the reader."""
        try:
            return self._queue.get(timeout=timeout_s)
        except queue.Empty:
            if self._failure is not None:
                raise self._failure from None
            return None

    def waiting(self) -> Batch | None:
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None

    def next_of_group(self) -> Batch:
        while (batch := self.next(READ_TIMEOUT_S)) is None:
            if self._stopping.is_set():
                raise LogUnavailable("stopped within a table that is read as one")
        return batch

    def _run(self) -> None:
        try:
            while not (self._ended.is_set() or self._stopping.is_set()):
                batch = self._source.read(READ_TIMEOUT_S)
                if batch is not None:
                    self._put(batch)
        except HeadwaterError as error:
            self._failure = error
        except Exception as error:  # a reader that dies silently would look like an idle database
            _log.exception("capture: the reader failed")
            self._failure = SourceLost(f"the reader failed: {error!r}")

    def _put(self, batch: Batch) -> None:
        while not self._ended.is_set():
            try:
                self._queue.put(batch, timeout=PUT_TIMEOUT_S)
                return
            except queue.Full:
                self._source.tick()
