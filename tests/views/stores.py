"""The stores as tests meet them: by name, each started once, each view somewhere of its own."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.views.opensearch import OpenSearchServer

from headwater.testing.postgres import PostgresServer
from headwater.testing.redis import RedisServer, install_redis
from headwater.views.definition import Definition
from headwater.views.stores import Store, open_store

__all__ = ["ALL", "CHEAP", "Kind", "Servers"]


@dataclass(frozen=True)
class Kind:
    """What a store can do beyond the contract's core."""

    name: str
    stable_snapshots: bool = True  # what a snapshot shows does not change while it is open
    atomic: bool = True  # rows and bookmark together; otherwise idempotent by offset
    options: dict[str, Any] = field(default_factory=dict)
    history: bool = False
    mixed_lists: bool = True  # whether a column may hold lists of scalars and objects

    @property
    def interval_ms(self) -> int:
        """Between commits, so that a test sees many of them."""
        return {"delta": 400, "tantivy": 50, "opensearch": 50}.get(self.name, 0)

    @property
    def id(self) -> str:
        return "-".join([self.name, *map(str, self.options.values())])

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        """Other projects' servers that are no package of this machine."""
        return [pytest.mark.interop] if self.name == "opensearch" else []


CHEAP = [
    Kind("sqlite"),
    Kind("lmdb"),
    Kind("postgresql"),
    Kind("redis", stable_snapshots=False),
    Kind("tantivy"),
]
ALL = [
    *CHEAP,
    Kind("delta"),
    Kind("delta", options={"mode": "history"}, history=True),
    Kind("opensearch", stable_snapshots=False, atomic=False, mixed_lists=False),
]


class Servers:
    """Starts what a store needs when it is first asked for."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._addresses: dict[str, str] = {}
        self.postgres: PostgresServer | None = None
        self.redis: RedisServer | None = None
        self.opensearch: OpenSearchServer | None = None

    def address(self, kind: str, folder: Path) -> str:
        """A place for one view's store; skips the test where the machine cannot have that store."""
        start: dict[str, Callable[[], str]] = {
            "postgresql": self._postgres,
            "redis": self._redis,
            "opensearch": self._opensearch,
        }
        if kind not in start:
            return f"{kind}:{folder / kind}{'.db' if kind == 'sqlite' else ''}"
        if kind not in self._addresses:
            self._addresses[kind] = start[kind]()
        return self._addresses[kind]

    def store(self, kind: Kind, folder: Path, view: str = "") -> Store:
        view = view or f"v{uuid.uuid4().hex[:8]}"
        return open_store(self.address(kind.name, folder), view, kind.options)

    def definition(self, kind: Kind, folder: Path, name: str, topic: str, **more: Any) -> Definition:
        options = {"options": kind.options} if kind.options else {}
        return Definition.of(name, topic=topic, store=self.address(kind.name, folder), **options, **more)

    def close(self) -> None:
        self._stack.close()

    def _postgres(self) -> str:
        self.postgres = self._stack.enter_context(PostgresServer())
        return f"postgresql://postgres@127.0.0.1:{self.postgres.port}/postgres"

    def _redis(self) -> str:
        why = install_redis()
        if why:
            pytest.skip(why)
        self.redis = self._stack.enter_context(RedisServer())
        return self.redis.url

    def _opensearch(self) -> str:
        if shutil.which("mvn") is None or shutil.which("java") is None:
            pytest.skip("OpenSearch needs Maven and Java")
        self.opensearch = self._stack.enter_context(OpenSearchServer())
        return self.opensearch.address
