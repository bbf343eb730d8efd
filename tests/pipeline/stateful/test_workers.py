"""What a task does with its rows, without Spark around it: only where it is comes from Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.pipeline.aggregates import count, running
from headwater.pipeline.errors import DefinitionError
from headwater.pipeline.stateful import workers
from headwater.pipeline.stateful.errors import StateMismatch
from headwater.pipeline.stateful.plan import Plan
from headwater.pipeline.time import event_time
from headwater.testing.harness.nodes import Applied
from headwater.testing.streams import StreamTest


class Tasks:
    """Tasks of one query, one after the other."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, timed: bool = False) -> None:
        test = StreamTest()
        rows = test.stream("user string, at timestamp, _partition int")
        counted = running(event_time(rows, "at") if timed else rows, ["user"], {"n": count()}, copartitioned=True)
        assert isinstance(counted.node, Applied)
        options = replace(counted.node.plan.options, checkpoint=str(folder), local_dir=str(folder / "local"))
        self.plan: Plan = replace(counted.node.plan, options=options)
        program = self.plan.program
        self.schema = pa.schema([program.inputs["rows"].field(name) for name in self.plan.columns["rows"]])
        self._patch = monkeypatch

    def run(self, batch: int, *rows: tuple[str, int | None], task: int = 0) -> dict[str, int]:
        self._patch.setattr(workers, "_here", lambda: workers._Where("query", "run", batch, task))
        given = [{"user": user, "_partition": number, "_time": batch * 1_000_000} for user, number in rows]
        whole = pa.Table.from_pylist(given, schema=self.schema)
        out = workers.copartitioned_task(self.plan, self.schema)(whole.to_batches())
        return {row["user"]: row["n"] for one in out for row in one.to_pylist()}


@pytest.mark.parametrize("timed", [False, True])
def test_each_partition_of_the_topic_keeps_its_own_state_also_when_batches_leave_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timed: bool
) -> None:
    tasks = Tasks(tmp_path, monkeypatch, timed=timed)
    assert tasks.run(0, ("ann", 0), ("bob", 3), ("ann", 0)) == {"ann": 2, "bob": 1}
    assert tasks.run(1, ("bob", 3)) == {"bob": 2}
    assert tasks.run(2) == {}
    assert tasks.run(3, ("ann", 0), ("ann", 3)) == {"ann": 1}  # another partition, another state: routed by the topic
    assert tasks.run(4, ("ann", 0)) == {"ann": 4}


def test_a_row_without_a_partition_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DefinitionError, match="1 rows have no _partition"):
        Tasks(tmp_path, monkeypatch).run(0, ("ann", 0), ("bob", None))


def test_two_tasks_that_share_a_partition_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = Tasks(tmp_path, monkeypatch)
    tasks.run(0, ("ann", 0), task=0)
    with pytest.raises(StateMismatch, match="one task, so one topic"):
        tasks.run(0, ("bob", 0), task=1)
