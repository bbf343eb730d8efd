"""The harness: what its own documentation says, its readable differences, and that replays find what they must."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from headwater.errors import BadInput
from headwater.pipeline.aggregates import count, running, sum
from headwater.pipeline.stateful import Batch, Column, Operator, State, TableSpec, Time, stateful
from headwater.pipeline.time import event_time
from headwater.testing.streams import Stream, StreamTest

ORDERS = "at timestamp, user string, amount long, device string"


def counted(test: StreamTest) -> tuple[Stream, Stream]:
    orders = test.stream(ORDERS)
    timed = event_time(orders, "at", delay="10 seconds", producer="device", ticks=True)
    return orders, running(timed, ["user"], {"n": count(), "total": sum("amount")}, output="changelog")


def test_rows_go_in_as_tables_and_changes_come_out_with_their_weights() -> None:
    test = StreamTest()
    orders, totals = counted(test)
    test.feed(
        orders,
        """
        at       | user | amount | device
        10:00:05 | ann  | 3      | phone
        10:00:20 | bob  | 4      | desk
        """,
    )
    totals.assert_new(
        """
        user | n | total | _weight
        ann  | 1 | 3     | 1
        bob  | 1 | 4     | 1
        """
    )
    test.feed(orders, [{"at": "10:00:30", "user": "ann", "amount": 1}], device="phone")
    totals.assert_new(
        """
        user | n | total | _weight
        ann  | 1 | 3     | -1
        ann  | 2 | 4     | 1
        """
    )
    test.tick("10:05:00")
    totals.assert_new("")
    totals.assert_table(
        """
        user | n
        ann  | 2
        bob  | 1
        """
    )
    totals.assert_same_in_every_replay()


def test_a_difference_names_the_rows_that_are_missing_and_those_nobody_expected() -> None:
    test = StreamTest()
    orders, totals = counted(test)
    test.feed(orders, [{"at": "10:00:30", "user": "ann", "amount": 1}])
    with pytest.raises(AssertionError) as caught:
        totals.assert_rows(
            """
            user | n | _weight
            ann  | 2 | 1
            """
        )
    lines = str(caught.value).splitlines()
    assert lines[1:4] == ["user | n | _weight |", "ann  | 1 | 1       | unexpected", "ann  | 2 | 1       | missing"]


class _Positions(Operator):
    """Numbers a user's rows as they come: depends on how producers interleave, which replays must find out."""

    key = ("user",)
    state = (TableSpec.of("seen", [("user", pa.string())], [Column("n", pa.int64(), 0)]),)

    def output(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        return pa.schema([("user", pa.string()), ("device", pa.string()), ("n", pa.int64())])

    def step(self, state: State, batch: Batch, time: Time) -> pa.Table:
        out = []
        for row in batch.table.to_pylist():
            n = int(state["seen"].get({"user": [row["user"]]}).numpy("n")[0]) + 1
            state["seen"].put({"user": [row["user"]]}, {"n": [n]})
            out.append({"user": row["user"], "device": row["device"], "n": n})
        return pa.Table.from_pylist(out, schema=self.output({}))


def test_a_replay_finds_an_operator_that_depends_on_how_producers_interleave() -> None:
    test = StreamTest()
    orders = test.stream(ORDERS)
    numbered = stateful(event_time(orders, "at", producer="device"), _Positions())
    test.feed(orders, [{"at": "10:00:01", "user": "ann", "device": d} for d in ("phone", "desk", "phone", "desk")])
    with pytest.raises(AssertionError, match="replay"):
        numbered.assert_same_in_every_replay()


def test_rows_of_one_producer_keep_their_order_in_every_replay() -> None:
    test = StreamTest()
    orders = test.stream(ORDERS)
    numbered = stateful(event_time(orders, "at", producer="device"), _Positions())
    test.feed(orders, [{"at": "10:00:01", "user": "ann", "device": "phone"} for _ in range(9)])
    numbered.assert_same_in_every_replay(rows=True)


def test_a_batch_holds_what_happens_inside_it() -> None:
    test = StreamTest()
    orders, totals = counted(test)
    with test.batch():
        test.feed(orders, [{"at": "10:00:01", "user": "ann"}])
        test.feed(orders, [{"at": "10:00:02", "user": "ann"}])
    assert [len(batch) for batch in totals.batches()] == [1]


def test_state_can_be_looked_at() -> None:
    test = StreamTest()
    orders, totals = counted(test)
    test.feed(orders, [{"at": "10:00:01", "user": name, "amount": 2} for name in "abc"])
    assert sorted((row["user"], row["rows"], row["total.whole"]) for row in totals.state("running")) == [
        ("a", 1, 2),
        ("b", 1, 2),
        ("c", 1, 2),
    ]


def test_a_row_that_is_retracted_more_often_than_given_is_an_error() -> None:
    test = StreamTest()
    changes = test.stream("user string, _weight int")
    test.feed(changes, [{"user": "ann", "_weight": -1}])
    with pytest.raises(AssertionError, match="retracted 1 times more"):
        changes.table()


def test_an_unknown_column_is_refused_by_name() -> None:
    test = StreamTest()
    orders, _ = counted(test)
    with pytest.raises(BadInput, match="no column 'usr'"):
        test.feed(orders, [{"usr": "ann"}])
    with pytest.raises(BadInput, match="no column 'usr'"):
        test.feed(orders, "usr\nann")
