"""`foreachBatch` into targets that know their batches: run again, nothing is doubled."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.pipeline.logs import ONCE, RUN_TIMEOUT_S, fill

from headwater.client import Connection
from headwater.pipeline.batches import BatchFunction, into_database, into_delta
from headwater.pipeline.formats import Json
from headwater.pipeline.topics import topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def run(spark: SparkSession, bootstrap: str, unique: str, tmp_path: Path) -> Callable[..., None]:
    """Feed numbers and run the query over them; `again` first takes back the last batch's entry in the checkpoint."""
    log, name = Connection(bootstrap), f"in-{unique}"

    def run(function: BatchFunction, numbers: range, again: int | None = None, checkpoint: str = "c") -> None:
        fill(log, name, [{"id": n} for n in numbers])
        if again is not None:
            for file in (tmp_path / checkpoint / "commits").glob(f"*{again}*"):
                file.unlink()
        rows = topic(spark, name, connection=log, value=Json("id bigint")).select("id")
        query = rows.writeStream.foreachBatch(function).option("checkpointLocation", str(tmp_path / checkpoint))
        started = query.trigger(**ONCE).start()
        assert started.awaitTermination(int(RUN_TIMEOUT_S))

    return run


def test_a_database_has_each_batch_once(run: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / "db"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path)

    def write(df: DataFrame, connection: Any) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (id BIGINT)")
        connection.executemany("INSERT INTO numbers VALUES (?)", [(row["id"],) for row in df.collect()])

    function = into_database(connect, write, query="numbers")
    run(function, range(10))
    run(function, range(10, 15), again=0)
    with connect() as connection:
        assert sorted(connection.execute("SELECT id FROM numbers")) == [(n,) for n in range(15)]
    connection.close()
    run(function, range(0), checkpoint="other")  # a start from nothing takes the name over
    with pytest.raises(StreamingQueryException, match="has since been used by a query with another checkpoint"):
        run(function, range(15, 16))


def test_a_transaction_that_fails_leaves_nothing_behind(run: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / "db"

    def write(df: DataFrame, connection: Any) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (id BIGINT)")
        connection.executemany("INSERT INTO numbers VALUES (?)", [(row["id"],) for row in df.collect()])
        if not (tmp_path / "repaired").exists():
            raise OSError("the network is down")

    function = into_database(lambda: sqlite3.connect(path), write, query="numbers")
    with pytest.raises(StreamingQueryException, match="the network is down"):
        run(function, range(10))
    (tmp_path / "repaired").touch()
    run(function, range(0))
    connection = sqlite3.connect(path)
    assert sorted(connection.execute("SELECT id FROM numbers")) == [(n,) for n in range(10)]
    connection.close()


def test_a_delta_table_has_each_batch_once(run: Callable[..., None], tmp_path: Path) -> None:
    from deltalake import DeltaTable

    table = str(tmp_path / "table")
    function = into_delta(table, query="numbers")
    run(function, range(10))
    run(function, range(10, 15), again=0)
    found = DeltaTable(table)
    assert sorted(found.to_pyarrow_table()["id"].to_pylist()) == list(range(15))
    assert found.transaction_version("headwater:numbers") == 1
