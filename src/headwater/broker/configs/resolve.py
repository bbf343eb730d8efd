"""Effective values: what holds for the broker, a topic or a group, and where each value comes from.

Later beats earlier: default < file or command line (static) < cluster-wide dynamic < this broker's dynamic < the
topic's or group's own. A static value that is unknown or malformed refuses the start; a dynamic one is refused to the
client.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater.broker.configs.broker import BROKER_KEYS
from headwater.broker.configs.group import GROUP_KEYS
from headwater.broker.configs.keys import ConfigKey, ConfigRefused, ConfigSource, Parsed
from headwater.broker.configs.topic import TOPIC_KEYS
from headwater.errors import SettingError

__all__ = ["BrokerConfig", "Effective", "Origin", "validated"]


@dataclass(frozen=True, slots=True)
class Origin:
    """One place that has a value."""

    name: str
    text: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Effective:
    """The value that holds, and every place that has one, strongest first."""

    key: ConfigKey
    text: str | None
    source: ConfigSource
    origins: tuple[Origin, ...]


class BrokerConfig:
    """The broker's settings; `number`, `text`, `flag` and `words` are cached look-ups for the hot path."""

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        self._static = dict(static or {})
        for name, text in self._static.items():
            _known(name).parse(text)
        self._cluster_wide: dict[str, str] = {}
        self._this_broker: dict[str, str] = {}
        self._cache: dict[str, Parsed | None] = {}
        self._watchers: list[Callable[[], object]] = []

    # -- values

    def get(self, name: str) -> Parsed | None:
        try:
            return self._cache[name]
        except KeyError:
            effective = self.explain(name)
            value = None if effective.text is None else effective.key.parse(effective.text)
            self._cache[name] = value
            return value

    def number(self, name: str) -> int:
        value = self.get(name)
        assert isinstance(value, int), name
        return value

    def text(self, name: str) -> str:
        value = self.get(name)
        return "" if value is None else str(value)

    def flag(self, name: str) -> bool:
        return self.get(name) is True

    def words(self, name: str) -> tuple[str, ...]:
        value = self.get(name)
        assert value is None or isinstance(value, tuple), name
        return value or ()

    # -- dynamic changes

    @property
    def this_broker(self) -> Mapping[str, str]:
        return self._this_broker

    @property
    def cluster_wide(self) -> Mapping[str, str]:
        return self._cluster_wide

    def replace_dynamic(self, *, this_broker: Mapping[str, str], cluster_wide: Mapping[str, str]) -> None:
        """Values that came with AlterConfigs, already validated."""
        self._this_broker, self._cluster_wide = dict(this_broker), dict(cluster_wide)
        self._cache.clear()
        for callback in self._watchers:
            callback()

    def watch(self, callback: Callable[[], object]) -> None:
        self._watchers.append(callback)

    # -- explanations

    def explain(self, name: str) -> Effective:
        key = _known(name)
        return _strongest(key, self._origins(key))

    def explain_topic(self, own: Mapping[str, str], name: str) -> Effective:
        return self._explain_own(TOPIC_KEYS[name], own, ConfigSource.DYNAMIC_TOPIC)

    def explain_group(self, own: Mapping[str, str], name: str) -> Effective:
        return self._explain_own(GROUP_KEYS[name], own, ConfigSource.GROUP)

    def topic_value(self, own: Mapping[str, str], name: str) -> Parsed:
        effective = self.explain_topic(own, name)
        assert effective.text is not None
        return effective.key.parse(effective.text)

    def _explain_own(self, key: ConfigKey, own: Mapping[str, str], source: ConfigSource) -> Effective:
        origins = [Origin(key.name, own[key.name], source)] if key.name in own else []
        for synonym in key.synonyms:
            for origin in self._origins(BROKER_KEYS[synonym]):
                unit = key.convert.get(synonym)
                text = origin.text if unit is None else str(_scaled(int(origin.text), unit))
                origins.append(Origin(origin.name, text, origin.source))
        origins.sort(key=lambda origin: _STRENGTH[origin.source])  # stable: synonyms keep their order
        return _strongest(key, origins)

    def _origins(self, key: ConfigKey) -> list[Origin]:
        found = [
            Origin(key.name, values[key.name], source)
            for values, source in (
                (self._this_broker, ConfigSource.DYNAMIC_BROKER),
                (self._cluster_wide, ConfigSource.DYNAMIC_DEFAULT_BROKER),
                (self._static, ConfigSource.STATIC_BROKER),
            )
            if key.name in values
        ]
        if key.default is not None:
            found.append(Origin(key.name, key.default, ConfigSource.DEFAULT))
        return found


_STRENGTH = {
    ConfigSource.DYNAMIC_TOPIC: 0,
    ConfigSource.GROUP: 0,
    ConfigSource.DYNAMIC_BROKER: 1,
    ConfigSource.DYNAMIC_DEFAULT_BROKER: 2,
    ConfigSource.STATIC_BROKER: 3,
    ConfigSource.DEFAULT: 4,
}


def validated(table: Mapping[str, ConfigKey], configs: Mapping[str, str | None]) -> dict[str, str]:
    """The given values if every one is known and fits its type; `ConfigRefused` names the first that does not."""
    accepted = {}
    for name, text in configs.items():
        key = table.get(name)
        if key is None:
            raise ConfigRefused(f"Unknown configuration {name}{_nearest(name, table)}")
        if text is None:
            raise ConfigRefused(f"Null value not supported for configuration {name}")
        key.parse(text)
        accepted[name] = text
    return accepted


def _strongest(key: ConfigKey, origins: list[Origin]) -> Effective:
    if not origins:
        return Effective(key, key.default, ConfigSource.DEFAULT, ())
    return Effective(key, origins[0].text, origins[0].source, tuple(origins))


def _scaled(value: int, unit: int) -> int:
    return value if value < 0 else value * unit


def _known(name: str) -> ConfigKey:
    key = BROKER_KEYS.get(name)
    if key is None:
        raise SettingError(f"no broker setting is called {name!r}{_nearest(name, BROKER_KEYS)}")
    return key


def _nearest(name: str, table: Mapping[str, ConfigKey]) -> str:
    near = difflib.get_close_matches(name, table, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
