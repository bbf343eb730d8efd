"""Schemas from a registry with Confluent's REST API.

A value written with such a registry begins with a zero byte and the schema's number, four bytes, big-endian. A
subject is `<topic>-value` or `<topic>-key` unless another is named. The schema that a query's columns follow is the
latest of its subject when the query is defined; what was written under other numbers is read into it.
"""

from __future__ import annotations

import base64
import json
import struct
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from headwater.pipeline.errors import BadOption, RegistryFailed
from headwater.pipeline.formats.python import BadRecord

__all__ = ["FRAME_BYTES", "Registered", "Registry", "unframed"]

REQUEST_TIMEOUT_S = 10.0
ATTEMPTS_MAX = 3  # of one request; then the task fails, and Spark tries it again
SCHEMAS_KEPT_MAX = 1_000  # by one worker
FRAME_BYTES = 5
_FRAME = struct.Struct(">bI")
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as the registry has it."""

    number: int
    kind: str  # AVRO, JSON or PROTOBUF
    text: str
    references: tuple[tuple[str, str, int], ...] = ()  # name in the schema, subject, version


@dataclass(frozen=True, slots=True)
class Registry:
    """Where it is: `Registry("https://host:8081", user="...", password="...")`."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise BadOption(f"Registry: {self.url!r} is not a URL: https://host:port")

    def of_topics(self, topics: Sequence[str], part: str, subject: str | None) -> Registered:
        """The latest schema of the topics' subject."""
        if subject is None and len(topics) != 1:
            raise BadOption(f"Registry: {len(topics) or 'a pattern of'} topics have no one subject: say subject=...")
        return self.version(subject or f"{topics[0]}-{part}", "latest")

    def version(self, subject: str, version: int | str, form: str = "") -> Registered:
        found = _get(self, f"/subjects/{quote(subject, safe='')}/versions/{version}{form}")
        if found is None:
            raise BadOption(f"Registry: {self.url} has no schema for the subject {subject!r} (version {version})")
        return _registered(int(found["id"]), found)

    def number(self, number: int) -> Registered | None:
        """By its number; None if there is no such schema."""
        try:
            return _by_number(self, number)
        except LookupError:
            return None

    def request(self, path: str) -> urllib.request.Request:
        request = urllib.request.Request(self.url.rstrip("/") + path)
        request.add_header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
        if self.user is not None:
            login = base64.b64encode(f"{self.user}:{self.password or ''}".encode()).decode()
            request.add_header("Authorization", f"Basic {login}")
        return request


def unframed(raw: bytes) -> tuple[int, bytes]:
    """The number of the schema, and what it is the schema of."""
    if len(raw) < FRAME_BYTES or raw[0] != 0:
        raise BadRecord("not written with a schema registry: there is no zero byte and schema number before the value")
    return _FRAME.unpack_from(raw)[1], raw[FRAME_BYTES:]


@lru_cache(maxsize=SCHEMAS_KEPT_MAX)
def _by_number(registry: Registry, number: int) -> Registered:
    """A number means one schema for ever; that there is none yet is not remembered."""
    found = _get(registry, f"/schemas/ids/{number}")
    if found is None:
        raise LookupError(number)
    return _registered(number, found)


def _get(registry: Registry, path: str) -> dict[str, Any] | None:
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            with urllib.request.urlopen(registry.request(path), timeout=REQUEST_TIMEOUT_S) as answer:
                body: dict[str, Any] = json.load(answer)
                return body
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                return None
            if error.code < 500 or attempt == ATTEMPTS_MAX:
                raise RegistryFailed(f"the registry at {registry.url} answered {error.code} to {path}") from error
        except (OSError, ValueError) as error:
            if attempt == ATTEMPTS_MAX:
                raise RegistryFailed(f"the registry at {registry.url} does not answer {path}: {error}") from error
    raise AssertionError("unreachable")


def _registered(number: int, body: dict[str, Any]) -> Registered:
    references = tuple((str(r["name"]), str(r["subject"]), int(r["version"])) for r in body.get("references") or ())
    return Registered(number, str(body.get("schemaType") or "AVRO"), str(body["schema"]), references)
