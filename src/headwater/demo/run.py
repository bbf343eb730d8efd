"""The demo from start to stop: parts up in order, a page to look at, a summary that verifies itself."""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Callable

from headwater.client import partitions_of, watermarks
from headwater.demo.parts import Places, followers, foundation
from headwater.demo.supervisor import Supervisor
from headwater.demo.verification import CHECKS, Topics, differences
from headwater.demo.views import VIEWS, declare_views
from headwater.errors import EnvironmentFailed
from headwater.pipeline.jars import java_command, prepare_jars
from headwater.positions import Position
from headwater.status import StatusBoard
from headwater.views import create, load_definitions

__all__ = ["Demo", "check_machine"]

DISK_BYTES_MIN = 1 << 30
SETTLE_DEADLINE_S = 180.0  # for everything to have followed after the last event
QUIET_S = 8.0  # nothing moved for so long: longer than any idle lane or commit interval of the demo holds things back
POLL_S = 0.5
DIFFERENCES_SHOWN = 3

Say = Callable[[str], None]


def check_machine(places: Places) -> None:
    """A clear word before anything is started."""
    java_command()
    free = shutil.disk_usage(places.folder).free
    if free < DISK_BYTES_MIN:
        raise EnvironmentFailed(
            f"{free >> 20} MiB are free in {places.folder.absolute()}; the demo wants {DISK_BYTES_MIN >> 20} MiB: "
            "make room, or choose another place with --folder"
        )
    for what, address in (("log", places.log), ("console", places.console), ("metrics", places.metrics)):
        host, _, port = address.rpartition(":")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, int(port)))
            except OSError as error:
                raise EnvironmentFailed(
                    f"the {what}'s address {address} cannot be used ({error.strerror}): stop what has it, "
                    f"or choose another with --{what}"
                ) from error


class Demo:
    """Use it as a context manager: everything it started is stopped at the end, also after Ctrl-C."""

    def __init__(self, places: Places, say: Say) -> None:
        self.places, self._say = places, say
        self.supervisor = Supervisor(places.folder / "diagnostics")

    def __enter__(self) -> Demo:
        try:
            self._start()
        except BaseException:
            self.supervisor.stop_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._say("stopping")
        self.supervisor.stop_all()

    def _start(self) -> None:
        prepare_jars(progress=lambda step: self._say(f"Spark's connector: {step}"))
        for definition in load_definitions(declare_views(self.places.folder)).values():
            create(definition)
        for stage in (foundation(self.places), followers(self.places)):
            self.supervisor.start(*stage, ready=lambda part: self._say(f"{part.name}: up"))

    def verify(self) -> bool:
        """Stop the people and devices, wait until everything has followed, compare every view with the log."""
        self.supervisor.stop("people and devices")
        self._say("nobody writes any more; waiting until everything has followed")
        self._settle()
        topics, right = Topics(self.places.connection), True
        for check in CHECKS:
            wrong = differences(check, topics, self.places.folder / "views.toml", self.places.connection)
            self._say(f"{'equal' if not wrong else 'WRONG':<6} {check.view:<14} {_source(check.view)}")
            for difference in wrong[:DIFFERENCES_SHOWN]:
                self._say(f"       {difference}")
            right = right and not wrong
        for name, count in self.supervisor.restarts().items():
            if count:
                self._say(f"{name} was started again {count} times")
        return right

    def _settle(self) -> None:
        """Until the topics have stood still for a while and every view is at their ends."""
        deadline = time.monotonic() + SETTLE_DEADLINE_S
        seen, since = Position(), time.monotonic()
        while time.monotonic() < deadline:
            ends, views = self._ends(), self._views()
            if ends != seen or not all(_followed(ends, VIEWS[name][0], position) for name, position in views.items()):
                seen, since = ends, time.monotonic()
            elif time.monotonic() - since > QUIET_S:
                return
            time.sleep(POLL_S)
        raise EnvironmentFailed(
            f"the system did not settle in {SETTLE_DEADLINE_S:.0f} s; look at the diagnostics in {self.places.folder}"
        )

    def _ends(self) -> Position:
        connection = self.places.connection
        consumer = connection.consumer("headwater.demo.ends")
        try:
            topics = {topic for topic, _, _ in VIEWS.values()}
            return Position(
                {(t, p): watermarks(consumer, t, p)[1] for t in topics for p in partitions_of(connection, t)}
            )
        finally:
            consumer.close()

    def _views(self) -> dict[str, Position]:
        board = StatusBoard(self.places.connection)
        try:
            board.poll(1.0)
            found = {part["name"]: part["details"] for part in board.all(0) if part["kind"] == "view"}
        finally:
            board.close()
        return {name: _position(found.get(name, {})) for name in VIEWS}


def _position(details: dict[str, object]) -> Position:
    topics = json.loads(json.dumps(details.get("position") or {}))
    return Position({(topic, int(p)): offset for topic, parts_ in topics.items() for p, offset in parts_.items()})


def _followed(ends: Position, topic: str, position: Position) -> bool:
    return position.covers(ends.restrict([topic]))


def _source(view: str) -> str:
    topic, store, _ = VIEWS[view]
    return f"{store} ← {topic}"
