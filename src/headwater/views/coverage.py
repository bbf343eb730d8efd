"""Positions in the topics a view follows that cover a position in topics further up.

Pipelines say, batch by batch and task by task, which input positions their output covers (`headwater.positions`). A
position in an input topic becomes, for each query that reads the topic, the outputs of all its tasks up to the first
coverage whose inputs cover it; and if the view does not follow those outputs either, the same again one stage on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater.client import Connection
from headwater.errors import BadInput
from headwater.positions import COVERAGE_TOPIC, Coverage, Position
from headwater.views.errors import StoreUnavailable
from headwater.views.fetching import Fetcher

__all__ = ["CoverageIndex", "CoverageReader"]

STAGES_MAX = 32  # between a token's topic and a view; more is taken for a cycle


@dataclass(slots=True)
class _Task:
    """What one task of a query has said, in the order of its topic; `outputs` grow from one to the next."""

    inputs: list[Position] = field(default_factory=list)
    outputs: list[Position] = field(default_factory=list)
    tasks: int = 1  # how many the query had when it said so last


class CoverageIndex:
    """All coverages read so far; pure."""

    def __init__(self) -> None:
        self._queries: dict[str, dict[int, _Task]] = {}

    def add(self, coverage: Coverage) -> None:
        task = self._queries.setdefault(coverage.query, {}).setdefault(coverage.task, _Task())
        before = task.outputs[-1] if task.outputs else Position()
        task.inputs.append(coverage.inputs)
        task.outputs.append(before.merge(coverage.outputs))
        task.tasks = coverage.tasks

    def translate(self, position: Position, topics: Iterable[str]) -> Position | None:
        """What a reader of `topics` must have reached to have seen `position`; None while nothing says so."""
        return self._translate(position, frozenset(topics), STAGES_MAX)

    def _translate(self, position: Position, topics: frozenset[str], stages: int) -> Position | None:
        needed, further = position.restrict(topics), position.topics() - topics
        if not further:
            return needed
        if stages == 0:
            return None
        covered: set[str] = set()
        for query, tasks in self._queries.items():
            read = {topic for topic in further if _mentions(tasks, topic)}
            if not read or not self._leads_to(query, topics, set()):
                continue
            written = _outputs(tasks, position.restrict(read))
            onward = None if written is None else self._translate(written, topics, stages - 1)
            if onward is None:
                return None
            needed, covered = needed.merge(onward), covered | read
        return needed if covered == further else None

    def _leads_to(self, query: str, topics: frozenset[str], passed: set[str]) -> bool:
        """Whether the query's output is followed, or read by a query of which that is true."""
        if query in passed:
            return False
        written = {topic for task in self._queries[query].values() for topic in task.outputs[-1].topics()}
        if written & topics:
            return True
        onward = [q for q, tasks in self._queries.items() if any(_mentions(tasks, topic) for topic in written)]
        return any(self._leads_to(each, topics, passed | {query}) for each in onward)


def _mentions(tasks: dict[int, _Task], topic: str) -> bool:
    return any(topic in task.inputs[-1].topics() for task in tasks.values())


def _outputs(tasks: dict[int, _Task], position: Position) -> Position | None:
    """What all tasks had written once they had read `position`."""
    together = Position()
    expected = max(task.tasks for task in tasks.values())
    for number in range(expected):
        task = tasks.get(number)
        found = None if task is None else _first_covering(task, position)
        if found is None:
            return None
        together = together.merge(found)
    return together


def _first_covering(task: _Task, position: Position) -> Position | None:
    for inputs, outputs in zip(task.inputs, task.outputs, strict=True):
        if inputs.covers(position):
            return outputs
    return None


class CoverageReader:
    """Keeps an index up to date, when it is asked to."""

    def __init__(self, connection: Connection) -> None:
        self.index = CoverageIndex()
        self._connection = connection
        self._fetcher: Fetcher | None = None
        self._lock = threading.Lock()

    def refresh(self, wait_s: float) -> None:
        """Take in what has been written since, waiting a little for it if there is nothing."""
        with self._lock:
            if self._fetcher is None:
                self._fetcher = self._open()
            if self._fetcher is None:
                return
            more = True
            while more:
                records = self._fetcher.fetch(wait_s)
                for message in records.messages:
                    self._add(message.value())
                more = records.waiting

    def close(self) -> None:
        with self._lock:
            if self._fetcher is not None:
                self._fetcher.close()
                self._fetcher = None

    def _open(self) -> Fetcher | None:
        try:
            return Fetcher(self._connection, [COVERAGE_TOPIC], Position(), "headwater.views.coverage")
        except StoreUnavailable:  # no pipeline has written yet
            return None

    def _add(self, value: str | bytes | None) -> None:
        if value is None:
            return  # an old coverage deleted: a later one says as much
        try:
            self.index.add(Coverage.from_value(value if isinstance(value, bytes) else value.encode()))
        except BadInput:  # not ours: nobody's position follows from it
            return
