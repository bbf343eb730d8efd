"""`headwater verify`: every byte of a data directory that no broker uses; what is wrong is named by file and position.

Exit codes: 0 all is as it was written; 3 damage was found; 1 it could not be checked.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from headwater.cli.tables import print_rows
from headwater.errors import BadInput
from headwater.filesystem import SystemFilesystem
from headwater.log.verifying import Verified, verify_directory

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Check every byte of a data directory. Exit code 3 when something is damaged."
DAMAGED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, help="the data directory of a stopped broker")
    parser.add_argument("--json", action="store_true", help="one document for programs")


def run(arguments: argparse.Namespace) -> int:
    directory: Path = arguments.directory
    if not directory.is_dir():
        raise BadInput(f"{directory} is not a directory; give the broker's data directory (headwater start --data)")
    filesystem = SystemFilesystem()
    lock = filesystem.lock(str(directory / ".lock")) if (directory / ".lock").exists() else None
    try:
        verified = verify_directory(filesystem, str(directory))
    finally:
        if lock is not None:
            filesystem.close(lock)
    _show(verified, as_json=arguments.json)
    return DAMAGED if verified.damage else 0


def _show(verified: Verified, *, as_json: bool) -> None:
    damage = [{"file": each.path, "position": each.position, "what": each.reason} for each in verified.damage]
    counts: dict[str, Any] = {
        name: getattr(verified, name) for name in ("partitions", "segments", "batches", "records", "bytes")
    }
    if as_json:
        print(json.dumps({**counts, "damage": damage}, indent=2))
        return
    if damage:
        print_rows(damage, ["file", "position", "what"], as_json=False, empty="")
    print(
        f"{counts['partitions']} partitions, {counts['segments']} segments, {counts['batches']} batches, "
        f"{counts['records']} records, {counts['bytes']} bytes: "
        + (f"{len(damage)} damaged places" if damage else "all as it was written")
    )
