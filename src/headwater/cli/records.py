"""A record as a line of JSON, which `headwater consume --json` writes and `headwater produce --from-json` reads:

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1795000000000, "key": "k", "value": "v",
     "headers": [["name", "value"]]}

Bytes that are not UTF-8 travel as {"base64": "..."}.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import BadInput

if TYPE_CHECKING:
    from confluent_kafka import Message

__all__ = ["Outgoing", "line_of", "parse_line", "text_of"]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to be written; what is None is the client's or the broker's choice."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def line_of(message: Message) -> str:
    return json.dumps(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": message.timestamp()[1],
            "key": _to_json(_bytes(message.key())),
            "value": _to_json(_bytes(message.value())),
            "headers": [[name, _to_json(_bytes(value))] for name, value in _headers(message)],
        },
        ensure_ascii=False,
    )


def text_of(data: bytes | str | None) -> str:
    """For people: what is not text is shown with escapes, nothing as a dash."""
    return "-" if data is None else data if isinstance(data, str) else data.decode(errors="backslashreplace")


def parse_line(line: str, number: int) -> Outgoing:
    try:
        document = json.loads(line)
        return Outgoing(
            value=_from_json(document.get("value")),
            key=_from_json(document.get("key")),
            headers=tuple((str(name), _from_json(value)) for name, value in document.get("headers") or ()),
            partition=document.get("partition"),
            timestamp_ms=document.get("timestamp"),
        )
    except (ValueError, TypeError, AttributeError, binascii.Error) as error:
        raise BadInput(f"line {number} is not a record as `headwater consume --json` writes it: {error}") from error


def _headers(message: Message) -> list[tuple[str, Any]]:
    return list(message.headers() or ())  # type: ignore[arg-type]


def _bytes(data: Any) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _to_json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _from_json(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True) if "base64" in value else json.dumps(value).encode()
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
