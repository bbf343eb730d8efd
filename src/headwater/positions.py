"""How far a reader has got, and how that composes through pipelines.

A `Position` says, for every partition, the next offset its holder will read: it covers all records before it.
As a token it is printable and opaque; readers hand it to `view.read(at_least=token)`.

A `Coverage` says which input positions a pipeline's output covers. The sink appends one, in the same transaction as
the output of each of its tasks, to the compacted topic `headwater.coverage`:

    key    JSON [query, task, batch]
    value  JSON {"query", "task", "tasks", "batch", "inputs": {topic: {partition: offset}},
                 "outputs": {topic: {partition: offset}}}

`inputs` is the end of the micro-batch's input; `outputs` is, for the partitions this task wrote in this batch, the
offset after its last record. A view of the output covers an input position P as soon as, for every task, it has
reached the outputs of all coverages up to the first whose `inputs` cover P.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headwater.errors import BadInput

__all__ = ["COVERAGE_TOPIC", "Coverage", "Position"]

COVERAGE_TOPIC = "headwater.coverage"

_TOKEN_PREFIX = "hw1."
TOKEN_CHARACTERS_MAX = 1 << 20  # a position of some 20,000 partitions; longer ones are refused unread


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset of each partition: everything before it has been read, applied or acknowledged."""

    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @classmethod
    def of(cls, topics: Mapping[str, Mapping[int, int]]) -> Position:
        return cls({(topic, p): offset for topic, parts in topics.items() for p, offset in parts.items()})

    @classmethod
    def from_token(cls, token: str) -> Position:
        """The position that `token()` printed; `BadInput` for anything else."""
        if not token.startswith(_TOKEN_PREFIX) or len(token) > TOKEN_CHARACTERS_MAX:
            raise BadInput(f"not a position token: {token[:40]!r} (a token starts with {_TOKEN_PREFIX!r})")
        body = token[len(_TOKEN_PREFIX) :]
        try:
            topics = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            return cls({(t, int(p)): int(o) for t, parts in topics.items() for p, o in parts.items()})
        except (ValueError, binascii.Error, AttributeError, TypeError) as error:
            raise BadInput(f"damaged position token {token[:40]!r}: {error}") from error

    def token(self) -> str:
        """Printable and safe in URLs; equal positions give equal tokens."""
        text = json.dumps(self.as_topics(), separators=(",", ":"), sort_keys=True)
        return _TOKEN_PREFIX + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def as_topics(self) -> dict[str, dict[str, int]]:
        """Topic → partition → offset, as JSON writes it (partitions are strings)."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            topics.setdefault(topic, {})[str(partition)] = offset
        return topics

    def covers(self, other: Position) -> bool:
        """Whether everything before `other` is also before this position."""
        return all(self.offsets.get(where, 0) >= offset for where, offset in other.offsets.items())

    def merge(self, other: Position) -> Position:
        """The later of the two in every partition: what covers both."""
        later = dict(self.offsets)
        for where, offset in other.offsets.items():
            later[where] = max(offset, later.get(where, 0))
        return Position(later)

    def restrict(self, topics: Iterable[str]) -> Position:
        """Only the partitions of `topics`."""
        wanted = set(topics)
        return Position({where: offset for where, offset in self.offsets.items() if where[0] in wanted})

    def topics(self) -> set[str]:
        return {topic for topic, _ in self.offsets}

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        return iter((topic, partition, offset) for (topic, partition), offset in sorted(self.offsets.items()))


@dataclass(frozen=True, slots=True)
class Coverage:
    """One task's output of one micro-batch, and the input positions it covers."""

    query: str
    task: int
    tasks: int
    batch: int
    inputs: Position
    outputs: Position

    def key(self) -> bytes:
        return json.dumps([self.query, self.task, self.batch], separators=(",", ":")).encode()

    def value(self) -> bytes:
        return json.dumps(
            {
                "query": self.query,
                "task": self.task,
                "tasks": self.tasks,
                "batch": self.batch,
                "inputs": self.inputs.as_topics(),
                "outputs": self.outputs.as_topics(),
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def from_value(cls, value: bytes) -> Coverage:
        try:
            body = json.loads(value)
            inputs, outputs = (
                Position({(t, int(p)): int(o) for t, parts in body[side].items() for p, o in parts.items()})
                for side in ("inputs", "outputs")
            )
            return cls(
                query=str(body["query"]),
                task=int(body["task"]),
                tasks=int(body["tasks"]),
                batch=int(body["batch"]),
                inputs=inputs,
                outputs=outputs,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"not a coverage record in {COVERAGE_TOPIC}: {value[:80]!r}: {error}") from error
