"""Runs Nexmark's queries: events into topics, a streaming query for each from the topics, results checked by DuckDB."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from bench.nexmark.generator import BASE_US, KINDS, events
from bench.nexmark.queries import FLUSH, QUERIES, SCHEMAS, Streams
from bench.nexmark.reference import REFERENCES
from headwater.client import Connection, Writer, ensure_topics
from headwater.pipeline import Json, topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Auction", "Outcome"]

PARTITIONS = 2  # of each topic
RATE = 10_000  # events a second of event time
PIECE = 50_000  # events generated and written at once
FLUSH_AFTER_US = 3_600_000_000  # after the last event: every window is over


@dataclass(frozen=True)
class Outcome:
    """How long a query took to read everything, and whether it gave what it must; `differs` shows a few rows."""

    seconds: float
    rows: int
    equal: bool
    differs: str = ""


class Auction:
    """The events, in topics of a broker and in tables of DuckDB."""

    def __init__(self, spark: SparkSession, bootstrap: str, events_count: int, folder: Path) -> None:
        self._spark, self._log, self._folder = spark, Connection(bootstrap), folder
        self.count = events_count
        self._tables = duckdb.connect()
        self._suffix = f"{time.time_ns():x}"
        self._fill()

    def _name(self, kind: str) -> str:
        return f"nexmark-{kind}-{self._suffix}"

    def _fill(self) -> None:
        ensure_topics(self._log, [self._name(kind) for kind in KINDS], partitions=PARTITIONS)
        files = {kind: self._folder / f"{kind}.parquet" for kind in KINDS}
        with _parquet(files) as writers, Writer(self._log) as log:
            for piece in events(self.count, RATE, PIECE):
                for kind, table in piece.items():
                    writers(kind, table)
                    for number, row in enumerate(_json(table)):
                        log.write(self._name(kind), row, partition=number % PARTITIONS)
                log.flush()
            for kind in KINDS:
                for partition in range(PARTITIONS):
                    log.write(self._name(kind), self._last_word(kind), partition=partition)
            log.flush()
        for kind, file in files.items():
            self._tables.execute(f"CREATE TABLE {kind} AS SELECT * FROM read_parquet('{file}')")

    def _last_word(self, kind: str) -> bytes:
        """A row that moves time on until every window is over."""
        at = BASE_US + self.count * 1_000_000 // RATE + FLUSH_AFTER_US
        row: dict[str, Any] = {("auction" if kind == "bid" else "id"): FLUSH, "date_time": _iso(at), "price": FLUSH}
        row |= {"bidder": FLUSH, "seller": FLUSH, "name": "", "channel": "", "url": "", "extra": ""}
        return json.dumps(row).encode()

    def run(self, name: str, records_per_batch: int | None = None) -> Outcome:
        """The query over all events, from its topics into Parquet files; then the check."""
        place = Path(tempfile.mkdtemp(dir=self._folder))
        topics = {
            kind: topic(
                self._spark,
                self._name(kind),
                connection=self._log,
                value=Json(SCHEMAS[kind]),
                records_per_batch=records_per_batch,
            )
            for kind in KINDS
        }
        result = QUERIES[name](Streams(self._spark, topics, str(place / "query")))
        started = time.perf_counter()
        query = (
            result.writeStream.foreachBatch(_into(place / "rows"))
            .option("checkpointLocation", str(place / "query"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds = time.perf_counter() - started
        try:
            return self._checked(name, place / "rows", "_weight" in result.columns, seconds)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _checked(self, name: str, rows: Path, weighted: bool, seconds: float) -> Outcome:
        """The result, added up by its weights, and the reference differ in no row and no count."""
        sql, compared = REFERENCES[name]
        columns = ", ".join(compared)
        weight = "_weight" if weighted else "1"
        if name == "q12":  # windows of processing time: only what they add up to is the same every time
            found = "SELECT bidder, sum(n * _weight)::BIGINT AS n, 1 AS w FROM {} GROUP BY bidder"
        else:
            found = f"SELECT {columns}, sum({weight})::BIGINT AS w FROM {{}} GROUP BY ALL HAVING w <> 0"
        files = sorted(rows.glob("*/*.parquet"))
        if not files:
            return Outcome(seconds, 0, False, "no rows came out")
        flushed = " AND ".join(f"{c} IS DISTINCT FROM {FLUSH}" for c in ("auction", "bidder", "id") if c in compared)
        source = f"(SELECT * FROM read_parquet({[str(one) for one in files]!r}) WHERE {flushed or 'true'})"
        mine = f"({found.format(source)})"
        wanted = f"(SELECT {columns}, count(*) AS w FROM ({sql}) GROUP BY ALL)"
        self._tables.execute("SET TimeZone = 'UTC'")
        sides = [f"(SELECT 'ours' AS side, * FROM ({mine} EXCEPT {wanted}))"]
        sides += [f"(SELECT 'reference' AS side, * FROM ({wanted} EXCEPT {mine}))"]
        different = self._tables.execute(
            " UNION ALL ".join(f"(SELECT * FROM {one} LIMIT 5)" for one in sides)
        ).fetchall()
        counted = self._tables.execute(f"SELECT count(*) FROM {wanted}").fetchone()
        assert counted is not None
        return Outcome(seconds, int(counted[0]), not different and counted[0] > 0, "\n".join(map(str, different)))


def _into(folder: Path) -> Any:
    def write(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(str(folder / str(batch)))

    return write


@contextmanager
def _parquet(files: dict[str, Path]) -> Iterator[Any]:
    writers: dict[str, pq.ParquetWriter] = {}

    def write(kind: str, table: pa.Table) -> None:
        if kind not in writers:
            writers[kind] = pq.ParquetWriter(files[kind], table.schema)
        writers[kind].write_table(table)

    try:
        yield write
    finally:
        for writer in writers.values():
            writer.close()


def _json(table: pa.Table) -> Iterator[bytes]:
    for row in table.to_pylist():
        yield msgspec.json.encode(row)


def _iso(at: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)).strftime("%Y-%m-%dT%H:%M:%S.%f")
