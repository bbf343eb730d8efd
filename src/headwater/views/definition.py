"""What a view is: its topics, how their records become rows, and where these live."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from headwater.views.decoding import Format
from headwater.views.errors import BadView
from headwater.views.mapping import BatchFunction, RowMapping, load_function
from headwater.views.pace import BATCH_BYTES, Limits
from headwater.views.stores import Store, open_store

__all__ = ["Definition", "OnError"]

OnError = Literal["dead-letter", "stop"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")  # it becomes part of the names of tables, indexes and keys
_MAPPING = ("flatten", "filter", "compute", "rename", "select", "function")


@dataclass(frozen=True, slots=True)
class Definition:
    """One view. `options` are the store's own; None leaves `commit_interval_ms` and `batch_records` to it."""

    name: str
    topics: tuple[str, ...]
    store: str
    key: tuple[str, ...] = ()
    format: Format = "auto"
    mapping: RowMapping = field(default_factory=RowMapping)
    on_error: OnError = "dead-letter"
    commit_interval_ms: int | None = None
    batch_records: int | None = None
    batch_bytes: int = BATCH_BYTES
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadView(f"a view cannot be called {self.name!r}: letters, digits, '_' and '-', at most 63")
        if not self.topics:
            raise BadView(f"view {self.name}: it follows no topic; give `topic` or `topics`")
        if self.format not in get_args(Format):
            raise BadView(f"view {self.name}: format is {self.format!r}; it is one of {', '.join(get_args(Format))}")
        if self.on_error not in get_args(OnError):
            raise BadView(f"view {self.name}: on_error is {self.on_error!r}; say 'dead-letter' or 'stop'")
        for what in ("batch_records", "batch_bytes"):
            given = getattr(self, what)
            if given is not None and given < 1:
                raise BadView(f"view {self.name}: {what} is {given}; at least 1")
        self.mapping.compile(self.name)  # says what is wrong with an expression now, not when records come

    @classmethod
    def of(cls, name: str, **given: Any) -> Definition:
        """From flat names, as a file or a call gives them: `topic`, `store`, `key`, `filter`, `select` ..."""
        topics = _texts(name, "topics", given.pop("topics", None) or given.pop("topic", ()))
        mapping = {word: given.pop(word) for word in _MAPPING if word in given}
        if "select" in mapping:
            mapping["select"] = _texts(name, "select", mapping["select"])
        known = {f.name for f in dataclasses.fields(cls)} - {"name", "topics", "mapping"}
        unknown = sorted(set(given) - known)
        if unknown:
            words = ", ".join(sorted({*known, *_MAPPING, "topic", "topics"}))
            raise BadView(f"view {name}: there is no {unknown[0]!r}; there are {words}")
        if "store" not in given:
            raise BadView(f'view {name}: it has no `store`; for example store = "sqlite:views.db"')
        if "key" in given:
            given["key"] = _texts(name, "key", given["key"])
        _check_mapping(name, mapping)
        return cls(name=name, topics=topics, mapping=RowMapping(**mapping), **given)

    def limits(self, store: Store) -> Limits:
        interval = store.commit_interval_ms if self.commit_interval_ms is None else self.commit_interval_ms
        return Limits(self.batch_records or store.batch_records, self.batch_bytes, interval)

    def open_store(self) -> Store:
        return open_store(self.store, self.name, self.options)

    def shown_store(self) -> str:
        """The store's address without a password."""
        scheme, separator, rest = self.store.partition("://")
        user, at, host = rest.rpartition("@")
        return f"{scheme}{separator}{user.partition(':')[0]}:***@{host}" if at and ":" in user else self.store

    def to_flat(self) -> dict[str, Any]:
        """What `of` takes, without what is as by default: for a catalog, or to show."""
        flat: dict[str, Any] = {"topics": list(self.topics), "store": self.store}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.name not in ("name", "topics", "store", "mapping") and value not in ((), {}, None, f.default):
                flat[f.name] = list(value) if isinstance(value, tuple) else value
        for word in _MAPPING:
            value = getattr(self.mapping, word)
            if value:
                flat[word] = _function_name(value) if word == "function" else value
        return flat

    def digest(self) -> str:
        """Equal for definitions that make the same rows of the same records."""
        rows = [self.topics, self.key, self.format, dict(self.options), _function_name(self.mapping.function)]
        steps = [getattr(self.mapping, word) for word in _MAPPING if word != "function"]
        text = json.dumps([rows, steps], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _texts(view: str, what: str, given: object) -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) else given
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) and each for each in found):
        raise BadView(f"view {view}: {what} is a text or a list of texts, not {given!r}")
    return tuple(found)


def _check_mapping(view: str, mapping: Mapping[str, Any]) -> None:
    for word in ("compute", "rename"):
        found = mapping.get(word, {})
        if not isinstance(found, Mapping) or not all(isinstance(each, str) for each in found.values()):
            raise BadView(f"view {view}: {word} is a table of texts, not {found!r}")
    if not isinstance(mapping.get("filter", ""), str):
        raise BadView(f"view {view}: filter is an expression, not {mapping['filter']!r}")
    if not isinstance(mapping.get("flatten", False), bool):
        raise BadView(f"view {view}: flatten is true or false, not {mapping['flatten']!r}")
    if mapping.get("function"):
        load_function(mapping["function"], view)


def _function_name(function: str | BatchFunction) -> str:
    return function if isinstance(function, str) else f"{function.__module__}:{getattr(function, '__qualname__', '?')}"
