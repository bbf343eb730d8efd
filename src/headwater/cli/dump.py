"""`headwater dump`: what is in files of the log: segments, indexes, producer snapshots, checkpoints, whole folders.

Exit codes: 0 shown; 3 shown, but some of it is damaged (`headwater verify` checks more); 1 it could not be read.
"""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.errors import BadInput
from headwater.filesystem import SystemFilesystem
from headwater.log.dumping import dump_file

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Show what is in a log file, an index, a snapshot, a checkpoint, or in all files of a partition's folder."
DAMAGED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="files, or folders of partitions")
    parser.add_argument("--records", action="store_true", help="also the records of each batch")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each item, for programs")


def run(arguments: argparse.Namespace) -> int:
    damaged = False
    filesystem = SystemFilesystem()
    for path in arguments.paths:
        for file in _files(path):
            if not arguments.json:
                print(f"{file}")
            for item in dump_file(filesystem, str(file), records=arguments.records):
                damaged |= "damage" in item
                print(_json(file, item) if arguments.json else _text(item))
    return DAMAGED if damaged else 0


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise BadInput(f"{path} does not exist")
    known = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "-checkpoint", ".metadata", ".properties")
    files = sorted(file for file in path.iterdir() if file.is_file() and file.name.endswith(known))
    if not files:
        raise BadInput(f"{path} has no files of the log in it; give a partition's folder, such as DATA/topic-0")
    yield from files


def _json(file: Path, item: dict[str, Any]) -> str:
    return json.dumps({"file": str(file), **item}, default=_bytes_as_json)


def _bytes_as_json(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _text(item: dict[str, Any]) -> str:
    """One line; what says nothing (no producer, not compressed) is left out."""
    dull: tuple[Any, ...] = ("", None, -1, [], "none")
    return "  " + "  ".join(
        f"{name}: {value.decode(errors='backslashreplace') if isinstance(value, bytes) else value}"
        for name, value in item.items()
        if name in ("offset", "position") or (value is not False and value not in dull)
    )
