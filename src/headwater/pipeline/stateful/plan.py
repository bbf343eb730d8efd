"""What `stateful()` decides, before any engine runs it: the program, where its state is, and how rows reach it.

Spark runs a plan (`headwater.pipeline.stateful.spark`), and so does the harness (`headwater.testing.streams`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypedDict

from headwater.pipeline.stateful.files import files_at
from headwater.pipeline.stateful.history import KEEP_VERSIONS, History
from headwater.pipeline.stateful.manifest import Manifest, check_manifest
from headwater.pipeline.stateful.operator import ONLY
from headwater.pipeline.stateful.partition import Partition
from headwater.pipeline.stateful.snapshots import snapshot_in_process
from headwater.pipeline.stateful.store import STORE_BYTES_MAX
from headwater.pipeline.stateful.sweeping import sweep
from headwater.pipeline.stateful.task import Program

__all__ = ["Plan", "StateOptions", "StatefulKeywords"]

STATE_DIR = "HEADWATER_STATE_DIR"  # the environment variable that says where a host keeps its local stores


class StatefulKeywords(TypedDict, total=False):
    """Where an operator's state is and how it runs: what every operator function takes as `**where` and passes on.

    `checkpoint`: the query's checkpointLocation, or another folder of its own. `name`: the operator's within the query.
    `partitions`: fixed for the life of the state (see `repartition_state`); default spark.sql.shuffle.partitions.
    `copartitioned`: the topic is partitioned by the key already, each partition keeps its own state and time.
    `realtime`: rows go through as they come (Real-time Mode), instead of a batch at a time.
    `storage_options`: for the file system of `checkpoint`. `local_dir`: where a host keeps its stores.
    `keep_versions`: versions the state can go back by. `state_bytes_max`: bound of one partition's store, bytes.
    """

    checkpoint: str
    name: str
    partitions: int
    copartitioned: bool
    realtime: bool
    storage_options: Mapping[str, Any]
    local_dir: str
    keep_versions: int
    state_bytes_max: int


@dataclass(frozen=True)
class StateOptions:
    """Where the state of one operator of one query is, and how much of its past is kept."""

    checkpoint: str
    name: str
    partitions: int  # 0: those of the topic
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    local_dir: str | None = None
    keep_versions: int = KEEP_VERSIONS
    state_bytes_max: int = STORE_BYTES_MAX

    def store_path(self, query_id: str, partition: int, folder: str = "") -> Path:
        """The local store: one per checkpoint, query, operator and partition, for all workers of the host."""
        root = (
            self.local_dir or os.environ.get(STATE_DIR) or str(Path(tempfile.gettempdir()) / f"headwater-{os.getuid()}")
        )
        query = blake2b(f"{self.checkpoint}\0{query_id}".encode(), digest_size=8).hexdigest()
        return Path(root) / query / (folder or self.name) / str(partition)

    def partition(self, query_id: str, number: int, program: Program) -> Partition:
        """A partition's state; with the topic's own partitions (`partitions` is 0) not every batch has each."""
        files = files_at(f"{self.checkpoint}/headwater", self.storage_options)
        operator = program.operator
        key = operator.keys_of() if set(program.inputs) == {ONLY} else ()
        wanted = Manifest(self.name, query_id, self.partitions, type(operator).__name__, key)
        folder = check_manifest(files, wanted).folder
        store = self.store_path(query_id, number, folder)
        if not store.exists():
            sweep(store.parents[2])
        return Partition(
            History(files, self.name, number, folder),
            store,
            program.tables,
            keep_versions=self.keep_versions,
            store_bytes_max=self.state_bytes_max,
            snapshot_beside=snapshot_in_process(self.storage_options),
            gaps=not self.partitions,
        )


@dataclass(frozen=True)
class Plan:
    """One operator, ready to be run by an engine."""

    program: Program
    options: StateOptions
    columns: Mapping[str, tuple[str, ...]]  # of each input, those that travel to the step
    copartitioned: bool = False
    realtime: bool = False
