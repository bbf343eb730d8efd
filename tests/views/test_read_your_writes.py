"""Generated histories of concurrent writers and readers while followers, broker and servers are killed.

A session writes a row of its own, gets the token, and reads with it: its own row, or one that another session wrote
and whose token it was handed. No read may be older than its token, and none may take longer than its timeout.
"""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

import pytest
from tests.views.killing import Rig
from tests.views.stores import ALL, Kind

from headwater.client import Writer
from headwater.errors import EnvironmentFailed
from headwater.views import Definition, NotCovered, StoreUnavailable, View, load_definitions

SESSIONS = 4
TIMEOUT_S = 20.0  # of a read: longer than a killed follower takes to come back
GRACE_S = 10.0  # beyond it, for a machine that is busy

Written = tuple[int, int, str]  # key, number, token


class Session(threading.Thread):
    """One client, writing and reading in turn."""

    def __init__(self, rig: Rig, number: int, shared: list[Written], seed: int) -> None:
        super().__init__(daemon=True)
        self._rig, self._key, self._shared = rig, 10_000 + number, shared
        self._chance = random.Random(seed)
        self._definitions: list[Definition] = list(load_definitions(rig.file).values())
        self.stopping = threading.Event()
        self.reads = self.not_covered = 0
        self.problems: list[str] = []

    def run(self) -> None:
        views = [View(definition, self._rig.log) for definition in self._definitions]
        with Writer(self._rig.log, linger_ms=0) as writer:
            number = 0
            while not self.stopping.is_set():
                number += 1
                self._write(writer, number)
                for _ in range(self._chance.randint(1, 3)):
                    self._read(self._chance.choice(views))
        for view in views:
            view.close()

    def _write(self, writer: Writer, number: int) -> None:
        row = {"id": self._key, "n": number, "text": "mine"}
        writer.write(self._rig.topic, json.dumps(row).encode(), key=b'{"id":%d}' % self._key)
        try:
            self._shared.append((self._key, number, writer.flush()))
        except EnvironmentFailed:  # not acknowledged: nothing is promised
            return

    def _read(self, view: View) -> None:
        if not self._shared:
            return
        own = [each for each in self._shared[-20:] if each[0] == self._key]
        key, number, token = own[-1] if own and self._chance.random() < 0.5 else self._chance.choice(self._shared[-20:])
        started = time.monotonic()
        try:
            row = view.get(key, at_least=token, timeout=TIMEOUT_S)
            self.reads += 1
            if row is None or row["n"] < number:
                self.problems.append(f"{view.definition.store} gave {row} to a reader who knew of {number}")
        except NotCovered:
            self.not_covered += 1
        except StoreUnavailable:  # its server is being killed
            return
        took = time.monotonic() - started
        if took > TIMEOUT_S + GRACE_S:
            self.problems.append(f"a read with a timeout of {TIMEOUT_S} s took {took:.1f} s")


def read_your_writes(kinds: list[Kind], folder: Path, *, kills: int, seed: int) -> None:
    with Rig(kinds, folder, seed) as rig:
        shared: list[Written] = []
        sessions = [Session(rig, number, shared, seed * 100 + number) for number in range(SESSIONS)]
        for session in sessions:
            session.start()
        for _ in range(kills):
            rig.kill_one()
        for session in sessions:
            session.stopping.set()
        for session in sessions:
            session.join(TIMEOUT_S * 4)
            assert not session.is_alive(), "a read never ended"
            assert not session.problems, session.problems[:5]
            assert session.reads > 10
        assert sum(session.not_covered for session in sessions) == 0
        rig.finish()


@pytest.mark.timeout(240)
def test_no_read_is_older_than_its_token_whatever_is_killed(tmp_path: Path) -> None:
    kinds = [kind for kind in ALL if kind.name in ("sqlite", "lmdb", "postgresql", "redis")]
    read_your_writes(kinds, tmp_path, kills=5, seed=4)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(5))
def test_no_read_is_older_than_its_token_in_long_histories(tmp_path: Path, seed: int) -> None:
    read_your_writes([kind for kind in ALL if not kind.marks], tmp_path, kills=30, seed=seed)
