"""Runs in Flink's own virtual environment (see `bench.flink_peer`): SQL from standard input, a JSON line per run.

Input, one JSON object: {"jars": [path], "parallelism": 2, "tables": [DDL], "inserts": {name: SQL}, "repeat": 2}
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def environment(job: dict[str, Any]) -> Any:
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    settings = Configuration()
    settings.set_string("parallelism.default", str(job["parallelism"]))
    settings.set_string("taskmanager.numberOfTaskSlots", "4")
    settings.set_string("taskmanager.memory.managed.size", "1g")
    settings.set_string("pipeline.jars", ";".join(f"file://{jar}" for jar in job["jars"]))
    made = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )
    made.get_config().set("table.local-time-zone", "UTC")
    return made


def main() -> None:
    job = json.load(sys.stdin)
    flink = environment(job)
    for ddl in job["tables"]:
        flink.execute_sql(ddl)
    for name, sql in job["inserts"].items():
        for _ in range(job["repeat"]):
            started = time.perf_counter()
            flink.execute_sql(sql).wait()
            print(json.dumps({"name": name, "seconds": time.perf_counter() - started}), flush=True)


if __name__ == "__main__":
    main()
