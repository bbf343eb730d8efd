"""A driver to be killed: `python -m tests.pipeline.kills.driver '{...}'`.

Says `ready` when its session is up, starts the query when it reads a line, then prints a JSON line for every batch.
"""

from __future__ import annotations

import json
import sys

from headwater.client import Connection
from headwater.pipeline import Json, session, to_records, topic, write_topic
from headwater.pipeline.writing import METRICS

POLL_S = 0.05


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = session("to-be-killed", master=given["master"], settings=given["settings"])
    print("ready", flush=True)
    sys.stdin.readline()
    log = Connection(given["bootstrap"])
    rows = topic(
        spark,
        given["source"],
        connection=log,
        value=Json("id bigint not null"),
        records_per_batch=given["records_per_batch"],
    )
    query = write_topic(
        to_records(rows, key=["id"]),
        given["sink"],
        connection=log,
        query=given["query"],
        checkpoint=given["checkpoint"],
        writers=2,
    )
    told = -1
    while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]
        for progress in query.recentProgress:
            if progress.batchId > told and METRICS in progress.observedMetrics:
                told = progress.batchId
                print(json.dumps({"batch": told, **progress.observedMetrics[METRICS].asDict()}), flush=True)


if __name__ == "__main__":
    main()
