"""Records that could not be processed: kept as they came, with the reason and where they came from.

A dead letter is the original key and value, byte for byte, in the topic `<origin topic>.dead`, with headers

    headwater.stage      who refused it: "pipeline:<query>", "view:<name>", "capture:<name>"
    headwater.reason     why, in words
    headwater.topic, headwater.partition, headwater.offset     where it was
    headwater.time       when it was refused, milliseconds since 1970

and the original headers after them, so that replaying is producing it again to its origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import BadInput

__all__ = ["SUFFIX", "DeadLetter", "dead_letter_topic"]

SUFFIX = ".dead"
REASON_CHARACTERS_MAX = 2_000  # a reason is for people; a stack trace or a whole record does not belong in it

_PREFIX = "headwater."


def dead_letter_topic(origin: str) -> str:
    return origin + SUFFIX


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One refused record, its origin and the reason."""

    stage: str
    reason: str
    topic: str
    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def record_headers(self) -> list[tuple[str, bytes | None]]:
        """The headers of the record in the dead-letter topic."""
        own = {
            "stage": self.stage,
            "reason": self.reason[:REASON_CHARACTERS_MAX],
            "topic": self.topic,
            "partition": str(self.partition),
            "offset": str(self.offset),
            "time": str(self.time_ms),
        }
        return [*((_PREFIX + name, text.encode()) for name, text in own.items()), *self.headers]

    @classmethod
    def from_record(
        cls, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> DeadLetter:
        own = {name.removeprefix(_PREFIX): v for name, v in headers if name.startswith(_PREFIX) and v is not None}
        try:
            return cls(
                stage=own["stage"].decode(),
                reason=own["reason"].decode(),
                topic=own["topic"].decode(),
                partition=int(own["partition"]),
                offset=int(own["offset"]),
                time_ms=int(own["time"]),
                key=key,
                value=value,
                headers=tuple((name, v) for name, v in headers if not name.startswith(_PREFIX)),
            )
        except (KeyError, ValueError) as error:
            raise BadInput(f"not a dead letter: header {error} is missing or damaged") from error
