"""`stateful()`: an operator applied to a stream, with everything checked while the pipeline is written down."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, Unpack

import pyarrow as pa

from headwater.pipeline.columns import OFFSET, PARTITION
from headwater.pipeline.engine import Engine, engine_of
from headwater.pipeline.errors import BadOption, DefinitionError, UnknownColumn
from headwater.pipeline.stateful.history import KEEP_VERSIONS
from headwater.pipeline.stateful.operator import ONLY, Operator
from headwater.pipeline.stateful.plan import Plan, StatefulKeywords, StateOptions
from headwater.pipeline.stateful.store import STORE_BYTES_MAX
from headwater.pipeline.stateful.task import Program
from headwater.pipeline.time.settings import TICK, TIME, TIME_COLUMNS, TimeSettings

__all__ = ["stateful"]

S = TypeVar("S")

_KNOWN = StatefulKeywords.__optional_keys__


def stateful(
    df: S | Mapping[str, S],
    operator: Operator,
    *,
    key: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    **where: Unpack[StatefulKeywords],
) -> S:
    """The operator applied to a stream (or several, by name), its state kept beside the query's checkpoint.

    `key`: the columns that rows are routed by, instead of the operator's own. `where`: see `StatefulKeywords`.
    """
    inputs: dict[str, Any] = dict(df) if isinstance(df, Mapping) else {ONLY: df}
    if not inputs:
        raise DefinitionError("stateful: there is no input")
    engine = engine_of(next(iter(inputs.values())))
    if key is not None:
        operator.key = key
    name = where.get("name") or type(operator).__name__.strip("_").lower()
    schemas = {side: engine.schema(one) for side, one in inputs.items()}
    _check_keywords(name, where, schemas)
    _check_keys(operator, schemas, name)
    program = Program.of(operator, {k: _without_ticks(one) for k, one in schemas.items()}, _time(engine, inputs))
    _check_time(program, name)
    columns = {side: _travelling(operator, side, schema) for side, schema in schemas.items()}
    plan = Plan(
        _narrowed(program, columns),
        _options(name, where, engine, inputs),
        columns,
        where.get("copartitioned", False),
        where.get("realtime", False),
    )
    result: S = engine.stateful(plan, inputs)
    return result


def _travelling(operator: Operator, side: str, schema: pa.Schema) -> tuple[str, ...]:
    """The columns of an input that the operator, its routing and time need."""
    read = operator.reads(side)
    if read is None:
        return tuple(schema.names)
    carried = [name for name in TIME_COLUMNS if name != OFFSET] if TIME in schema.names else [PARTITION]
    wanted = {*read, *operator.keys_of(side), *carried}
    return tuple(name for name in schema.names if name in wanted)


def _narrowed(program: Program, columns: Mapping[str, Sequence[str]]) -> Program:
    inputs = {
        side: pa.schema([one for one in schema if one.name in columns[side]]) for side, schema in program.inputs.items()
    }
    return replace(program, inputs=inputs)


def _without_ticks(schema: pa.Schema) -> pa.Schema:
    """What an operator sees: ticks become its time, not rows."""
    return pa.schema([field for field in schema if field.name != TICK])


def _options(name: str, where: StatefulKeywords, engine: Engine, inputs: Mapping[str, Any]) -> StateOptions:
    first = next(iter(inputs.values()))
    checkpoint = where.get("checkpoint", "").rstrip("/")
    if not checkpoint and any(engine.keeps_state(one) for one in inputs.values()):
        raise BadOption(f"{name}: say where its state is kept: checkpoint=, the query's checkpointLocation for example")
    partitions = 0 if where.get("copartitioned") else where.get("partitions") or engine.partitions(first)
    return StateOptions(
        checkpoint,
        name,
        partitions,
        where.get("storage_options", {}),
        where.get("local_dir"),
        where.get("keep_versions", KEEP_VERSIONS),
        where.get("state_bytes_max", STORE_BYTES_MAX),
    )


def _check_keywords(name: str, where: StatefulKeywords, schemas: Mapping[str, pa.Schema]) -> None:
    unknown = sorted(set(where) - _KNOWN)
    if unknown:
        raise BadOption(f"{name}: there is no option {unknown[0]!r}; there are {', '.join(sorted(_KNOWN))}")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise BadOption(f"stateful: the name {name!r} must be letters, digits, '.', '_' and '-': it becomes a folder")
    if where.get("partitions", 1) < 1:
        raise BadOption(f"{name}: partitions is {where['partitions']}, but it must be 1 or more")
    if where.get("copartitioned"):
        _check_copartitioned(name, where, schemas)


def _check_copartitioned(name: str, where: StatefulKeywords, schemas: Mapping[str, pa.Schema]) -> None:
    if set(schemas) != {ONLY}:
        raise BadOption(f"{name}: copartitioned goes with one input; several meet in a shuffle")
    if "partitions" in where:
        raise BadOption(f"{name}: copartitioned has as many partitions as the topic; leave partitions= out")
    if PARTITION not in schemas[ONLY].names:
        raise UnknownColumn(PARTITION, list(schemas[ONLY].names), f"{name}: copartitioned")
    if TICK in schemas[ONLY].names:
        raise BadOption(
            f"{name}: ticks reach no partition of a topic without a shuffle: leave ticks=True out (and have producers "
            "say no_before), or leave copartitioned out"
        )


def _check_keys(operator: Operator, schemas: Mapping[str, pa.Schema], name: str) -> None:
    """Every input has a key, of columns that exist, and all inputs' keys have the same types: else rows never meet."""
    shapes = {}
    for side, schema in schemas.items():
        names = operator.keys_of(side)
        if not names and not operator.keyless:
            raise DefinitionError(
                f"{name}: {type(operator).__name__} has no key for its input {side!r}: give key=[...]"
            )
        for column in names:
            if column not in schema.names:
                raise UnknownColumn(column, list(schema.names), f"{name}: key of {type(operator).__name__}")
        shapes[side] = [str(schema.field(column).type) for column in names]
    first = next(iter(shapes))
    for side, shape in shapes.items():
        if shape != shapes[first]:
            raise DefinitionError(
                f"{name}: the key of {first!r} is ({', '.join(shapes[first])}), that of {side!r} ({', '.join(shape)}): "
                "cast them to the same types"
            )


def _time(engine: Engine, inputs: Mapping[str, Any]) -> dict[str, TimeSettings] | None:
    found = {side: engine.time(one) for side, one in inputs.items()}
    kept = {side: settings for side, settings in found.items() if settings is not None}
    return kept or None


def _check_time(program: Program, name: str) -> None:
    if program.operator.needs_time and program.time is None:
        raise DefinitionError(f'{name}: the input has no {TIME}; say event_time(df, "column", ...) first')
