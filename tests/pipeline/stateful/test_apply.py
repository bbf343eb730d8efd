"""What `stateful` refuses while the pipeline is written down, and what travels to a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headwater.pipeline.aggregates import count, running, sum
from headwater.pipeline.errors import BadOption, DefinitionError, UnknownColumn, WrongType
from headwater.pipeline.stateful import Batch, Operator, State, TableSpec, Time, stateful
from headwater.pipeline.stateful.errors import KeyTooLong, StepError
from headwater.pipeline.stateful.operator import ONLY
from headwater.pipeline.stateful.task import Program, Step, empty_state
from headwater.pipeline.time import event_time
from headwater.testing.harness.nodes import Applied
from headwater.testing.streams import StreamTest


class Echo(Operator):
    """The rows as they came."""

    def __init__(self, out: pa.Schema | None = None, **columns: Any) -> None:
        self._out, self._columns = out, columns

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        return self._out or pa.schema([("k", pa.string())])

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        return pa.table(self._columns) if self._columns else batch.table.select(["k"])


def test_an_operator_needs_a_key_that_is_there() -> None:
    rows = StreamTest().stream("k string, n long")
    with pytest.raises(DefinitionError, match="Echo has no key for its input 'rows': give key="):
        stateful(rows, Echo())
    with pytest.raises(UnknownColumn, match="key of Echo: there is no column 'kk'; the DataFrame has k, n"):
        stateful(rows, Echo(), key=["kk"])


def test_keys_of_inputs_that_meet_must_have_the_same_types() -> None:
    test = StreamTest()
    inputs = {"left": test.stream("k string"), "right": test.stream("k long")}
    with pytest.raises(DefinitionError, match=r"the key of 'left' is \(string\), that of 'right' \(int64\): cast"):
        stateful(inputs, Echo(), key=["k"])


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ({"partitions": 0}, "partitions is 0, but it must be 1 or more"),
        ({"name": "a/b"}, "it becomes a folder"),
        ({"checkpont": "/x"}, "there is no option 'checkpont'; there are checkpoint, "),
        ({"copartitioned": True}, "no column '_partition'"),
    ],
)
def test_options_that_make_no_sense_are_refused(where: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        stateful(StreamTest().stream("k string"), Echo(), key=["k"], **where)


def test_what_does_not_go_with_a_copartitioned_topic_is_refused() -> None:
    test = StreamTest()
    rows = test.stream("k string, at timestamp, _partition int")
    with pytest.raises(BadOption, match="as many partitions as the topic"):
        stateful(rows, Echo(), key=["k"], copartitioned=True, partitions=3)
    with pytest.raises(BadOption, match="several meet in a shuffle"):
        stateful({"a": rows, "b": rows}, Echo(), key=["k"], copartitioned=True)
    with pytest.raises(BadOption, match="ticks reach no partition of a topic without a shuffle"):
        stateful(event_time(rows, "at", ticks=True), Echo(), key=["k"], copartitioned=True)


def test_a_step_that_breaks_its_word_is_named() -> None:
    test = StreamTest()
    rows = test.stream("k string")
    test.feed(rows, [{"k": "a"}])
    with pytest.raises(StepError, match=r"Echo.step gave columns \['x'\], its output declares \['k'\]"):
        stateful(rows, Echo(x=[1]), key=["k"]).rows()
    with pytest.raises(StepError, match="its output declares k: int64"):
        stateful(rows, Echo(pa.schema([("k", pa.int64())])), key=["k"]).rows()


def test_a_state_table_must_be_possible() -> None:
    with pytest.raises(DefinitionError, match="has no key columns"):
        TableSpec.of("t", [], [("n", pa.int64())])
    with pytest.raises(DefinitionError, match="names n twice"):
        TableSpec.of("t", [("n", pa.int64())], [("n", pa.int64())])
    test = StreamTest()
    rows = test.stream(pa.schema([("k", pa.list_(pa.string()))]))
    test.feed(rows, [{"k": ["a"]}])
    with pytest.raises(WrongType, match="a number, a time, a string or bytes to be a key"):
        running(rows, ["k"], {"n": count()}).rows()


def test_a_key_that_is_too_long_for_the_store_says_what_to_do() -> None:
    test = StreamTest()
    rows = test.stream("k string")
    test.feed(rows, [{"k": "x" * 600}])
    with pytest.raises(KeyTooLong, match=r"a key of .* takes 60. bytes, the store 511: key by a hash"):
        running(rows, ["k"], {"n": count()}).rows()


def test_times_in_another_zone_reach_a_step_in_the_one_it_was_declared_with() -> None:
    declared = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    program = Program.of(Echo(declared), {ONLY: declared}, None)
    in_paris = pa.table([["a"], pa.array([5], pa.timestamp("us", tz="Europe/Paris"))], names=["k", "at"])
    step = Step(replace(program, operator=Seen()), empty_state(program))
    assert step.feed(in_paris).schema == declared


class Seen(Echo):
    """What the step was given, as it was given."""

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        assert str(batch.column("at").type) == "timestamp[us, tz=UTC]"
        return batch.table


def test_only_the_columns_that_an_operator_reads_travel() -> None:
    test = StreamTest()
    rows = test.stream("at timestamp, k string, n long, big string, _headers string")
    total = running(event_time(rows, "at"), ["k"], {"t": sum("n")})
    assert isinstance(total.node, Applied)
    assert total.node.plan.columns == {"rows": ("k", "n", "_time")}
    assert total.node.plan.program.inputs["rows"].names == ["k", "n", "_time"]
