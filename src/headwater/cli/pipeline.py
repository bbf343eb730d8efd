"""`headwater pipeline prepare|status`: Spark's connector onto this machine; what the running pipelines say."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from headwater.settings import load_settings

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Prepare Spark's connector; see what the pipelines are doing."
LISTEN_S = 2.0  # for reports: two intervals of a running part


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    commands.add_parser(
        "prepare", help="fetch and verify the four jars of Spark's Kafka connector; once, offline after"
    )
    status = commands.add_parser("status", help="state, rates and lag of every pipeline that reports to the log")
    status.add_argument("--bootstrap", metavar="HOST:PORT", help="the log (default: 127.0.0.1:9092)")
    status.add_argument("--config", metavar="FILE", type=Path, help="the settings file (default: headwater.toml)")
    status.add_argument("--json", action="store_true", help="for programs")


def run(arguments: argparse.Namespace) -> int:
    return _prepare() if arguments.action == "prepare" else _status(arguments)


def _prepare() -> int:
    from headwater.pipeline.jars import prepare_jars

    paths = prepare_jars(progress=print)
    print(f"Spark's connector is ready in {paths[0].parent}")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from headwater.client import Connection
    from headwater.status import StatusBoard

    settings = load_settings({"log.bootstrap": arguments.bootstrap}, file=arguments.config)
    board = StatusBoard(Connection(settings["log.bootstrap"]))
    board.poll(LISTEN_S)
    parts = [part for part in board.all(time.time_ns() // 1_000_000) if part["kind"] == "pipeline"]
    board.close()
    if arguments.json:
        print(json.dumps(parts, indent=2))
    elif not parts:
        print("no pipeline has reported to this log")
    else:
        _print(parts)
    return 0


def _print(parts: list[dict[str, Any]]) -> None:
    width = max(len(part["name"]) for part in parts)
    for part in parts:
        details = ", ".join(f"{k} {v}" for k, v in part["details"].items() if isinstance(v, (int, float, str)))
        print(f"{part['name']:<{width}}  {part['state']:<8}  {details}")
