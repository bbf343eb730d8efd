"""How far a version of a view has got, as its store keeps it: in the same commit as the data."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from headwater.positions import Position

__all__ = ["Bookmark"]


@dataclass(frozen=True, slots=True)
class Bookmark:
    """`record_time_ms` is the newest applied record's own time, `commit_time_ms` when the follower wrote this."""

    position: Position = field(default_factory=Position)
    key: tuple[str, ...] = ()  # the columns of the key; empty until the first row has come
    applied: int = 0  # records read since offset 0, also those that changed nothing
    refused: int = 0  # records in the dead letters
    record_time_ms: int = 0
    commit_time_ms: int = 0
    rate: float = 0.0  # records a second, as the follower measured it lately
    error: str = ""  # the last refusal or failure

    def to_json(self) -> str:
        body: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "position"}
        return json.dumps({"position": self.position.as_topics(), **body}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes | None) -> Bookmark:
        if not text:
            return cls()
        body = json.loads(text)
        topics = body.pop("position")
        position = Position({(t, int(p)): int(o) for t, parts in topics.items() for p, o in parts.items()})
        return cls(position=position, **{**body, "key": tuple(body["key"])})
