"""`foreachBatch` exactly once: into a database, into a Delta table, into anything that commits a number with its data.

Spark runs a batch again when the driver dies after the batch is written and before its entry is in the checkpoint.
The functions here make what `foreachBatch` takes: a function of (DataFrame, batch number) that finds out, from the
target itself, whether the batch is there already.

    df.writeStream.foreachBatch(into_database(connect, write, query="orders"))
    df.writeStream.foreachBatch(into_delta("s3://lake/orders", query="orders"))

The target remembers, in the commit of the data, the last batch of each query and the checkpoint it came from. An older
driver that comes back finds its batch done; one with another checkpoint under the same name is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from headwater.pipeline.errors import BadOption, CheckpointConflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["into_database", "into_delta"]

QUERY_ID = "sql.streaming.queryId"
MARKER_TABLE = "headwater_batches"

BatchFunction = Callable[["DataFrame", int], None]


def into_database(connect: Callable[[], Any], write: Callable[[DataFrame, Any], None], *, query: str) -> BatchFunction:
    """`write(df, connection)` in one transaction with the batch's number, in a table `headwater_batches`.

    `connect` opens a DB-API connection (psycopg, sqlite3, ...) that is not in auto-commit; `write` does not commit.
    """

    def run(df: DataFrame, batch: int) -> None:
        with closing(connect()) as connection:
            try:
                if _claim(connection, query, _query_id(df), batch):
                    write(df, connection)
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    return run


def into_delta(
    table: str, *, query: str, storage_options: Mapping[str, str] | None = None, partition_by: list[str] | None = None
) -> BatchFunction:
    """Append each batch to a Delta table, with the batch number as the application transaction of its commit.

    The batch goes through the driver's memory. With Delta's own Spark connector say instead, in `foreachBatch`:
    `df.write.format("delta").option("txnAppId", query).option("txnVersion", batch).mode("append").save(table)`.
    """

    def run(df: DataFrame, batch: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

        options = dict(storage_options or {})
        application = f"headwater:{query}"
        known = DeltaTable.is_deltatable(table, options or None)
        opened = DeltaTable(table, storage_options=options or None) if known else None
        last = opened.transaction_version(application) if opened is not None else None
        if last is not None and last >= batch:
            return
        write_deltalake(
            opened if opened is not None else table,
            df.toArrow(),
            mode="append",
            partition_by=partition_by,
            storage_options=options or None,
            # two drivers with one batch: the later commit finds the other's transaction, and fails
            commit_properties=CommitProperties(app_transactions=[Transaction(application, batch)]),
        )

    return run


def _claim(connection: Any, query: str, query_id: str, batch: int) -> bool:
    """Whether the batch is to be written; its number is then part of the transaction, and locks out others."""
    mark = _placeholder(connection)
    cursor = connection.cursor()
    cursor.execute(
        f"CREATE TABLE IF NOT EXISTS {MARKER_TABLE} "
        "(query VARCHAR(200) PRIMARY KEY, query_id VARCHAR(64) NOT NULL, batch BIGINT NOT NULL)"
    )
    # an update that changes nothing locks the row, in every database, until the transaction ends
    cursor.execute(f"UPDATE {MARKER_TABLE} SET batch = batch WHERE query = {mark}", (query,))
    cursor.execute(f"SELECT query_id, batch FROM {MARKER_TABLE} WHERE query = {mark}", (query,))
    found = cursor.fetchone()
    if found is None:
        cursor.execute(f"INSERT INTO {MARKER_TABLE} VALUES ({mark}, {mark}, {mark})", (query, query_id, batch))
        return True
    if found[0] == query_id and found[1] >= batch:
        return False
    if found[0] != query_id and batch > 0:
        raise CheckpointConflict(
            f"the name {query!r} has since been used by a query with another checkpoint (Spark's id {found[0]}; this "
            f"one is {query_id}): give one of the two another name"
        )
    cursor.execute(
        f"UPDATE {MARKER_TABLE} SET query_id = {mark}, batch = {mark} WHERE query = {mark}", (query_id, batch, query)
    )
    return True


def _query_id(df: DataFrame) -> str:
    found = df.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if found is None:
        raise BadOption("this function is for foreachBatch: outside of a query Spark gives no query id")
    return found


def _placeholder(connection: Any) -> str:
    """`?` or `%s`, as the connection's module says (PEP 249)."""
    module = sys.modules[type(connection).__module__.split(".")[0]]
    style = getattr(module, "paramstyle", "qmark")
    return "%s" if style in ("format", "pyformat") else "?"
