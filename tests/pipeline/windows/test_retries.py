"""Windows on state that is on disk: batches that are run again, and hosts that lose their store, change no byte."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tests.pipeline.windows.feeding import COLUMNS, LAST, Feed, Row, clock, event
from tests.pipeline.windows.test_edges import KINDS, made

from headwater.pipeline.stateful.files import files_at
from headwater.pipeline.stateful.history import History
from headwater.pipeline.stateful.partition import Partition
from headwater.pipeline.stateful.task import run_task
from headwater.pipeline.time.marks import Marker
from headwater.pipeline.windows.definition import Words

WORDS = Words(output="changelog", late="correct", keep_closed="1 hour")


def batches() -> list[list[Row]]:
    chance = random.Random(3)
    rows = [
        event(
            clock("10:00") + timedelta(seconds=number - (chance.randint(0, 60) if chance.random() < 0.2 else 0)),
            chance.choice(["ann", "bob", "eve"]),
            chance.randint(1, 99) / 10,
        )
        for number in range(120)
    ]
    return [*(rows[at : at + 15] for at in range(0, 120, 15)), [event(LAST)]]


def outputs(kind: str, folder: Path, mishaps: random.Random | None) -> list[pa.Table]:
    """What each batch gave the last time it was run."""
    feed = Feed(made(kind, ("user",), WORDS), COLUMNS)
    store = folder / "store"
    found = []
    for number, rows in enumerate(batches()):
        marker = Marker(feed.settings, feed.schema)
        table = pa.concat_tables([marker.rows(feed.table(rows)), marker.punctuation(1)])
        for _ in range(1 if mishaps is None else mishaps.randint(1, 3)):
            if mishaps is not None and mishaps.random() < 0.3:
                _partition(feed, folder, store).discard_local()
            given = list(run_task(feed.program, _partition(feed, folder, store), number, [table]))
        found.append(pa.concat_tables(given).combine_chunks())
    return found


def _partition(feed: Feed, folder: Path, store: Path) -> Partition:
    return Partition(History(files_at(str(folder / "checkpoint")), "windows", 0), store, feed.program.tables)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_batches_run_again_and_stores_lost_change_no_byte(kind: str, seed: int, tmp_path: Path) -> None:
    plain = outputs(kind, tmp_path / "plain", None)
    again = outputs(kind, tmp_path / "again", random.Random(seed))
    assert sum(table.num_rows for table in plain) >= 20
    for number, (one, other) in enumerate(zip(plain, again, strict=True)):
        assert one.equals(other), f"batch {number}"
