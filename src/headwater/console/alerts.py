"""What somebody should look at, found in a snapshot: pure, so that it can be tested without a log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwater.console.cluster import Snapshot, TopicState

__all__ = ["alerts"]

# A group that still has to read from the first tenth of what is kept is about to lose records to retention.
RETENTION_MARGIN = 0.1
LAG_MIN = 1_000  # records; a shorter lag is no reason to worry about retention
SLOT_BYTES_MAX = 1 << 30  # of WAL that a capture's slot keeps in its database

Alert = dict[str, Any]  # {"level": "error" | "warning", "what", "where": a page of the console}


def alerts(snapshot: Snapshot) -> list[Alert]:
    """Errors first."""
    found = [*_log(snapshot), *_groups(snapshot), *_dead_letters(snapshot), *_parts(snapshot)]
    return sorted(found, key=lambda alert: (alert["level"], alert["what"]))


def _alert(level: str, what: str, where: str) -> Alert:
    return {"level": level, "what": what, "where": where}


def _log(snapshot: Snapshot) -> Iterator[Alert]:
    if snapshot.error is not None:
        yield _alert("error", snapshot.error, "overview")


def _groups(snapshot: Snapshot) -> Iterator[Alert]:
    for group in snapshot.groups.values():
        for (topic, partition), offset in group.committed.items():
            state = snapshot.topics.get(topic)
            if state is None or partition not in state.latest:
                continue
            yield from _loss(group.name, state, partition, offset)


def _loss(group: str, topic: TopicState, partition: int, offset: int) -> Iterator[Alert]:
    first, end = topic.earliest.get(partition, 0), topic.latest[partition]
    if offset < first:
        what = f"group {group} has lost {first - offset:,} records of {topic.name}/{partition} to retention"
        yield _alert("error", what, f"groups/{group}")
    elif first > 0 and end - offset > LAG_MIN and offset - first < RETENTION_MARGIN * (end - first):
        behind = f"it is {end - offset:,} behind"
        what = f"group {group} will soon lose records of {topic.name}/{partition} to retention: {behind}"
        yield _alert("warning", what, f"groups/{group}")


def _dead_letters(snapshot: Snapshot) -> Iterator[Alert]:
    for topic in snapshot.topics.values():
        if topic.as_json()["dead_letters"] and topic.records:
            yield _alert("warning", f"{topic.records:,} dead letters in {topic.name}", f"dead/{topic.name}")


def _parts(snapshot: Snapshot) -> Iterator[Alert]:
    for part in snapshot.parts:
        name, page = f"{part['kind']} {part['name']}", f"{part['kind']}s"
        if part["state"] == "failed":
            reason = part["details"].get("error") or part["details"].get("last_error") or "see its diagnostics"
            yield _alert("error", f"{name} failed: {reason}", page)
        elif part["state"] == "silent":
            yield _alert("warning", f"{name} has not reported lately: is it running?", page)
        slot = part["details"].get("slot")
        if isinstance(slot, dict) and int(slot.get("retained_bytes") or 0) > SLOT_BYTES_MAX:
            kept = int(slot["retained_bytes"]) >> 20
            yield _alert("warning", f"{name} keeps {kept:,} MiB of its database's log from being removed", page)
