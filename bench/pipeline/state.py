"""What the size and the place of state cost: 10 M keys against 10 k, and partitions that move between hosts."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession

from bench.pipeline.queries import spark_of
from bench.report import Bar
from headwater.pipeline.aggregates import count, running, sum
from headwater.pipeline.stateful.files import LocalFiles
from headwater.pipeline.stateful.history import History

KEYS = int(os.environ.get("BENCH_KEYS", "10000000"))
KEYS_FEW = 10_000
LOAD_ROWS = 500_000  # of each batch that fills the state
BATCH_ROWS, BATCHES, WARM = 10_000, 25, 5
PARTITIONS = 2
RUN_TIMEOUT_S = 280


@dataclass(frozen=True)
class Measured:
    """The 10 k-row batches of one query, and what it held."""

    median_ms: float
    memory_mib: float  # of the Python workers, the pages they share counted once
    store_mib: float
    checkpoint_mib: float
    reached: tuple[tuple[str, int, float], ...]  # how each task came to its version


def size() -> None:
    """The same batches over a small and a large state."""
    few, many = (_in_own_process(keys, "local[2]") for keys in (KEYS_FEW, KEYS))
    Bar(f"10 k-row batches over {KEYS:,} keys of state against {KEYS_FEW:,}", 1.5, "ms", at_least=False).report(
        many.median_ms, few.median_ms
    )
    _reported("memory of the Python workers", many.memory_mib, "MiB")
    _reported("local stores", many.store_mib, "MiB")
    _reported("checkpoint", many.checkpoint_mib, "MiB")


def cluster() -> None:
    """Two executors, each with stores of its own, as two hosts have."""
    found = _in_own_process(KEYS_FEW, f"local-cluster[{PARTITIONS},1,1024]")
    alone = _in_own_process(KEYS_FEW, "local[2]")
    tasks = found.reached[PARTITIONS:]  # the first batch finds nothing anywhere
    here = [one for one in tasks if one[0] == "here"]
    moved = [one for one in tasks if one[0] != "here"]
    _reported("share of tasks that find their state on their host, two executors", len(here) / len(tasks), "of 1")
    if moved:
        _reported("catch-up of a task whose state was elsewhere, median", median(ms for _, _, ms in moved), "ms")
        _reported("versions stepped forward by it, median", median(n for _, n, _ in moved), "versions")
        _reported("states rebuilt rather than stepped forward", len([1 for how, _, _ in moved if how == "rebuilt"]), "")
    _reported("batch on two executors against one process", found.median_ms / alone.median_ms, "x")


def _reported(name: str, value: float, unit: str) -> None:
    """A figure that is only told: it has no bar."""
    print(json.dumps({"name": name, "ours": round(value, 3), "unit": unit, "bar": None}), flush=True)


def _in_own_process(keys: int, master: str) -> Measured:
    """A JVM of its own: Spark's master cannot be changed in one that runs."""
    import subprocess

    command = [sys.executable, "-m", "bench.pipeline.state", str(keys), master]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=RUN_TIMEOUT_S * 2).stdout
    body = json.loads(told.splitlines()[-1])
    return Measured(**{**body, "reached": tuple(tuple(one) for one in body["reached"])})


def measure(keys: int, master: str) -> Measured:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        loads = _write_files(folder / "in", keys)
        with _session(master, folder) as spark:
            spent, memory = _run(spark, folder)
        return Measured(
            median(spent[loads + WARM :]),
            memory,
            _mib(folder / "local"),
            _mib(folder / "checkpoint" / "headwater"),
            tuple(_reached(folder / "checkpoint")),
        )


@contextmanager
def _session(master: str, folder: Path) -> Iterator[SparkSession]:
    """Executors of a cluster keep their stores in their own working folders, as hosts of their own do."""
    place = "local" if master.startswith("local-cluster") else str(folder / "local")
    os.environ["HEADWATER_STATE_DIR"] = place
    spark = spark_of(master, PARTITIONS, **{"spark.executorEnv.HEADWATER_STATE_DIR": place})
    executors = Path(pyspark.__file__).parent / "work" / spark.sparkContext.applicationId
    try:
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(executors, ignore_errors=True)


def _run(spark: SparkSession, folder: Path) -> tuple[list[float], float]:
    rows = spark.readStream.schema("user bigint, amount bigint").option("maxFilesPerTrigger", 1)
    checkpoint = str(folder / "checkpoint")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 1000)
    totals = running(
        rows.parquet(str(folder / "in")), ["user"], {"n": count(), "total": sum("amount")}, checkpoint=checkpoint
    )
    writer = totals.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(RUN_TIMEOUT_S):
        raise TimeoutError(f"the query did not end within {RUN_TIMEOUT_S} s")
    spent = [float(one.durationMs["triggerExecution"]) for one in query.recentProgress if one.numInputRows > 0]
    return spent, _workers_mib()


def _write_files(folder: Path, keys: int) -> int:
    """Files that give every key once, then `BATCHES` small ones; how many of the first kind."""
    folder.mkdir()
    chance = np.random.default_rng(1)
    starts = range(0, keys, LOAD_ROWS)
    users = [np.arange(start, min(start + LOAD_ROWS, keys)) for start in starts]
    users += [chance.integers(0, keys, BATCH_ROWS) for _ in range(BATCHES)]
    for number, column in enumerate(users):
        path = folder / f"{number:05}.parquet"
        pq.write_table(pa.table({"user": column, "amount": column % 100}), path)
        os.utime(path, (1_700_000_000 + number,) * 2)
    return len(starts)


def _workers_mib() -> float:
    """Memory of the Python workers under this process: pages that several share are counted by shares."""
    total, parents = 0.0, {os.getpid()}
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda one: int(one.name)):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent not in parents:
                continue
            parents.add(int(folder.name))
            if b"pyspark.daemon" in (folder / "cmdline").read_bytes():
                line = next(one for one in (folder / "smaps_rollup").read_text().splitlines() if one.startswith("Pss:"))
                total += int(line.split()[1]) / 1024
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


def _mib(folder: Path) -> float:
    """What is really taken on disk: stores are sparse files."""
    return float(np.sum([path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()])) / (1 << 20)


def _reached(checkpoint: Path) -> Iterator[Any]:
    histories = [History(LocalFiles(checkpoint / "headwater"), "running", number) for number in range(PARTITIONS)]
    for version in histories[0].changelogs():
        for history in histories:
            header = history.head(version)
            if header is not None:
                yield header.metrics["reached"]


if __name__ == "__main__":
    done = measure(int(sys.argv[1]), sys.argv[2])
    print(json.dumps({name: getattr(done, name) for name in Measured.__dataclass_fields__}))
