"""`headwater capture postgres|sqlite|status|verify`: follow a database into topics, see how far it is, compare.

`verify` takes the options that the capture was started with: they say how a row is encoded.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.cli.kafka import add_connection, connection
from headwater.errors import BadInput, SettingError

if TYPE_CHECKING:
    from headwater.capture.captures import Capture
    from headwater.capture.settings import ColumnRule
    from headwater.client import Connection

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Follow a database into topics: every committed change, in commit order, once."

REPORT_INTERVAL_S = 1.0
SIZES = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    postgres = commands.add_parser("postgres", help="follow a PostgreSQL database until stopped", allow_abbrev=False)
    _postgres_options(postgres)
    sqlite = commands.add_parser("sqlite", help="follow an SQLite database until stopped", allow_abbrev=False)
    _sqlite_options(sqlite)
    status = commands.add_parser("status", help="lag, slot and snapshot progress of captures", allow_abbrev=False)
    status.add_argument("name", nargs="*", help="of captures (default: all)")
    verify = commands.add_parser("verify", help="compare tables with their topics, row by row", allow_abbrev=False)
    databases = verify.add_subparsers(dest="database", required=True, metavar="DATABASE")
    for name, options in (("postgres", _postgres_options), ("sqlite", _sqlite_options)):
        each = databases.add_parser(name, help="with the options of the capture", allow_abbrev=False)
        options(each)
        each.add_argument("--timeout", type=float, default=60.0, metavar="S", help="for the capture to catch up")
    for each in (postgres, sqlite, status, *databases.choices.values()):
        add_connection(each)
        each.add_argument("--json", action="store_true", help="one JSON object a line")


def _postgres_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dsn", default="", help="libpq's connection string or URL; PGHOST, PGPASSWORD, ~/.pgpass count as usual")
    _common_options(parser)
    add("--slot", default="", help="replication slot (default: made from the name)")
    add("--publication", default="", help="publication (default: made from the name)")
    add("--signal-table", default="", metavar="TABLE", help="a table (id, type, data) whose inserts are signals")
    add("--max-wal", metavar="SIZE", help="how much log PostgreSQL may keep for this capture, for example 20G")
    add("--at-limit", choices=["report", "stop", "drop"], default="report", help="what happens beyond --max-wal")
    add("--at-gap", choices=["stop", "resnapshot"], default="stop", help="when PostgreSQL has lost our place")
    add("--row-filter", action="append", default=[], metavar="TABLE=CONDITION", help="only rows for which this holds")
    add("--unavailable", choices=["placeholder", "reselect"], default="placeholder", help="large unchanged values")


def _sqlite_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file", type=Path, required=True, metavar="FILE", help="the database")
    _common_options(parser)
    parser.add_argument("--at-gap", choices=["stop", "resnapshot"], default="stop", help="when our place is lost")


def _common_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--name", required=True, help="identifies the capture; its position is found again by it")
    add("--tables", action="append", default=[], metavar="PATTERN", help="schema.table with * and ?; repeatable")
    add("--exclude-tables", action="append", default=[], metavar="PATTERN")
    add("--exclude-columns", action="append", default=[], metavar="PATTERN", help="schema.table.column")
    add("--mask", action="append", default=[], metavar="PATTERN", help="columns shown as ****")
    add("--hash", action="append", default=[], metavar="PATTERN", help="columns shown as HMAC-SHA-256")
    add("--hash-key-file", type=Path, metavar="FILE", help="the key for --hash")
    add("--truncate", action="append", default=[], metavar="PATTERN=N", help="columns cut to N characters")
    add("--key-columns", action="append", default=[], metavar="TABLE=A,B", help="the key of a table without one")
    add("--outbox-tables", action="append", default=[], metavar="PATTERN", help="tables whose inserts are events")
    add("--prefix", default="", help="of the topics (default: the name)")
    add("--form", choices=["debezium", "debezium-schema", "flat"], default="debezium")
    add("--decimals", choices=["precise", "string", "double"], default="precise")
    add("--binary", choices=["base64", "hex"], default="base64")
    add("--no-tombstones", dest="tombstones", action="store_false")
    add("--no-truncates", dest="truncates", action="store_false")
    add(
        "--transaction-topic",
        action="store_true",
        help="also a topic of transactions, and each event's order in its own",
    )
    add("--snapshot", choices=["initial", "never"], default="initial")
    add("--chunk-rows", type=int, default=50_000)
    add("--heartbeat-s", type=float, default=0.0)
    add("--partitions", type=int, default=-1, help="of the topics made (default: the broker's)")


def run(arguments: argparse.Namespace) -> int:
    where = connection(arguments)
    if arguments.command == "status":
        return _status(where, arguments.name, as_json=arguments.json)
    database = arguments.database if arguments.command == "verify" else arguments.command
    capture = (_postgres if database == "postgres" else _sqlite)(arguments, where)
    if arguments.command == "verify":
        return _verify(capture, arguments.timeout, as_json=arguments.json)
    return _follow(capture, as_json=arguments.json)


def _postgres(arguments: argparse.Namespace, where: Connection) -> Capture:
    from headwater.capture import Postgres

    return Postgres(
        arguments.dsn,
        bootstrap=where,
        slot=arguments.slot,
        publication=arguments.publication,
        signal_table=arguments.signal_table,
        max_wal_bytes=None if arguments.max_wal is None else _size(arguments.max_wal),
        at_limit=arguments.at_limit,
        at_gap=arguments.at_gap,
        row_filters=dict(_pairs("--row-filter", arguments.row_filter)),
        unavailable=arguments.unavailable,
        **_settings(arguments),
    )


def _sqlite(arguments: argparse.Namespace, where: Connection) -> Capture:
    from headwater.capture import SQLite

    return SQLite(arguments.file, bootstrap=where, at_gap=arguments.at_gap, **_settings(arguments))


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    same = (
        "name exclude_tables exclude_columns outbox_tables prefix form decimals binary tombstones truncates"
        " transaction_topic snapshot chunk_rows heartbeat_s partitions"
    )
    return {
        **{name: getattr(arguments, name) for name in same.split()},
        "tables": arguments.tables or ["*"],
        "column_rules": _rules(arguments),
        "key_columns": {t: c.split(",") for t, c in _pairs("--key-columns", arguments.key_columns)},
    }


def _rules(arguments: argparse.Namespace) -> dict[str, ColumnRule]:
    from headwater.capture import Hash, Mask, Truncate

    rules: dict[str, ColumnRule] = {pattern: Mask() for pattern in arguments.mask}
    if arguments.hash:
        if arguments.hash_key_file is None:
            raise SettingError("--hash needs --hash-key-file: without a secret key, hashes can be guessed")
        key = _read_key(arguments.hash_key_file)
        rules.update((pattern, Hash(key)) for pattern in arguments.hash)
    for pattern, count in _pairs("--truncate", arguments.truncate):
        if not count.isdigit():
            raise SettingError(f"--truncate {pattern}={count}: {count!r} is not a number of characters")
        rules[pattern] = Truncate(int(count))
    return rules


def _read_key(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError as error:
        raise SettingError(f"--hash-key-file {file}: {error.strerror}") from error


def _pairs(option: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, separator, value = text.partition("=")
        if not (name and separator and value):
            raise SettingError(f"{option} {text!r}: write NAME=VALUE")
        yield name, value


def _size(text: str) -> int:
    number, unit = (text[:-1], text[-1]) if text[-1:].isalpha() else (text, "")
    if not number.isdigit() or unit not in SIZES:
        raise BadInput(f"--max-wal {text!r}: write a number of bytes, or with k, M, G or T")
    return int(number) * SIZES[unit]


def _follow(capture: Capture, *, as_json: bool) -> int:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    stopping = threading.Event()
    before = {each: signal.signal(each, lambda *_: stopping.set()) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        _report_until(stopping, capture, as_json=as_json)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    return 0


def _report_until(stopping: threading.Event, capture: Capture, *, as_json: bool) -> None:
    from headwater.status import Reporter

    settings = capture.settings
    with Reporter(settings.connection, "capture", lambda: {settings.name: capture.status()}), capture:
        said = ""
        while not stopping.wait(REPORT_INTERVAL_S):
            capture.check()
            status = capture.status()
            text = json.dumps(status) if as_json else "\n".join(_progress(status))
            if text != said and text:
                print(text, flush=True)
            said = text


def _progress(status: dict[str, Any]) -> Iterator[str]:
    tables = status.get("snapshot") or []
    for table in tables:
        if not table["done"]:
            eta = "" if table["eta_s"] is None else f", {table['eta_s']:.0f} s to go"
            yield f"{table['table']}: {table['rows']:,} of about {table['total']:,} rows ({table['percent']} %){eta}"
    if "snapshot" in status and all(table["done"] for table in tables):
        yield f"following; {status['events']:,} records written"


def _status(where: Connection, names: Sequence[str], *, as_json: bool) -> int:
    from headwater.capture.status import statuses

    found = list(statuses(where, names))
    for status in found:
        print(json.dumps(status) if as_json else "\n".join(_described(status)), flush=True)
    if not found and not as_json:
        print("no capture has written to this log yet; `headwater capture postgres --help` says how to start one")
    return 0


def _described(status: dict[str, Any]) -> Iterator[str]:
    yield f"{status['name']}: at {status['position']}, said {status['age_s']:.0f} s ago"
    for label, name, unit in (
        ("behind", "lag_s", "s"),
        ("behind", "lag_bytes", "bytes"),
        ("kept by the database for us", "kept_bytes", "bytes"),
    ):
        if status.get(name) is not None:
            yield f"  {label}: {status[name]:,} {unit}"
    if status.get("slot"):
        yield f"  slot {status['slot']}: {status.get('wal_status') or 'unknown'}"
    for table in status["tables"]:
        state = "read" if table["done"] else f"{table['rows']:,} rows read, going on"
        yield f"  {table['table']}: {state}"


def _verify(capture: Capture, timeout_s: float, *, as_json: bool) -> int:
    verdicts = capture.verify(timeout_s)
    for verdict in verdicts:
        if as_json:
            print(json.dumps(verdict.describe()), flush=True)
            continue
        result = "equal" if verdict.same else "NOT EQUAL"
        print(
            f"{verdict.table}: {result}; {verdict.equal:,} rows equal, {verdict.older:,} of an older version of the "
            f"table, {verdict.changing:,} changing; {verdict.missing:,} not in the topic, {verdict.extra:,} only in "
            f"the topic, {verdict.different:,} different"
        )
        for example in verdict.examples if not verdict.same else ():
            print(f"  {example}")
    return 0 if all(verdict.same for verdict in verdicts) else 1
