"""`make bench-views`: every bar of the views, a JSON line each; ARGS="--only lag --stores sqlite,lmdb" runs a part."""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.broker.servers import headwater
from bench.report import Bar
from bench.views.bulk import BULK_LOADS
from bench.views.lag import lag_p99_ms
from bench.views.rebuilding import measure_rebuild
from bench.views.rows import fill, make_rows, texts_of
from headwater.client import Connection
from headwater.testing.postgres import PostgresServer
from headwater.testing.redis import RedisServer, install_redis
from headwater.views import Definition, Follower, create
from headwater.views.tail import ends_of

STORES = ("sqlite", "lmdb", "postgresql", "redis", "tantivy", "delta")
OPTIONS: dict[str, dict[str, Any]] = {"tantivy": {"fields": {"text": "text", "city": "keyword"}}}
SEARCH_BAR_MS, TABLE_BAR_MS = 1_000.0, 100.0
APPLY_DEADLINE_S = 900.0
OPENSEARCH_ROWS = 100_000  # it takes 12,000 rows a second


@contextmanager
def address_of(kind: str, folder: Path) -> Iterator[str]:
    """A place for a view, with its server if it needs one."""
    with ExitStack() as stack:
        if kind == "postgresql":
            server = stack.enter_context(PostgresServer())
            yield f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
        elif kind == "redis":
            why = install_redis()
            if why:
                raise RuntimeError(why)
            yield stack.enter_context(RedisServer()).url
        elif kind == "opensearch":
            from tests.views.opensearch import OpenSearchServer

            yield stack.enter_context(OpenSearchServer()).address
        else:
            yield f"{kind}:{folder / kind}" + (".db" if kind == "sqlite" else "")


def apply(stores: Sequence[str], count: int) -> None:
    """1M keyed upserts from the log into each store, against its own bulk load of the same rows."""
    rows = make_rows(count)
    texts = texts_of(rows)
    gc.freeze()  # the rows in memory are the benchmark's: nobody's collector should look through them
    with headwater() as broker:
        log = Connection(broker.bootstrap)
        fill(log, "rows", rows, texts)
        fill(log, "fewer", rows[:OPENSEARCH_ROWS], texts[:OPENSEARCH_ROWS])
        for kind in stores:
            few = kind == "opensearch"
            given, topic = (rows[:OPENSEARCH_ROWS], "fewer") if few else (rows, "rows")
            with tempfile.TemporaryDirectory() as folder, address_of(kind, Path(folder)) as address:
                ours = _applied_s(log, kind, topic, address)
                peer = BULK_LOADS[kind](address, Path(folder), given, texts[: len(given)])
            Bar(f"apply to {kind}: keyed upserts of 200 B against its own bulk load", 0.5, "rows/s").report(
                len(given) / ours, len(given) / peer
            )


def _applied_s(log: Connection, kind: str, topic: str, address: str) -> float:
    definition = Definition.of("bench", topic=topic, store=address, key=["id"], options=OPTIONS.get(kind, {}))
    create(definition)
    store = definition.open_store()
    ends = ends_of(log, [topic])
    started = time.perf_counter()
    with Follower(definition, log, store, 1) as follower:
        if not follower.wait_until(ends, APPLY_DEADLINE_S):
            raise RuntimeError(f"{kind}: {follower.state}: {follower.error}")
        took = time.perf_counter() - started
    with store.reader().snapshot() as found:
        rows, expected = found.count(), sum(ends.offsets.values())
        if rows != expected:
            raise RuntimeError(f"{kind} has {rows} rows of {expected}")
    store.close()
    return took


def lag(stores: Sequence[str], _: int) -> None:
    """1,000 changes a second: from produce to readable."""
    with headwater() as broker:
        log = Connection(broker.bootstrap)
        for kind in stores:
            if kind == "delta":
                continue  # by its interval, which is what it is set to
            with tempfile.TemporaryDirectory() as folder, address_of(kind, Path(folder)) as address:
                found = lag_p99_ms(log, f"lag-{kind}", address, OPTIONS.get(kind, {}))
            bar = SEARCH_BAR_MS if kind in ("tantivy", "opensearch") else TABLE_BAR_MS
            Bar(f"lag of {kind} at 1,000 changes/s, p99 from produce to readable", bar, "ms", at_least=False).report(
                found, None
            )


def rebuild(stores: Sequence[str], count: int) -> None:
    """1M rows rebuilt beside the live view, with readers all the time."""
    rows = make_rows(count)
    with headwater() as broker:
        log = Connection(broker.bootstrap)
        fill(log, "rows", rows, texts_of(rows))
        for kind in stores:
            with tempfile.TemporaryDirectory() as folder, address_of(kind, Path(folder)) as address:
                definition = Definition.of(
                    "bench", topic="rows", store=address, key=["id"], options=OPTIONS.get(kind, {})
                )
                found = measure_rebuild(log, definition, count)
            Bar(
                f"rebuild of {kind}: reads that saw neither the old rows nor the new", 0, "reads", at_least=False
            ).report(found.mixtures, None)
            Bar(f"rebuild of {kind}: longest that a reader waited", 1_000, "ms", at_least=False).report(
                found.longest_read_ms, None
            )


PARTS: dict[str, Callable[[Sequence[str], int], None]] = {"apply": apply, "lag": lag, "rebuild": rebuild}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.views", description=__doc__)
    parser.add_argument("--only", choices=list(PARTS))
    parser.add_argument("--stores", default=",".join(STORES), help=f"of {', '.join(BULK_LOADS)}")
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    for name, part in PARTS.items():
        if given.only in (None, name):
            part(given.stores.split(","), given.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
