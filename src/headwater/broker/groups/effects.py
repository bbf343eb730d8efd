"""What goes into the group machines and what comes out: plain values, so that a test can hold both ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headwater.wire.errors import ErrorCode

__all__ = ["Answer", "Caller", "Deadline", "Effects", "GroupError", "Record", "Stored"]

Token = Any
"""Whose answer it is; opaque to the machines (the driver uses promises, tests use names)."""


class GroupError(Exception):
    """A refusal that becomes the error code (and, where the protocol has room, the message) of an answer.

    It never escapes the package: the machine's entry points and the handlers turn it into responses.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message or code.name


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, as far as a group cares."""

    client_id: str = ""
    client_host: str = ""
    api_version: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """One record of `__consumer_offsets`: a key and a value of `headwater.wire.records`, or a tombstone."""

    key: Any
    value: Any | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to one request. If the records it depends on cannot be stored, its owner gets an error instead."""

    token: Token
    response: Any


@dataclass(frozen=True, slots=True)
class Stored:
    """An event for later: the records that came with it are on disk (or were refused).

    `generation` says which rebalance it belongs to: a group that has moved on since ignores it.
    """

    group_id: str
    generation: int
    assignments: dict[str, bytes] = field(default_factory=dict)
    replaced: tuple[str, str] | None = None  # (old, new) member id of a static member that rejoined


@dataclass(frozen=True, slots=True)
class Deadline:
    """A timer of a consumer group's member, set (or cancelled: None) once the step's records are in the log."""

    kind: str
    member_id: str
    at_mono_ms: float | None


@dataclass(slots=True)
class Effects:
    """What one step wants done, in this order: append `records` as one batch and, where the state is what the records
    say (`apply`), apply them; set `deadlines`; then, when they are on disk, send `answers` and feed `stored` back."""

    records: list[Record] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    deadlines: list[Deadline] = field(default_factory=list)
    apply: bool = False

    def add(self, other: Effects) -> Effects:
        self.records += other.records
        self.answers += other.answers
        self.stored += other.stored
        self.deadlines += other.deadlines
        self.apply |= other.apply
        return self

    def answer(self, token: Token, response: Any) -> Effects:
        self.answers.append(Answer(token, response))
        return self
