"""The stateful operator on real Spark, in the session that all pipeline tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headwater.pipeline.aggregates import count, running, sum
from headwater.pipeline.time import event_time
from headwater.testing.streams import Stream, StreamTest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ORDERS = "at timestamp, user string, amount long, device string"


def counted(test: StreamTest) -> tuple[Stream, Stream]:
    orders = test.stream(ORDERS)
    timed = event_time(orders, "at", delay="10 seconds", producer="device", ticks=True)
    return orders, running(timed, ["user"], {"n": count(), "total": sum("amount")}, output="changelog")


def test_a_test_of_the_harness_runs_the_same_on_spark(spark: SparkSession) -> None:
    test = StreamTest(spark=spark)
    orders, totals = counted(test)
    test.feed(orders, [{"at": "10:00:05", "user": "ann", "amount": 3, "device": "phone"}])
    test.tick("10:00:30")
    test.feed(orders, [{"at": "10:00:30", "user": name, "amount": 1, "device": "desk"} for name in ("ann", "bob")])
    totals.assert_rows(
        """
        user | n | total | _weight
        ann  | 1 | 3     | 1
        ann  | 1 | 3     | -1
        ann  | 2 | 4     | 1
        bob  | 1 | 1     | 1
        """
    )
    assert [len(batch) for batch in totals.batches()] == [1, 0, 3]
    totals.assert_same_in_every_replay()
