"""What a micro-batch read: the entry that Spark wrote into the checkpoint before it ran the batch.

`<checkpoint>/offsets/<batch>` is a text file: a version line, one line of JSON about the batch, then one line per
source: for a Kafka source its end offsets as JSON, topic → partition → next offset; `-` for a source without data.
The entry never changes once written, so every task, attempt and re-run of the batch reads the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.pipeline.errors import CheckpointConflict
from headwater.pipeline.stateful.files import files_at
from headwater.positions import Position

__all__ = ["BatchInput", "read_batch_input"]

DIGEST_CHARACTERS = 16  # of SHA-256: tells two entries for one batch number apart, inside a commit's small metadata
_LINES_BEFORE_SOURCES = 2  # the version and the batch's metadata


@dataclass(frozen=True, slots=True)
class BatchInput:
    """The end of a batch's input, and a digest that tells this entry from any other under the same number."""

    position: Position
    digest: str

    @classmethod
    def parse(cls, text: str) -> BatchInput:
        sources = text.splitlines()[_LINES_BEFORE_SOURCES:]
        ends: dict[str, dict[int, int]] = {}
        for line in sources:
            for topic, partitions in _kafka_offsets(line).items():
                known = ends.setdefault(topic, {})
                for partition, offset in partitions.items():  # one topic read twice in one query: what both have read
                    known[partition] = min(offset, known.get(partition, offset))
        digest = hashlib.sha256("\n".join(sources).encode()).hexdigest()[:DIGEST_CHARACTERS]
        return cls(Position.of(ends), digest)


def read_batch_input(checkpoint: str, batch: int, storage_options: Mapping[str, Any] | None = None) -> BatchInput:
    """The offset log's entry of `batch`, from any filesystem that operators keep their state on."""
    name = f"offsets/{batch}"
    try:
        found, why = files_at(checkpoint.rstrip("/"), storage_options).read(name), "it is not there"
    except (OSError, ImportError, ValueError) as error:
        found, why = None, str(error)
    if found is None:
        raise CheckpointConflict(
            f"cannot read the offset log of batch {batch} at {checkpoint.rstrip('/')}/{name}: {why}. The sink's tasks "
            "read it to say which input their output covers: give a checkpoint location that every executor reaches "
            "under that name (and storage_options, where it needs any)"
        )
    return BatchInput.parse(found.decode())


def _kafka_offsets(line: str) -> dict[str, dict[int, int]]:
    """Topic → partition → offset; empty for sources that are not Kafka's, whose offsets look otherwise."""
    try:
        body = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(body, dict) or not all(isinstance(partitions, dict) for partitions in body.values()):
        return {}
    try:
        return {
            str(topic): {int(partition): int(offset) for partition, offset in partitions.items()}
            for topic, partitions in body.items()
        }
    except (TypeError, ValueError):
        return {}
