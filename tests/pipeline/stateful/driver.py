"""A driver to be killed: `python -m tests.pipeline.stateful.driver FOLDER`.

It counts the users of FOLDER/in, a file a batch, and writes what each batch gave to FOLDER/out/BATCH.json, whole.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from headwater.pipeline import session
from headwater.pipeline.aggregates import count, running, sum
from headwater.pipeline.time import event_time


def main() -> None:
    folder = Path(sys.argv[1])
    spark = session("to-be-killed", master="local[2]")
    fields = "user string, amount bigint, at timestamp"
    rows = spark.readStream.schema(fields).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    where: Any = {"checkpoint": str(folder / "checkpoint"), "local_dir": str(folder / "local"), "keep_versions": 5}
    totals = running(event_time(rows, "at"), ["user"], {"n": count(), "total": sum("amount")}, **where)

    def keep(out: Any, batch: int) -> None:
        told = sorted([row["user"], row["n"], row["total"]] for row in out.toArrow().to_pylist())
        beside = folder / "out" / f".{batch}"
        beside.write_text(json.dumps(told))
        beside.rename(folder / "out" / f"{batch:05}.json")

    writer = totals.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
