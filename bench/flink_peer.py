"""Apache Flink SQL on its MiniCluster, in a virtual environment of its own: it pins libraries that we do not.

Made once in `.peers/flink/` (300 MB): PyFlink by pip, its Parquet format by Maven; Hadoop's classes are PySpark's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.kafka_peer import PEERS

__all__ = ["FLINK_VERSION", "run_flink"]

FLINK_VERSION = "2.3.0"
HOME = PEERS / "flink" / FLINK_VERSION
PARALLELISM = 2  # as many as Spark has cores
HEAP = "-Xmx4g"
RUN_S_MAX = 600


def run_flink(tables: Sequence[str], inserts: Mapping[str, str], repeat: int = 2) -> dict[str, float]:
    """The INSERT statements by name, each run `repeat` times in one JVM; the seconds that the last run of each took."""
    job = {
        "jars": [str(jar) for jar in _jars()],
        "parallelism": PARALLELISM,
        "tables": list(tables),
        "inserts": dict(inserts),
        "repeat": repeat,
    }
    done = subprocess.run(
        [str(_python()), str(Path(__file__).with_name("flink_job.py"))],
        input=json.dumps(job),
        env={**os.environ, "JVM_ARGS": HEAP},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"Flink exited with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["name"]: line["seconds"] for line in lines}


def _python() -> Path:
    python = HOME / "venv" / "bin" / "python"
    installed = HOME / "venv" / ".installed"
    if not installed.exists():
        shutil.rmtree(HOME / "venv", ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(HOME / "venv")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", f"apache-flink=={FLINK_VERSION}"], check=True)
        installed.touch()
    return python


def _jars() -> list[Path]:
    """Flink's Parquet format and the Hadoop classes it needs."""
    import pyspark

    parquet = HOME / f"flink-sql-parquet-{FLINK_VERSION}.jar"
    if not parquet.exists():
        if shutil.which("mvn") is None:
            raise RuntimeError("the Flink peer needs Maven (`mvn`) to take flink-sql-parquet; install it")
        artifact = f"org.apache.flink:flink-sql-parquet:{FLINK_VERSION}"
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
        subprocess.run(["mvn", "-q", "-B", goal, f"-Dartifact={artifact}", f"-DoutputDirectory={HOME}"], check=True)
    hadoop = sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"))
    return [parquet, *hadoop]
