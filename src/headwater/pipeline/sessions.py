"""A SparkSession for streaming in one line, or the settings and registrations on one that exists.

    spark = session()                                   everything on this machine
    spark = session(master="spark://host:7077")         a cluster; nothing else changes
    spark = prepare_session(existing)                   a session somebody else made

A session that exists keeps its own settings; only what the ends of a pipeline need is registered on it. On a cluster
the executors need `headwater` and its dependencies: install it there, or ship this one with `ship_package(spark)`.

`realtime=True` makes custom operators answer in milliseconds under Spark's Real-time Mode: Python workers are
pipelined and hand rows on as they come, for a price in throughput (every buffer is small). Output is then written at
least once; state stays exactly once.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater.pipeline.errors import BadOption
from headwater.pipeline.jars import java_command, prepare_jars

__all__ = ["prepare_session", "session", "ship_package"]

TASK_ATTEMPTS = 4  # a task that fails is tried this often before its query fails; Spark's own default on clusters
REALTIME_BUFFER_BYTES = 64  # measured: with Spark's 64 KB rows leave a Python worker seconds late, with 64 B at once
REALTIME_ARROW_ROWS = 4  # rows that wait for each other before a Python worker sees them, in Real-time Mode
REALTIME_CORES_MIN = 6  # every stage of a Real-time query holds its task slots for good: source + shuffle tasks

_LOCAL = re.compile(r"local(\[(?P<cores>\*|\d+)(,\d+)?\])?")

# Streaming settings that hold on any master. Each can be overridden by `settings`.
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # commits a small changelog per batch instead of uploading whole state files
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

_REALTIME = {
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    "spark.python.udf.pipelined.enabled": "true",
    "spark.buffer.size": str(REALTIME_BUFFER_BYTES),
    "spark.sql.execution.pandas.udf.buffer.size": str(REALTIME_BUFFER_BYTES),
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(REALTIME_ARROW_ROWS),
}


def session(
    app: str = "headwater",
    *,
    master: str = "local[*]",
    shuffle_partitions: int | None = None,
    realtime: bool = False,
    ui: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A SparkSession with the Kafka connector, streaming settings, and `format("headwater")` registered.

    `shuffle_partitions`: how many tasks share keyed work (default: the local cores; on a cluster Spark's default).
    `settings` are Spark's own, and win over ours.
    """
    if shuffle_partitions is not None and shuffle_partitions < 1:
        raise BadOption(f"session: shuffle_partitions is {shuffle_partitions}, but it must be 1 or more")
    java_command()
    options = {
        **_DEFAULTS,
        "spark.jars": ",".join(map(str, prepare_jars())),
        **_master_settings(master, realtime),
        **(_REALTIME if realtime else {}),
    }
    options["spark.ui.enabled"] = str(ui).lower()
    if shuffle_partitions is not None:
        options["spark.sql.shuffle.partitions"] = str(shuffle_partitions)
    options.update(settings or {})
    _same_python_everywhere()
    builder: Any = SparkSession.builder.appName(app)
    return prepare_session(builder.config(map=options).getOrCreate())


def prepare_session(spark: SparkSession) -> SparkSession:
    """Register what pipelines need on a session that exists, and return it. Safe to call again."""
    from headwater.pipeline.sink import HeadwaterSink

    spark.dataSource.register(HeadwaterSink)
    return spark


def ship_package(spark: SparkSession) -> None:
    """Send this `headwater` to the executors of a cluster where it is not installed (its dependencies must be)."""
    package = Path(__file__).parents[1]
    scratch = tempfile.mkdtemp(prefix="headwater-ship-")
    archive = shutil.make_archive(str(Path(scratch) / "headwater"), "zip", package.parent, package.name)
    spark.sparkContext.addPyFile(archive)


def _master_settings(master: str, realtime: bool) -> dict[str, str]:
    local = _LOCAL.fullmatch(master)
    if local is None:
        if not re.match(r"(spark://|local-cluster\[|yarn$|k8s://)", master):
            raise BadOption(f"session: {master!r} is not a Spark master; say local[*], local[4], spark://host:7077 ...")
        loopback = {"spark.driver.host": "127.0.0.1"} if master.startswith("local-cluster[") else {}
        return {"spark.master": master, **loopback}
    text = local["cores"] or "1"
    cores = (os.cpu_count() or 1) if text == "*" else int(text)
    slots = max(cores, REALTIME_CORES_MIN) if realtime else cores
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return {
        # plain local[N] fails a query on its first failed task
        "spark.master": f"local[{slots},{TASK_ATTEMPTS}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(cores),
    }


def _same_python_everywhere() -> None:
    """Workers run the interpreter of the driver unless the user has said otherwise."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
