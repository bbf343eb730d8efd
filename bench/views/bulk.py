"""Each store's own fastest way to take a million rows at once, without us: rows in memory, keys enforced, durable."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headwater.views.rows import Row

__all__ = ["BULK_LOADS", "BulkLoad"]

BulkLoad = Callable[[str, Path, Sequence[Row], Sequence[bytes]], float]  # address, folder, rows, texts → seconds

COLUMNS = ("id", "count", "amount", "city", "text")


def sqlite_load(_: str, folder: Path, rows: Sequence[Row], texts: Sequence[bytes]) -> float:
    """One transaction, executemany of tuples."""
    tuples = [tuple(row.values()) for row in rows]
    with sqlite3.connect(folder / "bulk.db", isolation_level=None) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA cache_size=-65536")
        db.execute("CREATE TABLE t (id TEXT PRIMARY KEY, count INT, amount REAL, city TEXT, text TEXT)")
        started = time.perf_counter()
        db.execute("BEGIN")
        db.executemany("INSERT OR REPLACE INTO t VALUES (?, ?, ?, ?, ?)", tuples)
        db.execute("COMMIT")
        return time.perf_counter() - started


def lmdb_load(_: str, folder: Path, rows: Sequence[Row], texts: Sequence[bytes]) -> float:
    """putmulti in one transaction."""
    import lmdb

    items = [(str(row["id"]).encode(), text) for row, text in zip(rows, texts, strict=True)]
    env = lmdb.open(str(folder / "bulk"), map_size=1 << 34)
    started = time.perf_counter()
    with env.begin(write=True) as txn:
        txn.cursor().putmulti(items)
    took = time.perf_counter() - started
    env.close()
    return took


def postgres_load(address: str, _: Path, rows: Sequence[Row], texts: Sequence[bytes]) -> float:
    """COPY of prepared text into a table with its primary key."""
    import psycopg

    chunks = [
        "".join("\t".join(map(str, row.values())) + "\n" for row in rows[start : start + 50_000])
        for start in range(0, len(rows), 50_000)
    ]
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("DROP TABLE IF EXISTS bulk")
        db.execute(
            "CREATE TABLE bulk (id text PRIMARY KEY, count bigint, amount double precision, city text, text text)"
        )
        started = time.perf_counter()
        with db.cursor().copy("COPY bulk FROM STDIN") as copy:
            for chunk in chunks:
                copy.write(chunk)
        took = time.perf_counter() - started
        db.execute("DROP TABLE bulk")
        return took


def redis_load(address: str, _: Path, rows: Sequence[Row], texts: Sequence[bytes]) -> float:
    """MSET of 2,000 rows at a time, pipelined."""
    import redis

    client = redis.Redis.from_url(address)
    pairs = [(f"bulk:{row['id']}", text) for row, text in zip(rows, texts, strict=True)]
    parts = [dict(pairs[start : start + 2_000]) for start in range(0, len(pairs), 2_000)]
    started = time.perf_counter()
    for start in range(0, len(parts), 20):
        pipe = client.pipeline(transaction=False)
        for part in parts[start : start + 20]:
            pipe.mset(part)
        pipe.execute()
    took = time.perf_counter() - started
    client.flushall()
    return took


def tantivy_load(_: str, folder: Path, rows: Sequence[Row], texts: Sequence[bytes]) -> float:
    """Documents of the same fields, added and committed once; the row itself stored beside them."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field("row", stored=True, indexed=False)
    builder.add_text_field("text", stored=True)
    builder.add_text_field("city", tokenizer_name="raw", index_option="basic", fast=True)
    (folder / "bulk").mkdir()
    writer = tantivy.Index(builder.build(), path=str(folder / "bulk")).writer(128 << 20, 1)
    started = time.perf_counter()
    for row, text in zip(rows, texts, strict=True):
        document = tantivy.Document()
        document.add_text("id", row["id"])
        document.add_bytes("row", text)
        document.add_text("text", row["text"])
        document.add_text("city", row["city"])
        writer.add_document(document)
    writer.commit()
    return time.perf_counter() - started


def delta_load(_: str, folder: Path, rows: Sequence[Row], texts: Sequence[bytes]) -> float:
    """One append of an Arrow table."""
    import pyarrow as pa
    from deltalake import write_deltalake

    table = pa.table({name: [row[name] for row in rows] for name in COLUMNS})
    started = time.perf_counter()
    write_deltalake(str(folder / "bulk"), table)
    return time.perf_counter() - started


def opensearch_load(address: str, _: Path, rows: Sequence[Row], texts: Sequence[bytes]) -> float:
    """The bulk API, 5,000 rows a request, one refresh at the end."""
    import http.client
    import urllib.parse

    url = urllib.parse.urlsplit(address.removeprefix("opensearch:"))
    client = http.client.HTTPConnection(url.hostname or "", url.port)
    bodies = [_bulk_body(rows, texts, start, start + 5_000) for start in range(0, len(rows), 5_000)]
    _ask(client, "PUT", "/bulk", b'{"settings":{"index":{"number_of_replicas":0,"refresh_interval":"-1"}}}')
    started = time.perf_counter()
    for body in bodies:
        _ask(client, "POST", "/bulk/_bulk?filter_path=errors", body)
    _ask(client, "POST", "/bulk/_refresh", b"")
    took = time.perf_counter() - started
    _ask(client, "DELETE", "/bulk", b"")
    return took


def _bulk_body(rows: Sequence[Row], texts: Sequence[bytes], start: int, end: int) -> bytes:
    pairs = zip(rows[start:end], texts[start:end], strict=True)
    return b"".join(b'{"index":{"_id":"%b"}}\n%b\n' % (str(row["id"]).encode(), text) for row, text in pairs)


def _ask(client: Any, method: str, path: str, body: bytes) -> None:
    client.request(method, path, body, {"Content-Type": "application/json"})
    answer = client.getresponse()
    text = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"OpenSearch answered {answer.status}: {text[:300]!r}")


BULK_LOADS: dict[str, BulkLoad] = {
    "sqlite": sqlite_load,
    "lmdb": lmdb_load,
    "postgresql": postgres_load,
    "redis": redis_load,
    "tantivy": tantivy_load,
    "delta": delta_load,
    "opensearch": opensearch_load,
}
