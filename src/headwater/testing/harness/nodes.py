"""The query that a test builds: sources, and what pipeline functions made of them. A small graph, run by an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from headwater.pipeline.stateful.plan import Plan
from headwater.pipeline.time.clocks import DeviceClock, corrected_schema
from headwater.pipeline.time.settings import NO_BEFORE, PRODUCER, TICK, TIME, TIMESTAMP, TimeColumns, TimeSettings

__all__ = ["Applied", "Corrected", "Node", "Source", "Timed", "nodes_under", "schema_of"]


@dataclass(frozen=True, eq=False)
class Source:
    """A stream that the test feeds."""

    name: str
    schema: pa.Schema


@dataclass(frozen=True, eq=False)
class Timed:
    """`event_time` or `processing_time`."""

    input: Node
    columns: TimeColumns
    settings: TimeSettings


@dataclass(frozen=True, eq=False)
class Corrected:
    """`device_time`."""

    input: Node
    clock: DeviceClock


@dataclass(frozen=True, eq=False)
class Applied:
    """`stateful`."""

    plan: Plan
    inputs: Mapping[str, Node]


Node = Source | Timed | Corrected | Applied


def schema_of(node: Node) -> pa.Schema:
    if isinstance(node, Source):
        return node.schema
    if isinstance(node, Applied):
        return node.plan.program.output
    if isinstance(node, Corrected):
        return corrected_schema(schema_of(node.input))
    added = [(TIME, TIMESTAMP)]
    if node.columns.producer is not None:
        added.append((PRODUCER, pa.string()))
    if node.columns.no_before is not None:
        added.append((NO_BEFORE, TIMESTAMP))
    if node.columns.ticks:
        added.append((TICK, TIMESTAMP))
    names = {name for name, _ in added}
    kept = [pa.field(f.name, f.type) for f in schema_of(node.input) if f.name not in names]
    return pa.schema([*kept, *(pa.field(name, kind) for name, kind in added)])


def nodes_under(node: Node) -> Iterator[Node]:
    """The node and everything it is made of."""
    yield node
    if isinstance(node, Applied):
        for one in node.inputs.values():
            yield from nodes_under(one)
    elif not isinstance(node, Source):
        yield from nodes_under(node.input)
