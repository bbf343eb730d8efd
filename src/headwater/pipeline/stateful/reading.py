"""A query's state from outside: read as a table, and divided anew while the query is stopped.

    read_state("/checkpoints/totals", "running")                    an Arrow table, newest version
    state_dataframe(spark, "/checkpoints/totals", "running")        the same as a DataFrame
    repartition_state(spark, "/checkpoints/totals", "running", 16)

They work from the files beside the checkpoint, on any machine; reading disturbs no query that runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.pipeline.errors import BadOption
from headwater.pipeline.stateful.base import MemoryBase
from headwater.pipeline.stateful.changelog import digest_of
from headwater.pipeline.stateful.errors import StateMismatch
from headwater.pipeline.stateful.files import Files, files_at
from headwater.pipeline.stateful.history import History
from headwater.pipeline.stateful.manifest import Manifest, manifest_name, read_manifest
from headwater.pipeline.stateful.partition import Partition, Version
from headwater.pipeline.stateful.schema import TableHistory
from headwater.pipeline.stateful.state import State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_state", "repartition_state", "state_dataframe"]

IN_PARTITION = "_state_partition"  # the column of `read_state` that says where a row is


def read_state(
    checkpoint: str,
    operator: str,
    table: str | None = None,
    *,
    version: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table:
    """The rows of a state table and the partition each is in: after batch `version - 1`, or the newest of each.

    `operator` is its name in the query. `table` may be left out where the operator has only one.
    """
    files = _state_files(checkpoint, storage_options)
    manifest = _manifest(files, operator)
    parts = []
    for number in _partitions(files, manifest):
        with _opened(files, manifest, number, version) as opened:
            rows = opened.state[_chosen(opened.state, table, operator)].range().table()
        parts.append(rows.append_column(IN_PARTITION, pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows)))
    if not parts:
        raise BadOption(f"{files.where}: the operator {operator!r} has no state yet")
    return pa.concat_tables(parts).combine_chunks()  # Spark stops reading at an empty chunk


def state_dataframe(
    spark: SparkSession, checkpoint: str, operator: str, table: str | None = None, **options: Any
) -> DataFrame:
    """`read_state` as a DataFrame."""
    return spark.createDataFrame(read_state(checkpoint, operator, table, **options))


def repartition_state(
    spark: SparkSession,
    checkpoint: str,
    operator: str,
    partitions: int,
    *,
    key: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Divide the state of a query that is stopped among another number of partitions; then start it with that number.

    Rows go where Spark's shuffle sends their keys. `key`: the operator's key columns as its state tables name them (by
    table, where they differ); by default the key the operator had. A table without them, such as time's own, must be
    the same in all partitions, and stays so. The old files stay until you delete them.
    """
    files = _state_files(checkpoint, storage_options)
    manifest = _manifest(files, operator)
    if partitions < 1 or not manifest.partitions:
        raise BadOption(f"{operator}: {partitions} partitions; a co-partitioned operator has those of its topic")
    version = _last_version(checkpoint, files, manifest, storage_options)
    folder = f"{operator}@{partitions}-{version}"
    rows = _Rows.read(files, manifest, version)
    targets = {
        table.name: _targets(spark, rows.tables[table.name], _key_of(table.name, key, manifest), partitions)
        for table in rows.histories
    }
    for number in range(partitions):
        base = rows.part(targets, number)
        digest = digest_of("0" * 32, [f"{folder}/{number}".encode()])
        History(files, operator, number, folder).write_snapshot(base, version, digest, rows.histories)
    changed = replace(manifest, partitions=partitions, folder=folder)
    files.write(manifest_name(operator), [changed.to_bytes()])


class _Rows:
    """All rows of a state, in memory."""

    def __init__(self, histories: tuple[TableHistory, ...]) -> None:
        self.histories = histories
        self.tables: dict[str, list[pa.Table]] = {history.name: [] for history in histories}
        self.pairs: dict[str, list[list[tuple[bytes, bytes]]]] = {history.name: [] for history in histories}

    @classmethod
    def read(cls, files: Files, manifest: Manifest, version: int) -> _Rows:
        found: _Rows | None = None
        for number in _partitions(files, manifest):
            with _opened(files, manifest, number, version) as opened:
                if found is None:
                    found = cls(opened.tables)
                if [h.to_json() for h in opened.tables] != [h.to_json() for h in found.histories]:
                    raise StateMismatch(f"{manifest.operator}: its partitions have tables of different layouts")
                for history in found.histories:
                    table = opened.state[history.name]
                    found.tables[history.name].append(table.range().table())
                    found.pairs[history.name].append(list(table.encoded()))
        if found is None:
            raise BadOption(f"{manifest.operator}: there is no state yet; just start it with the other number")
        return found

    def part(self, targets: Mapping[str, list[Any]], number: int) -> MemoryBase:
        """The rows that belong to a partition; of a table that is the same everywhere, all of one."""
        base = MemoryBase()
        for history in self.histories:
            name = history.name
            if not targets[name]:
                chosen = self.pairs[name][0]
            else:
                chosen = [
                    pair
                    for pairs, target in zip(self.pairs[name], targets[name], strict=True)
                    for pair, one in zip(pairs, target.tolist(), strict=True)
                    if one == number
                ]
            base.apply({name: [(key, None, value) for key, value in sorted(chosen)]})
        return base


def _targets(spark: SparkSession, tables: list[pa.Table], key: Sequence[str], partitions: int) -> list[Any]:
    """For each row of each old partition the new one; none when the table has no key columns."""
    from pyspark.sql import functions as F

    if not set(key) <= set(tables[0].column_names):
        if any(table != tables[0] for table in tables):
            raise StateMismatch(
                f"a table with the columns {', '.join(tables[0].column_names)} has no key columns ({', '.join(key)}) "
                "to divide it by, and differs between partitions: say its key columns, key={table: [...]}"
            )
        return []
    routed = F.pmod(F.hash(*(F.col(f"`{name}`") for name in key)), F.lit(partitions)).alias("target")
    return [_routed(spark, table.select(list(key)), routed) for table in tables]


def _routed(spark: SparkSession, keys: pa.Table, target: Any) -> Any:
    """The targets of the rows, in their order."""
    numbered = keys.append_column("_row", pa.array(range(len(keys)))).combine_chunks()
    found = spark.createDataFrame(numbered).select("_row", target).orderBy("_row").toArrow()
    if found["_row"].to_pylist() != list(range(len(keys))):
        raise StateMismatch(f"Spark gave {len(found)} of {len(keys)} rows back: nothing was changed")
    return np.asarray(found["target"].to_numpy())


def _key_of(table: str, key: Sequence[str] | Mapping[str, Sequence[str]] | None, manifest: Manifest) -> Sequence[str]:
    if isinstance(key, Mapping):
        return key.get(table) or manifest.key or (IN_PARTITION,)
    chosen = key or manifest.key
    if not chosen:
        raise BadOption(f"{manifest.operator} has several inputs: say its key columns by table, key={{table: [...]}}")
    return chosen


def _last_version(checkpoint: str, files: Files, manifest: Manifest, options: Mapping[str, Any] | None) -> int:
    """The version that the next batch reads: by the query's own log of commits, where the state lies beside it."""
    commits = [name for name in files_at(checkpoint, options).names("commits") if name.isdigit()]
    if commits:
        return max(map(int, commits)) + 1
    newest = {History(files, manifest.operator, n, manifest.folder).newest() for n in _partitions(files, manifest)}
    if len(newest) > 1:
        raise StateMismatch(
            f"{files.where}/{manifest.operator}: the partitions are at versions {sorted(newest)}: the last batch was "
            "not finished; start the query and stop it again"
        )
    return newest.pop() if newest else 0


@contextmanager
def _opened(files: Files, manifest: Manifest, number: int, version: int | None) -> Iterator[Version]:
    """A partition at a version, in a store of its own that is thrown away."""
    history = History(files, manifest.operator, number, manifest.folder)
    known = sorted({0, *history.changelogs(), *history.snapshots()})
    wanted = max(one for one in known if version is None or one <= version)
    with tempfile.TemporaryDirectory(prefix="headwater-read-") as scratch:
        partition = Partition(history, Path(scratch) / "store", (), gaps=True)
        with partition.version(wanted) as opened:
            yield opened
        partition.discard_local()


def _state_files(checkpoint: str, options: Mapping[str, Any] | None) -> Files:
    return files_at(f"{checkpoint.rstrip('/')}/headwater", options)


def _partitions(files: Files, manifest: Manifest) -> list[int]:
    return sorted(int(name) for name in files.names(manifest.folder or manifest.operator) if name.isdigit())


def _manifest(files: Files, operator: str) -> Manifest:
    found = read_manifest(files, operator)
    if found is None:
        known = ", ".join(files.names("")) or "nothing"
        raise BadOption(f"{files.where}: there is no state of an operator {operator!r}, only {known}")
    return found


def _chosen(state: State, table: str | None, operator: str) -> str:
    own = [name for name in state.tables if not name.startswith("_")]
    if table is None and len(own) == 1:
        return own[0]
    if table is None or table not in state.tables:
        raise BadOption(f"{operator}: say which of its tables: {', '.join(state.tables)}")
    return table
