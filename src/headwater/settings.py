"""Every setting of headwater, in one table; where its value comes from, and why it was refused if it was.

Later sources win: default < `headwater.toml` (or `--config FILE`) < environment (`HEADWATER_BROKER_DATA` for
`broker.data`) < command line. Nothing below the command line reads the environment: commands load the settings once
and pass plain values down. In the file a setting is a key of its section:

    [broker]
    data = "/var/lib/headwater"
    listen = "127.0.0.1:9092"
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import SettingError

__all__ = ["FILE_NAME", "SETTINGS", "Setting", "Settings", "Value", "load_settings"]

FILE_NAME = "headwater.toml"
KAFKA_SECTION = "kafka"  # of the file: the broker's settings under Kafka's names, which `headwater start` reads
_ENVIRONMENT_PREFIX = "HEADWATER_"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its dotted name, its form, its default and what it is for."""

    name: str
    form: str  # "text", "address" (HOST:PORT), "path", "address or none", "secret"
    default: str
    purpose: str

    @property
    def environment_variable(self) -> str:
        return _ENVIRONMENT_PREFIX + self.name.upper().replace(".", "_")


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("log.bootstrap", "text", "127.0.0.1:9092", "the log: HOST:PORT[,HOST:PORT] of our broker or a Kafka"),
        Setting("broker.data", "path", "headwater-data/log", "where the broker keeps the log"),
        Setting("broker.listen", "address", "127.0.0.1:9092", "where the broker listens"),
        Setting("broker.metrics", "address or none", "", "where Prometheus metrics and /healthz are served"),
        Setting("pipeline.master", "text", "local[*]", "the Spark master: local[N], spark://..., yarn, k8s://..."),
        Setting("pipeline.checkpoints", "text", "headwater-data/checkpoints", "folder or URL of Spark's checkpoints"),
        Setting("views.data", "path", "headwater-data/views", "where embedded views live"),
        Setting("views.file", "path", "views.toml", "the declared views"),
        Setting("console.listen", "address", "127.0.0.1:8080", "where the console and its JSON API are served"),
        Setting("console.token", "secret", "", "asked of every caller when the console is not on loopback"),
    )
}


@dataclass(frozen=True, slots=True)
class Value:
    """A setting's effective value and the source it came from."""

    text: str
    source: str

    def shown(self, setting: Setting) -> str:
        """As people may see it: a secret only says that it is there."""
        return "***" if setting.form == "secret" and self.text else self.text


@dataclass(frozen=True, slots=True)
class Settings:
    """The effective values, validated."""

    values: Mapping[str, Value]

    def __getitem__(self, name: str) -> str:
        return self.values[name].text

    def __iter__(self) -> Iterator[tuple[Setting, Value]]:
        return iter((SETTINGS[name], value) for name, value in self.values.items())


def load_settings(
    arguments: Mapping[str, str | None] | None = None,
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read every source, validate, and say which one won."""
    values = {name: Value(setting.default, "default") for name, setting in SETTINGS.items()}
    for source, found in (
        _from_file(file),
        _from_environment(os.environ if environment is None else environment),
        ("command line", {name: text for name, text in (arguments or {}).items() if text is not None}),
    ):
        for name, text in found.items():
            _check(name, text, source)
            values[name] = Value(text, source)
    return Settings(values)


def _from_file(file: Path | None) -> tuple[str, dict[str, str]]:
    path = file or Path(FILE_NAME)
    if not path.exists():
        if file is not None:
            raise SettingError(f"the settings file {path} does not exist")
        return str(path), {}
    try:
        document = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is not TOML: {error}") from error
    found: dict[str, str] = {}
    for section, content in document.items():
        if section == KAFKA_SECTION:
            continue
        if not isinstance(content, dict):
            raise SettingError(f"{path}: {section!r} is a section: write [{section}] and its keys below it")
        found.update({f"{section}.{key}": str(value) for key, value in content.items()})
    return str(path), found


def _from_environment(environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    present = {
        s.name: environment[s.environment_variable] for s in SETTINGS.values() if s.environment_variable in environment
    }
    return "environment", present


def _check(name: str, text: str, source: str) -> None:
    setting = SETTINGS.get(name)
    if setting is None:
        near = difflib.get_close_matches(name, SETTINGS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(SETTINGS)}"
        raise SettingError(f"{source}: no setting is called {name!r}{hint}")
    if setting.form == "address" or (setting.form == "address or none" and text):
        host, _, port = text.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise SettingError(f"{source}: {name} is HOST:PORT, not {text!r}")
    elif setting.form in ("text", "path") and not text:
        raise SettingError(f"{source}: {name} must not be empty")
