"""What a setting is: its name, type, default, bounds and sentence. The tables are in `topic`, `broker` and `group`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

from headwater.errors import SettingError

__all__ = [
    "ConfigKey",
    "ConfigRefused",
    "ConfigSource",
    "ConfigType",
    "Parsed",
    "at_least",
    "between",
    "one_of",
    "subset",
]

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

Parsed = bool | str | int | float | tuple[str, ...]
Check = Callable[[Parsed], str | None]  # what is wrong with a value, or None


class ConfigRefused(SettingError):
    """A setting's value cannot be accepted; the message is what Kafka would say, and goes to the client."""


class ConfigType(IntEnum):
    """The numbers of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where an effective value comes from; the numbers of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


_RANGES = {
    ConfigType.INT: (-INT_MAX - 1, INT_MAX),
    ConfigType.SHORT: (-(1 << 15), (1 << 15) - 1),
    ConfigType.LONG: (-LONG_MAX - 1, LONG_MAX),
}


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting. `synonyms`: for a topic setting the broker settings it falls back to, first found wins."""

    name: str
    type: ConfigType
    default: str | None
    doc: str
    check: Check | None = None
    synonyms: tuple[str, ...] = field(default=())
    dynamic: bool = True  # false: only at start, a change while running is refused
    convert: dict[str, int] = field(default_factory=dict)  # synonym -> milliseconds in one of its units

    @property
    def secret(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Parsed:
        """The typed value of `text`, or `ConfigRefused` with the reason."""
        value = self._typed(text.strip())
        problem = self.check(value) if self.check is not None else None
        if problem is not None:
            raise ConfigRefused(f"Invalid value {text} for configuration {self.name}: {problem}")
        return value

    def _typed(self, text: str) -> Parsed:
        if self.type is ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise self._refusal(text, "Expected value to be either true or false")
            return text.lower() == "true"
        if self.type in _RANGES:
            return self._whole_number(text)
        if self.type is ConfigType.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise self._refusal(text, "Not a number of type DOUBLE") from None
        if self.type is ConfigType.LIST:
            return tuple(part.strip() for part in text.split(",")) if text else ()
        return text

    def _whole_number(self, text: str) -> int:
        low, high = _RANGES[self.type]
        try:
            value = int(text)
        except ValueError:
            value = high + 1
        if not low <= value <= high or "_" in text:
            raise self._refusal(text, f"Not a number of type {self.type.name}")
        return value

    def _refusal(self, text: str, reason: str) -> ConfigRefused:
        return ConfigRefused(f"Invalid value {text} for configuration {self.name}: {reason}")


def at_least(low: float) -> Check:
    def check(value: Parsed) -> str | None:
        assert isinstance(value, int | float)
        return None if value >= low else f"Value must be at least {low}"

    return check


def between(low: float, high: float) -> Check:
    def check(value: Parsed) -> str | None:
        assert isinstance(value, int | float)
        if value < low:
            return f"Value must be at least {low}"
        return None if value <= high else f"Value must be no more than {high}"

    return check


def one_of(*allowed: str) -> Check:
    def check(value: Parsed) -> str | None:
        return None if value in allowed else f"String must be one of: {', '.join(allowed)}"

    return check


def subset(*allowed: str) -> Check:
    def check(value: Parsed) -> str | None:
        assert isinstance(value, tuple)
        wrong = [item for item in value if item not in allowed]
        return f"String must be one of: {', '.join(allowed)}" if wrong else None

    return check
