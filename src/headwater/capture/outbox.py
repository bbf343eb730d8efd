"""The outbox: rows inserted into an export table become events of the topic, key and headers that they name.

The application inserts the event in the same transaction as its own change, and may delete the row at once: only the
insert counts. Two layouts, told apart by their columns:

    topic, key, value|payload [, headers]                             what the row says, literally
    aggregatetype, aggregateid, payload [, type] [, id] [, headers]   Debezium's: topic `outbox.event.<aggregatetype>`,
                                                                      key the aggregate's id, headers `id`, `eventType`

`headers` is a JSON object. A null payload is a tombstone. Shared by all databases: values come as plain text.
A row that cannot be routed goes to the dead letters of the outbox table's own topic, as JSON, with the reason.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping

from headwater.capture.envelope import Record
from headwater.deadletters import DeadLetter, dead_letter_topic
from headwater.errors import BadInput

__all__ = ["outbox_record", "refused_record"]

ROUTED_TOPIC = "outbox.event."
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def outbox_record(table: str, row: Mapping[str, bytes | None]) -> Record:
    """The event that this row asks for."""
    if "topic" in row:
        topic, key = _text(row["topic"]), row.get("key")
        headers: dict[str, str | bytes | None] = {}
    elif "aggregatetype" in row:
        topic, key = ROUTED_TOPIC + _text(row["aggregatetype"]), row.get("aggregateid")
        headers = {"id": row["id"]} if row.get("id") is not None else {}
        if row.get("type") is not None:
            headers["eventType"] = row["type"]
    else:
        raise BadInput(
            f"outbox table {table} has neither a column `topic` nor `aggregatetype`; its columns are {', '.join(row)}"
        )
    if not _TOPIC.fullmatch(topic):
        raise BadInput(f"outbox table {table}: {topic!r} cannot be a topic's name")
    value = row["value"] if "value" in row else row.get("payload")
    given = row.get("headers")
    if given is not None:
        headers.update(_headers(table, given))
    return topic, key, value, list(headers.items()) or None


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="replace")


def _headers(table: str, text: bytes) -> dict[str, bytes | None]:
    try:
        members = json.loads(text)
        return {
            str(name): None if value is None else (value if isinstance(value, str) else json.dumps(value)).encode()
            for name, value in members.items()
        }
    except (ValueError, AttributeError) as error:
        raise BadInput(f"outbox table {table}: headers are not a JSON object: {text[:80]!r}") from error


def refused_record(capture: str, topic: str, position: int, row: Mapping[str, bytes | None], reason: str) -> Record:
    """The dead letter for a row that names no topic; `position` is its place in the database's log."""
    shown = {name: None if value is None else value.decode(errors="replace") for name, value in row.items()}
    letter = DeadLetter(
        stage=f"capture:{capture}",
        reason=reason,
        topic=topic,
        partition=0,
        offset=position,
        time_ms=time.time_ns() // 1_000_000,
        key=None,
        value=json.dumps(shown, ensure_ascii=False).encode(),
    )
    headers: list[tuple[str, str | bytes | None]] = [*letter.record_headers()]
    return dead_letter_topic(topic), None, letter.value, headers
