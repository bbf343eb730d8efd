"""What a capture is told: the part that is the same for every database.

Names of tables are `schema.table` (SQLite: `main.table`), of columns `schema.table.column`; both may use `*` and `?`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from headwater.client import Connection
from headwater.errors import SettingError

__all__ = ["ColumnRule", "Hash", "Mask", "Settings", "Truncate", "matches"]

Form = Literal["debezium", "debezium-schema", "flat"]
Decimals = Literal["precise", "string", "double"]
Binary = Literal["base64", "hex"]
Unavailable = Literal["placeholder", "reselect"]
Snapshot = Literal["initial", "never"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")  # it becomes part of topic names and a transactional id


@dataclass(frozen=True, slots=True)
class Mask:
    """The value is replaced by this text."""

    text: str = "****"


@dataclass(frozen=True, slots=True)
class Hash:
    """The value is replaced by the hexadecimal HMAC-SHA-256 of its text, so that equal values stay equal."""

    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Truncate:
    """Only the first characters are kept."""

    characters: int


ColumnRule = Mask | Hash | Truncate


@dataclass(frozen=True, slots=True)
class Settings:
    """One capture: what is followed, where it goes, in which form."""

    name: str
    connection: Connection
    tables: Sequence[str] = ("*",)
    exclude_tables: Sequence[str] = ()
    exclude_columns: Sequence[str] = ()
    column_rules: Mapping[str, ColumnRule] = field(default_factory=dict)
    key_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)  # tables without a primary key
    row_filters: Mapping[str, str] = field(default_factory=dict)  # table -> SQL condition
    prefix: str = ""  # of the topics; the capture's name unless given
    form: Form = "debezium"
    decimals: Decimals = "precise"
    binary: Binary = "base64"
    unavailable: Unavailable = "placeholder"  # a large value that an update did not touch
    tombstones: bool = True
    truncates: bool = True  # a full copy is wrong without them
    messages: bool = True
    transaction_topic: bool = False
    schema_topic: bool = True
    snapshot: Snapshot = "initial"
    chunk_rows: int = 50_000
    heartbeat_s: float = 0.0  # 0: no heartbeat records (the source's position advances all the same)
    partitions: int = -1  # of the topics we create; -1: the broker's default
    outbox_tables: Sequence[str] = ()
    retry_for_s: float = 300.0  # how long a database or a log may be away before the capture gives up

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("prefix", self.topic_prefix)):
            if not _NAME.fullmatch(text):
                raise SettingError(f"capture {what} {text!r}: use letters, digits, '.', '_' and '-', at most 100")
        if self.chunk_rows < 1:
            raise SettingError(f"chunk_rows is {self.chunk_rows}: at least 1")

    @property
    def topic_prefix(self) -> str:
        return self.prefix or self.name

    @property
    def reselects(self) -> bool:
        """A flat row has no place for a placeholder: it would be taken for a value."""
        return self.unavailable == "reselect" or self.form == "flat"

    def captures(self, schema: str, table: str) -> bool:
        name = f"{schema}.{table}"
        return matches(name, self.tables) and not matches(name, self.exclude_tables)

    def is_outbox(self, schema: str, table: str) -> bool:
        return matches(f"{schema}.{table}", self.outbox_tables)

    def topic(self, schema: str, table: str) -> str:
        """Kafka allows fewer characters in topics than databases do in tables; the others become `_`."""
        return re.sub(r"[^A-Za-z0-9._-]", "_", f"{self.topic_prefix}.{schema}.{table}")

    def rule(self, schema: str, table: str, column: str) -> ColumnRule | None:
        name = f"{schema}.{table}.{column}"
        return next((rule for pattern, rule in self.column_rules.items() if fnmatchcase(name, pattern)), None)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns matches; a pattern without a schema matches the table in every schema."""
    bare = name.split(".", 1)[-1]
    return any(fnmatchcase(name if "." in pattern else bare, pattern) for pattern in patterns)
