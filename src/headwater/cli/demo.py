"""`headwater demo`: a small marketplace with a feed, end to end on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from headwater.errors import BadInput

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Run the whole system, end to end, on this machine: a small marketplace with a feed."

_UNITS_S = {"s": 1, "m": 60, "h": 3600}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--for", dest="duration", metavar="60s", help="run so long, verify every view, print a summary and exit")
    add("--folder", type=Path, default=Path("headwater-data/demo"), metavar="DIR", help="where the demo keeps its data")
    add("--log", default="127.0.0.1:9092", metavar="HOST:PORT", help="where its broker listens")
    add("--console", default="127.0.0.1:8080", metavar="HOST:PORT", help="where its page is")
    add("--metrics", default="127.0.0.1:9464", metavar="HOST:PORT", help="where its broker's metrics are")


def run(arguments: argparse.Namespace) -> int:
    from headwater.demo.parts import Places
    from headwater.demo.run import Demo, check_machine

    duration_s = None if arguments.duration is None else _seconds(arguments.duration)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    places = Places(arguments.folder.absolute(), arguments.log, arguments.console, arguments.metrics, _free_port())
    check_machine(places)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {text}", flush=True)

    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        with Demo(places, say) as demo:
            print(f"\n  the marketplace is open: http://{places.console}/\n", flush=True)
            ended.wait(duration_s)
            if duration_s is None:
                return 0
            right = demo.verify()
    except KeyboardInterrupt:
        return 0
    print("\nevery view equals its recomputation from the log" if right else "\nsome views are wrong", file=sys.stderr)
    return 0 if right else 1


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", text)
    if found is None:
        raise BadInput(f"--for {text!r}: write a time like 60s or 5m")
    return float(found[1]) * _UNITS_S[found[2] or "s"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
