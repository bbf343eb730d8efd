"""`make bench-nexmark`: every query from topics of our broker, checked; a line each, then a table of events/s.

ARGS="--events 1000000 q5 q7" runs those queries over so many events.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from bench.nexmark.queries import QUERIES
from bench.nexmark.running import Auction

EVENTS = 500_000
CORES = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.nexmark", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="QUERY", help=f"of {', '.join(QUERIES)} (default: all)")
    parser.add_argument("--events", type=int, default=EVENTS)
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in QUERIES]
    if unknown:
        parser.error(f"there is no query {unknown[0]!r}; there are {', '.join(QUERIES)}")
    return run(given.names or list(QUERIES), given.events)


def run(names: list[str], events: int) -> int:
    from headwater import Broker
    from headwater.pipeline import session

    table, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder, Broker() as broker:
        spark = session("nexmark", master=f"local[{CORES}]")
        try:
            auction = Auction(spark, broker.bootstrap_servers, events, Path(folder))
            for name in names:
                outcome = auction.run(name)
                rate = round(events / outcome.seconds)
                wrong += not outcome.equal
                line = {"name": f"nexmark_{name}", "events_s": rate, "rows": outcome.rows, "equal": outcome.equal}
                print(json.dumps(line | ({"differs": outcome.differs} if outcome.differs else {})), flush=True)
                table.append(f"| {name} | {rate:,} | {outcome.rows:,} | {'equal' if outcome.equal else 'DIFFERENT'} |")
        finally:
            spark.stop()
    print("\n| query | events/s | rows | against DuckDB |\n|---|---|---|---|\n" + "\n".join(table))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
