"""Snapshots of large states, written by a process beside the task so that no batch waits for them.

    python -m headwater.pipeline.stateful.snapshots   (its orders come as JSON on standard input)

It reads one version of the store (LMDB keeps it for as long as the reading lasts) while batches go on. A lock file in
the store's folder lets one run at a time; one that dies leaves no file, and the next batch that finds a snapshot due
starts another.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headwater.pipeline.stateful.files import files_at
from headwater.pipeline.stateful.history import History
from headwater.pipeline.stateful.partition import Partition

__all__ = ["snapshot_in_process"]

NICENESS = 10  # a snapshot gives way to the batches

_running: list[subprocess.Popen[bytes]] = []


def snapshot_in_process(storage_options: Mapping[str, Any]) -> Callable[[Partition], None]:
    """How a task has a snapshot taken: starts the process and goes on."""

    def begin(partition: Partition) -> None:
        _running[:] = [process for process in _running if process.poll() is None]
        history = partition.history
        orders = {
            "files": history.files.where,
            "options": dict(storage_options),
            "operator": history.operator,
            "partition": history.partition,
            "folder": history.folder.rpartition("/")[0],
            "store": str(partition.store_path),
            "keep": partition.keep_versions,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(orders).encode())
        process.stdin.close()
        _running.append(process)

    return begin


def main(orders: Mapping[str, Any]) -> None:
    store = Path(orders["store"])
    with (store / "snapshot.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        os.nice(NICENESS)
        files = files_at(orders["files"], orders["options"])
        history = History(files, orders["operator"], orders["partition"], orders["folder"])
        Partition(history, store, (), keep_versions=orders["keep"]).snapshot()


if __name__ == "__main__":
    main(json.loads(sys.stdin.buffer.read()))
