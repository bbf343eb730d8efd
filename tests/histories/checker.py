"""Is a history one that a correct log could have produced? Each way in which it is not has a name.

    inconsistent offset   two values at one place of a partition
    duplicate             one value at two places
    lost write            acknowledged, others read past it, nobody ever read it
    unseen                acknowledged, nobody read it or anything behind it
    aborted read          a value whose transaction did not commit was read (G1a)
    early read            a value was read before its commit was asked for
    circular flow         transactions that read each other's writes (G1c)
    skipped poll          a process's next read leaves out a value that others read in between
    nonmonotonic poll     a process's next read is not further on
    nonmonotonic send     a process's next send was acknowledged at a place before its last

Two transactions whose writes interleave in partitions (G0) are no anomaly: a log orders records, not transactions, and
for the same reason the order of writes is no edge of the circular flow. All readers are taken to be read_committed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from histories.history import Operation, Outcome, Partition, Read

__all__ = ["Anomaly", "check"]


@dataclass(frozen=True)
class Anomaly:
    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


def check(history: Iterable[Operation]) -> list[Anomaly]:
    """Every anomaly found; a correct history has none."""
    facts = _Facts(history)
    return [
        anomaly
        for find in (
            _inconsistent_offsets,
            _duplicates,
            _lost_and_unseen,
            _aborted_reads,
            _early_reads,
            _circular_flow,
            _polls,
            _sends,
        )
        for anomaly in find(facts)
    ]


class _Facts:
    """The history, looked up in the ways the questions need."""

    def __init__(self, history: Iterable[Operation]) -> None:
        self.operations: Sequence[Operation] = sorted(history, key=lambda each: each.started)
        self.writer: dict[int, Operation] = {}
        self.values_at: dict[tuple[Partition, int], set[int]] = defaultdict(set)
        self.places_of: dict[int, set[tuple[Partition, int]]] = defaultdict(set)
        self.read_values: set[int] = set()
        read_offsets: dict[Partition, set[int]] = defaultdict(set)
        for operation in self.operations:
            for send in operation.sends:
                self.writer[send.value] = operation
                if send.offset is not None:
                    self._place(send.partition, send.offset, send.value)
            for read in operation.reads:
                self._place(read.partition, read.offset, read.value)
                self.read_values.add(read.value)
                read_offsets[read.partition].add(read.offset)
        self.read_offsets = {partition: sorted(offsets) for partition, offsets in read_offsets.items()}

    def _place(self, partition: Partition, offset: int, value: int) -> None:
        self.values_at[partition, offset].add(value)
        self.places_of[value].add((partition, offset))

    def processes(self) -> Iterator[tuple[int, list[Operation]]]:
        by_process: dict[int, list[Operation]] = defaultdict(list)
        for operation in self.operations:
            by_process[operation.process].append(operation)
        yield from by_process.items()


def _inconsistent_offsets(facts: _Facts) -> Iterator[Anomaly]:
    for (partition, offset), values in facts.values_at.items():
        if len(values) > 1:
            yield Anomaly("inconsistent offset", f"{partition} offset {offset} holds {sorted(values)}")


def _duplicates(facts: _Facts) -> Iterator[Anomaly]:
    for value, places in facts.places_of.items():
        if len(places) > 1:
            yield Anomaly("duplicate", f"{value} is at {sorted(places)}")


def _lost_and_unseen(facts: _Facts) -> Iterator[Anomaly]:
    for operation in facts.operations:
        if operation.outcome is not Outcome.OK:
            continue
        for send in operation.sends:
            if send.value in facts.read_values:
                continue
            furthest = facts.read_offsets.get(send.partition, [-1])[-1]
            where = f"{send.value} sent to {send.partition} by process {operation.process} (offset {send.offset})"
            if send.offset is not None and send.offset > furthest:
                yield Anomaly("unseen", f"{where}; reads ended at {furthest}")
            else:
                yield Anomaly("lost write", f"{where}; reads went on to {furthest}")


def _aborted_reads(facts: _Facts) -> Iterator[Anomaly]:
    for operation, read in _reads(facts):
        writer = facts.writer.get(read.value)
        if writer is not None and writer.outcome is Outcome.FAILED:
            yield Anomaly("aborted read", f"process {operation.process} read {read} of an aborted transaction")


def _early_reads(facts: _Facts) -> Iterator[Anomaly]:
    for operation, read in _reads(facts):
        writer = facts.writer.get(read.value)
        if writer is None or writer.committing is None or writer.outcome is Outcome.FAILED:
            continue
        if operation.ended < writer.committing:
            yield Anomaly("early read", f"process {operation.process} read {read} before its commit was asked for")


def _reads(facts: _Facts) -> Iterator[tuple[Operation, Read]]:
    return ((operation, read) for operation in facts.operations for read in operation.reads)


def _circular_flow(facts: _Facts) -> Iterator[Anomaly]:
    """Information goes from the writer of a value to the transaction that read it; it must not come back."""
    committed = [each for each in facts.operations if each.committing is not None and each.outcome is Outcome.OK]
    number = {id(operation): index for index, operation in enumerate(committed)}
    readers: list[set[int]] = [set() for _ in committed]
    for index, operation in enumerate(committed):
        for read in operation.reads:
            source = number.get(id(facts.writer.get(read.value)))
            if source is not None:
                readers[source].add(index)
    for cycle in _cycles(readers):
        names = [f"process {committed[each].process} at {committed[each].started:.3f}" for each in cycle]
        yield Anomaly("circular flow", " -> ".join(names))


def _cycles(edges: list[set[int]]) -> Iterator[list[int]]:
    """What is left when nodes without incoming edges are taken away again and again, and likewise without outgoing."""
    incoming: list[set[int]] = [set() for _ in edges]
    for source, targets in enumerate(edges):
        for target in targets:
            incoming[target].add(source)
    left = set(range(len(edges)))
    for there, back in ((edges, incoming), (incoming, edges)):
        free = [node for node in left if not back[node] & left]
        while free:
            node = free.pop()
            left.discard(node)
            free += [each for each in there[node] & left if not back[each] & left and each not in free]
    while left:
        cycle = [next(iter(left))]
        while (following := next(iter(edges[cycle[-1]] & left))) not in cycle:
            cycle.append(following)
        yield cycle[cycle.index(following) :]
        left.difference_update(cycle)
        left = {node for node in left if edges[node] & left}


def _polls(facts: _Facts) -> Iterator[Anomaly]:
    """A process reads each partition forwards and leaves nothing out, unless it sets its position anew."""
    for process, operations in facts.processes():
        positions: dict[Partition, int] = {}
        for operation in operations:
            if operation.rewound:
                positions.clear()
            for read in operation.reads:
                last = positions.get(read.partition)
                positions[read.partition] = read.offset
                if last is None:
                    continue
                if read.offset <= last:
                    yield Anomaly("nonmonotonic poll", f"process {process} read {read} after offset {last}")
                    continue
                skipped = _between(facts.read_offsets[read.partition], last, read.offset)
                if skipped:
                    what = f"process {process} went from {last} to {read.offset} of {read.partition}"
                    yield Anomaly("skipped poll", f"{what}, others read {skipped} in between")


def _between(offsets: list[int], low: int, high: int) -> list[int]:
    start = bisect_right(offsets, low)
    end = start
    while end < len(offsets) and offsets[end] < high:
        end += 1
    return offsets[start:end]


def _sends(facts: _Facts) -> Iterator[Anomaly]:
    for process, operations in facts.processes():
        positions: dict[Partition, int] = {}
        for operation in operations:
            for send in operation.sends:
                if send.offset is None:
                    continue
                last = positions.get(send.partition, -1)
                if send.offset <= last:
                    yield Anomaly("nonmonotonic send", f"process {process}: {send} came after offset {last}")
                positions[send.partition] = send.offset
