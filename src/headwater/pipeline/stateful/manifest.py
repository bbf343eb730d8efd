"""What a state belongs to: written by its first task, checked by every later one.

    <operator>/manifest.json    {"format", "operator", "query", "partitions", "program", "key", "folder"}

So a checkpoint that is used by another query, or with another number of partitions, is refused before anything is read.
`folder` is where the partitions are: the operator's own, or the one that `repartition_state` made last.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from headwater.pipeline.stateful.changelog import FORMAT
from headwater.pipeline.stateful.errors import StateMismatch
from headwater.pipeline.stateful.files import Files

__all__ = ["Manifest", "check_manifest", "manifest_name", "read_manifest"]

_checked: dict[tuple[str, Manifest], Manifest] = {}
CHECKED_MAX = 10_000  # states whose manifest one worker process remembers to have checked


@dataclass(frozen=True, slots=True)
class Manifest:
    """Whose state it is, and how it is divided."""

    operator: str
    query: str
    partitions: int
    program: str  # the operator's class, for whoever reads the folder
    key: tuple[str, ...] = ()  # the columns that rows are routed by, where there is one input
    folder: str = ""  # where the partitions are, if not in the operator's own folder
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode() + b"\n"


def manifest_name(operator: str) -> str:
    return f"{operator}/manifest.json"


def read_manifest(files: Files, operator: str) -> Manifest | None:
    raw = files.read(manifest_name(operator))
    if raw is None:
        return None
    try:
        body = json.loads(raw)
        return Manifest(**{**body, "key": tuple(body["key"])})
    except (ValueError, TypeError, KeyError) as error:
        raise StateMismatch(f"{files.where}/{manifest_name(operator)} is not a manifest of a state: {error}") from error


def check_manifest(files: Files, wanted: Manifest) -> Manifest:
    """The state's manifest, written if there is none; StateMismatch when it is another query's or divided otherwise."""
    known = _checked.get((files.where, wanted))
    if known is not None:
        return known
    found = read_manifest(files, wanted.operator)
    if found is None:
        files.write(manifest_name(wanted.operator), [wanted.to_bytes()])
        found = wanted
    elif found.format > FORMAT or found.query != wanted.query:
        raise StateMismatch(
            f"{files.where}/{wanted.operator} holds the state of query {found.query} (format {found.format}), not of "
            f"{wanted.query}: give the operator another name, or the query the checkpoint it had"
        )
    elif found.partitions != wanted.partitions:
        raise StateMismatch(
            f"the state in {files.where}/{wanted.operator} has {found.partitions} partitions, the query asks for "
            f"{wanted.partitions}: keep the number, or run repartition_state() while the query is stopped"
        )
    if len(_checked) >= CHECKED_MAX:
        _checked.clear()
    _checked[files.where, wanted] = found
    return found
