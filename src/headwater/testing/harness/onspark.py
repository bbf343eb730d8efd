"""The same test on real Spark: a folder of files for each source, one file a micro-batch, one streaming query."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.pipeline.errors import BadOption
from headwater.pipeline.time.settings import TICK, TIMESTAMP
from headwater.testing.harness.nodes import Applied, Corrected, Node, Source, Timed
from headwater.testing.harness.script import Batch, Fed, Ticked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["run_on_spark"]

RUN_TIMEOUT_S = 300  # a script of some batches takes seconds
_TICKS = pa.schema([(TICK, TIMESTAMP)])


def run_on_spark(spark: SparkSession, target: Node, script: Sequence[Batch]) -> list[pa.Table]:
    """The output of each batch of the script."""
    with tempfile.TemporaryDirectory(prefix="headwater-stream-test-", ignore_cleanup_errors=True) as folder:
        return _OnSpark(spark, Path(folder), script).run(target)


@dataclass
class _OnSpark:
    spark: SparkSession
    folder: Path
    script: Sequence[Batch]

    def run(self, target: Node) -> list[pa.Table]:
        outputs: dict[int, pa.Table] = {}

        def keep(rows: DataFrame, batch: int) -> None:
            outputs[batch] = rows.toArrow()

        writer = self._frame(target, {}).writeStream.foreachBatch(keep).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.folder / "query")).start()
        try:
            if not query.awaitTermination(RUN_TIMEOUT_S):
                raise BadOption(f"the query did not come to its end within {RUN_TIMEOUT_S} s")
        finally:
            query.stop()
        return [outputs[number] for number in sorted(outputs)]

    def _frame(self, node: Node, done: dict[int, DataFrame]) -> DataFrame:
        from headwater.pipeline.stateful.spark import SparkEngine

        if id(node) in done:
            return done[id(node)]
        engine = SparkEngine(ticks=lambda _: self._ticks())
        if isinstance(node, Source):
            made = self._source(node)
        elif isinstance(node, Timed):
            if node.columns.time is None:
                raise BadOption("processing time cannot be moved by hand on Spark: run this test without it")
            made = engine.timed(self._frame(node.input, done), node.columns, node.settings)
        elif isinstance(node, Corrected):
            made = engine.device_time(self._frame(node.input, done), node.clock)
        else:
            _ship(node)
            made = engine.stateful(self._placed(node), {n: self._frame(one, done) for n, one in node.inputs.items()})
        done[id(node)] = made
        return made

    def _placed(self, node: Applied) -> Any:
        """The plan with its state in this run's folder."""
        place = self.folder / f"state-{id(node)}"
        return replace(
            node.plan,
            options=replace(node.plan.options, checkpoint=str(place), local_dir=str(place / "local")),
        )

    def _source(self, node: Source) -> DataFrame:
        tables = [
            pa.Table.from_pylist(
                [s.row for s in batch.steps if isinstance(s, Fed) and s.source == node.name], schema=node.schema
            )
            for batch in self.script
        ]
        return self._files(node.name, tables, node.schema)

    def _ticks(self) -> DataFrame:
        tables = [
            pa.Table.from_pylist([{TICK: s.at} for s in batch.steps if isinstance(s, Ticked)], schema=_TICKS)
            for batch in self.script
        ]
        return self._files("ticks", tables, _TICKS)

    def _files(self, name: str, tables: Sequence[pa.Table], schema: pa.Schema) -> DataFrame:
        """A stream that gives one of the tables in each micro-batch; times of the files say which is next."""
        from pyspark.sql.pandas.types import from_arrow_schema

        folder = self.folder / "sources" / name
        if not folder.exists():
            folder.mkdir(parents=True)
            for number, table in enumerate(tables):
                path = folder / f"{number:06d}.parquet"
                pq.write_table(table, path)
                os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        reader = self.spark.readStream.schema(from_arrow_schema(schema)).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(folder))


def _ship(node: Applied) -> None:
    """Send the operator's own code with it: a test's module is not there for Spark's workers to import."""
    from pyspark import cloudpickle

    module = type(node.plan.program.operator).__module__
    if module.partition(".")[0] != "headwater":
        cloudpickle.register_pickle_by_value(sys.modules[module])  # type: ignore[no-untyped-call]
